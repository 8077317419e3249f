// The guard by which torch changes devices and streams, and records events. All work is done at
// once, in the thread that asks for it: streams are numbers, and an event is the time it was.
#pragma once
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <chrono>

#include "memory.h"

namespace sim {

using c10::Stream;

inline double now_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return DeviceType::CUDA; }
  Device exchangeDevice(Device to) const override {
    const auto before = cuda(current_device);
    setDevice(to);
    return before;
  }
  Device getDevice() const override { return cuda(current_device); }
  void setDevice(Device to) const override {
    TORCH_CHECK(to.index() < devices(), "CUDA error: invalid device ordinal");
    uncheckedSetDevice(to);
  }
  void uncheckedSetDevice(Device to) const noexcept override {
    if (to.index() >= 0) current_device = to.index();
  }
  DeviceIndex deviceCount() const noexcept override { return static_cast<DeviceIndex>(devices()); }

  Stream getStream(Device d) const override { return stream(d, current_stream[or_current(d.index())]); }
  Stream getDefaultStream(Device d) const override { return stream(d, 0); }
  Stream getStreamFromGlobalPool(Device d, bool) const override { return stream(d, next_stream()); }
  Stream getNewStream(Device d, int) const override { return stream(d, next_stream()); }
  Stream exchangeStream(Stream to) const override {
    auto& now = current_stream[or_current(to.device_index())];
    const auto before = stream(to.device(), now);
    now = to.id();
    return before;
  }
  void* getStreamNativeHandle(const Stream s) const override { return reinterpret_cast<void*>(s.id()); }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override { events().record("sync", "stream"); }
  void synchronizeDevice(const DeviceIndex) const override { events().record("sync", "device"); }
  void recordDataPtrOnStream(const c10::DataPtr&, const Stream&) const override {}

  void record(void** event, const Stream&, const DeviceIndex, const c10::EventFlag) const override {
    if (!*event) *event = new double;
    *static_cast<double*>(*event) = now_ms();
  }
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override { events().record("sync", "event"); }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override {
    delete static_cast<double*>(event);
  }
  double elapsedTime(void* a, void* b, const DeviceIndex) const override {
    return *static_cast<double*>(b) - *static_cast<double*>(a);
  }

 private:
  static Stream stream(Device d, int64_t id) {
    return Stream(Stream::UNSAFE, cuda(or_current(d.index())), id);
  }
  static int64_t next_stream() {
    static std::atomic<int64_t> next{1};
    return next++;
  }
};

}  // namespace sim
