// A generator of CUDA's kind: a seed and an offset, 16 bytes, moved by each operation that draws.
#pragma once
#include <ATen/EmptyTensor.h>
#include <ATen/core/Generator.h>

#include "guard.h"

namespace sim {

struct SimGenerator final : c10::GeneratorImpl {
  uint64_t seed_ = c10::default_rng_seed_val, offset_ = 0;

  explicit SimGenerator(DeviceIndex index)
      : c10::GeneratorImpl(cuda(index), c10::DispatchKeySet(c10::DispatchKey::CUDA)) {}

  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
  }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom(true));
    return seed_;
  }
  void set_offset(uint64_t offset) override {
    TORCH_CHECK(offset % 4 == 0, "offset must be a multiple of 4");
    offset_ = offset;
  }
  uint64_t get_offset() const override { return offset_; }

  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.device().is_cpu() && state.dtype() == caffe2::TypeMeta::Make<uint8_t>() &&
                    state.is_contiguous(),
                "RNG state must be a torch.ByteTensor");
    TORCH_CHECK(state.numel() == 16, "RNG state is wrong size");
    const auto* bytes = static_cast<const uint8_t*>(state.data());
    std::memcpy(&seed_, bytes, 8);
    std::memcpy(&offset_, bytes + 8, 8);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    auto state = at::detail::empty_cpu({16}, at::kByte, {}, {}, {}, {});
    auto* bytes = static_cast<uint8_t*>(state.data_ptr());
    std::memcpy(bytes, &seed_, 8);
    std::memcpy(bytes + 8, &offset_, 8);
    return state.getIntrusivePtr();
  }
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) override {
    const auto* from = static_cast<SimGenerator*>(other.get());
    seed_ = from->seed_;
    offset_ = from->offset_;
  }
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    return c10::intrusive_ptr<c10::GeneratorImpl>::reclaim(clone_impl());
  }
  SimGenerator* clone_impl() const override {
    auto* made = new SimGenerator(device().index());
    made->seed_ = seed_;
    made->offset_ = offset_;
    return made;
  }

  // Moves on by what a kernel of `numel` numbers would, and returns a seed for the host's numbers.
  uint64_t draw(int64_t numel) {
    std::lock_guard<std::mutex> guard(mutex_);
    uint64_t mixed = seed_ * 0x9E3779B97F4A7C15ull ^ (offset_ + 1) * 0xBF58476D1CE4E5B9ull;
    mixed ^= mixed >> 31;
    offset_ += 4 * (1 + static_cast<uint64_t>(numel) / (132 * 2048));
    return mixed;
  }
};

inline at::Generator& default_generator(DeviceIndex index) {
  static auto* all = new std::vector<at::Generator>([] {
    std::vector<at::Generator> made;
    for (DeviceIndex i = 0; i < kMostDevices; i++) made.push_back(at::make_generator<SimGenerator>(i));
    return made;
  }());
  return (*all)[or_current(index)];
}

inline SimGenerator& implementation(const at::Generator& generator) {
  return *static_cast<SimGenerator*>(generator.unsafeGetGeneratorImpl());
}

// The next generator that Python asks for is a default one: how torch.cuda gets hold of them.
inline std::atomic<bool> hand_out_default{false};

}  // namespace sim
