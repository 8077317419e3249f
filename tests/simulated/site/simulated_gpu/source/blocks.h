// Blocks of memory by the rules of torch's caching allocator for CUDA (c10/cuda/CUDACachingAllocator):
// sizes in steps of 512 bytes; up to 1 MiB from segments of 2 MiB, up to 10 MiB from segments of
// 20 MiB, above from segments of their own in steps of 2 MiB; best fit; split and merged.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <cstdlib>
#include <cstring>
#include <set>
#include <tuple>
#include <unordered_map>

#include "events.h"

namespace sim {

constexpr size_t kMinBlock = 512, kSmallSize = 1 << 20, kSmallBuffer = 2 << 20;
constexpr size_t kLargeBuffer = 20 << 20, kMinLargeAlloc = 10 << 20, kRoundLarge = 2 << 20;

inline size_t rounded(size_t n) {
  return n < kMinBlock ? kMinBlock : (n + kMinBlock - 1) / kMinBlock * kMinBlock;
}

inline size_t segment_bytes(size_t size) {
  if (size <= kSmallSize) return kSmallBuffer;
  if (size < kMinLargeAlloc) return kLargeBuffer;
  return (size + kRoundLarge - 1) / kRoundLarge * kRoundLarge;
}

struct Block {
  char* at;
  size_t size;
  bool small;
  int64_t stream;
  size_t requested = 0;
  bool used = false;
  Block *before = nullptr, *after = nullptr;
};

struct Smaller {
  bool operator()(const Block* a, const Block* b) const {
    return std::tie(a->stream, a->size, a->at) < std::tie(b->stream, b->size, b->at);
  }
};

using Stats = c10::CachingDeviceAllocator::DeviceStats;
using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;

// The memory of one device. Not safe between threads: SimAllocator holds the lock.
class Memory {
 public:
  explicit Memory(size_t total) : total_(total), limit_(total) {}

  void* take(size_t requested, int64_t stream) {
    const size_t size = rounded(requested);
    const bool small = size <= kSmallSize;
    Block* block = best_fit(size, small, stream);
    if (!block) block = new_segment(requested, size, small, stream);
    split(block, size);
    block->used = true;
    block->requested = requested;
    live_[block->at] = block;
    count(block, 1);
    rounded_.increase(size);
    std::memset(block->at, 0xFF, size);  // NaN, -1, true
    return block->at;
  }

  // Returns the bytes that were requested for the block.
  size_t give_back(void* at) {
    auto found = live_.find(at);
    TORCH_CHECK(found != live_.end(), "simulated GPU: freed twice, or not its memory");
    Block* block = found->second;
    live_.erase(found);
    const size_t requested = block->requested;
    count(block, -1);
    rounded_.decrease(rounded(requested));
    std::memset(block->at, 0xDD, rounded(requested));
    block->used = false;
    free_of(block->small).insert(merged(merged(block, block->before), block->after));
    return requested;
  }

  void release_cached() {
    for (auto* blocks : {&small_, &large_}) {
      for (auto next = blocks->begin(); next != blocks->end();) {
        Block* block = *next;
        if (block->before || block->after) { ++next; continue; }
        next = blocks->erase(next);
        change(stats_.segment, block->small, -1);
        change(stats_.reserved_bytes, block->small, -static_cast<int64_t>(block->size));
        stats_.num_device_free++;
        std::free(block->at);
        delete block;
      }
    }
  }

  void reset_peaks() {
    rounded_.reset_peak();
    for (auto* array : arrays()) for (auto& stat : *array) stat.reset_peak();
  }
  void reset_accumulated() {
    for (auto* array : arrays()) for (auto& stat : *array) stat.reset_accumulated();
    stats_.num_alloc_retries = stats_.num_ooms = 0;
  }
  void set_fraction(double fraction) { limit_ = static_cast<size_t>(fraction * total_); }
  double fraction() const { return static_cast<double>(limit_) / total_; }
  size_t total() const { return total_; }
  const Stats& stats() const { return stats_; }
  // Bytes in steps of 512: allocated_bytes counts the unused end of large blocks as well.
  const Stat& rounded_bytes() const { return rounded_; }

 private:
  using Free = std::set<Block*, Smaller>;
  Free& free_of(bool small) { return small ? small_ : large_; }

  std::array<StatArray*, 9> arrays() {
    return {&stats_.allocation, &stats_.segment, &stats_.active, &stats_.inactive_split,
            &stats_.allocated_bytes, &stats_.reserved_bytes, &stats_.active_bytes,
            &stats_.inactive_split_bytes, &stats_.requested_bytes};
  }

  static void change(StatArray& array, bool small, int64_t by) {
    const auto pool = small ? StatType::SMALL_POOL : StatType::LARGE_POOL;
    for (auto type : {StatType::AGGREGATE, pool}) {
      auto& stat = array[static_cast<size_t>(type)];
      by < 0 ? stat.decrease(-by) : stat.increase(by);
    }
  }

  void count(const Block* block, int sign) {
    const auto size = sign * static_cast<int64_t>(block->size);
    change(stats_.allocation, block->small, sign);
    change(stats_.active, block->small, sign);
    change(stats_.allocated_bytes, block->small, size);
    change(stats_.active_bytes, block->small, size);
    change(stats_.requested_bytes, block->small, sign * static_cast<int64_t>(block->requested));
  }

  Block* best_fit(size_t size, bool small, int64_t stream) {
    Block key{nullptr, size, small, stream};
    auto& blocks = free_of(small);
    auto found = blocks.lower_bound(&key);
    if (found == blocks.end() || (*found)->stream != stream) return nullptr;
    Block* block = *found;
    blocks.erase(found);
    return block;
  }

  Block* new_segment(size_t requested, size_t size, bool small, int64_t stream) {
    const size_t bytes = segment_bytes(size);
    if (reserved() + bytes > limit_) {
      stats_.num_alloc_retries++;
      release_cached();
    }
    if (reserved() + bytes > limit_) {
      stats_.num_ooms++;
      TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", requested,
                       " bytes. The simulated GPU may hold ", limit_, " bytes, and ", reserved(),
                       " are reserved.");
    }
    void* at = nullptr;
    TORCH_CHECK(!posix_memalign(&at, 2 << 20, bytes), "simulated GPU: the host is out of memory");
    change(stats_.segment, small, 1);
    change(stats_.reserved_bytes, small, static_cast<int64_t>(bytes));
    stats_.num_device_alloc++;
    return new Block{static_cast<char*>(at), bytes, small, stream};
  }

  void split(Block* block, size_t size) {
    const size_t rest = block->size - size;
    if (block->small ? rest < kMinBlock : rest <= kSmallSize) return;
    auto* other = new Block{block->at + size, rest, block->small, block->stream};
    other->before = block;
    other->after = block->after;
    if (other->after) other->after->before = other;
    block->after = other;
    block->size = size;
    free_of(block->small).insert(other);
  }

  // Joins a free neighbour to a block that is in no set, and returns the one that is left.
  Block* merged(Block* block, Block* other) {
    if (!other || other->used) return block;
    free_of(other->small).erase(other);
    Block *low = other == block->before ? other : block, *high = low == other ? block : other;
    low->size += high->size;
    low->after = high->after;
    if (low->after) low->after->before = low;
    delete high;
    return low;
  }

  size_t reserved() const { return static_cast<size_t>(stats_.reserved_bytes[0].current); }

  size_t total_, limit_;
  Free small_, large_;
  std::unordered_map<void*, Block*> live_;
  Stats stats_;
  Stat rounded_;
};

}  // namespace sim
