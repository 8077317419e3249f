// What the device was asked to do, in order: read by tests through sim_events.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>

namespace sim {

class Events {
 public:
  void record(const char* kind, const std::string& what, int64_t a = 0, int64_t b = 0) {
    if (!on_) return;
    std::lock_guard<std::mutex> guard(lock_);
    text_ += std::string(kind) + " " + what + " " + std::to_string(a) + " " + std::to_string(b) + "\n";
  }
  void start(bool on) {
    std::lock_guard<std::mutex> guard(lock_);
    on_ = on;
    if (on) text_.clear();
  }
  std::string text() {
    std::lock_guard<std::mutex> guard(lock_);
    return text_;
  }

 private:
  std::mutex lock_;
  bool on_ = false;
  std::string text_;
};

inline Events& events() {
  static Events all;
  return all;
}

}  // namespace sim
