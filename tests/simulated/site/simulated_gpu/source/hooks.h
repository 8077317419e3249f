// What torch's CPU library asks of its CUDA library, found through its registry by name.
#pragma once
#include <ATen/detail/CUDAHooksInterface.h>

#include "generator.h"

namespace at {

struct CUDAHooks final : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  int getNumGPUs() const override { return sim::devices(); }
  DeviceIndex deviceCount() const override { return static_cast<DeviceIndex>(sim::devices()); }

  DeviceIndex current_device() const override { return sim::current_device; }
  DeviceIndex getCurrentDevice() const override { return sim::current_device; }
  void setCurrentDevice(DeviceIndex i) const override { sim::Guard().setDevice(sim::cuda(i)); }
  DeviceIndex exchangeDevice(DeviceIndex i) const override {
    return sim::Guard().exchangeDevice(sim::cuda(i)).index();
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex i) const override { return exchangeDevice(i); }
  Device getDeviceFromPtr(void*) const override { return sim::cuda(sim::current_device); }
  void deviceSynchronize(DeviceIndex) const override { sim::events().record("sync", "device"); }

  Allocator* getCUDADeviceAllocator() const override { return &sim::allocator(); }
  Allocator* getPinnedMemoryAllocator() const override { return c10::GetAllocator(kCPU); }
  const Generator& getDefaultGenerator(DeviceIndex i) const override {
    return sim::default_generator(i);
  }
  Generator getNewGenerator(DeviceIndex i) const override {
    if (sim::hand_out_default.exchange(false)) return sim::default_generator(i);
    return make_generator<sim::SimGenerator>(sim::or_current(i));
  }
};

REGISTER_CUDA_HOOKS(CUDAHooks);

}  // namespace at
