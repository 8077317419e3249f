// The devices, which of them is current, their streams, and torch's allocator for them.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "blocks.h"

namespace sim {

constexpr int kMostDevices = 4;
using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;

inline thread_local DeviceIndex current_device = 0;
inline thread_local int64_t current_stream[kMostDevices] = {};

inline int64_t number_from(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoll(text) : otherwise;
}

inline int devices() {
  static const int n = static_cast<int>(number_from("SIMULATED_GPUS", 1));
  return n;
}

inline Device cuda(DeviceIndex index) { return {DeviceType::CUDA, index}; }
inline DeviceIndex or_current(DeviceIndex index) { return index < 0 ? current_device : index; }

class SimAllocator final : public c10::DeviceAllocator {
 public:
  SimAllocator() {
    const auto total = static_cast<size_t>(number_from("SIMULATED_GPU_BYTES", int64_t{16} << 30));
    for (int i = 0; i < kMostDevices; i++) memory_.push_back(std::make_unique<Memory>(total));
  }

  c10::DataPtr allocate(size_t n) override {
    if (!n) return {nullptr, nullptr, &give_back, cuda(current_device)};
    std::lock_guard<std::mutex> guard(lock_);
    void* at = memory_[current_device]->take(n, current_stream[current_device]);
    where_[at] = current_device;
    events().record("alloc", std::to_string(current_device), reinterpret_cast<int64_t>(at),
                    static_cast<int64_t>(n));
    return {at, at, &give_back, cuda(current_device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t n) const override { std::memcpy(to, from, n); }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {
    std::lock_guard<std::mutex> guard(lock_);
    for (auto& memory : memory_) memory->release_cached();
  }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}  // all work is done at once
  Stats getDeviceStats(DeviceIndex i) override {
    std::lock_guard<std::mutex> guard(lock_);
    return memory_[or_current(i)]->stats();
  }
  void resetAccumulatedStats(DeviceIndex i) override {
    std::lock_guard<std::mutex> guard(lock_);
    memory_[or_current(i)]->reset_accumulated();
  }
  void resetPeakStats(DeviceIndex i) override {
    std::lock_guard<std::mutex> guard(lock_);
    memory_[or_current(i)]->reset_peaks();
  }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex i) override {
    std::lock_guard<std::mutex> guard(lock_);
    auto& memory = *memory_[or_current(i)];
    return {memory.total() - memory.stats().reserved_bytes[0].current, memory.total()};
  }
  Memory& of(DeviceIndex i) { return *memory_[or_current(i)]; }

 private:
  static void give_back(void* at);
  std::mutex lock_;
  std::vector<std::unique_ptr<Memory>> memory_;
  std::unordered_map<void*, DeviceIndex> where_;
};

inline SimAllocator& allocator() {
  static auto* one = new SimAllocator;  // tensors may outlive what is static
  return *one;
}

inline void SimAllocator::give_back(void* at) {
  if (!at) return;
  auto& self = allocator();
  std::lock_guard<std::mutex> guard(self.lock_);
  const auto found = self.where_.find(at);
  TORCH_CHECK(found != self.where_.end(), "simulated GPU: freed twice, or not its memory");
  const auto requested = self.memory_[found->second]->give_back(at);
  events().record("free", std::to_string(found->second), reinterpret_cast<int64_t>(at),
                  static_cast<int64_t>(requested));
  self.where_.erase(found);
}

}  // namespace sim
