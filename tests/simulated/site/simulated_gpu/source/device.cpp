// A simulated GPU for a CPU build of torch: everything under DispatchKey::CUDA, on host memory.
#include "kernels.h"

namespace {
// Fills the caller's buffer where it is large enough; returns the bytes that are needed.
int64_t give_text(const std::string& text, char* to, int64_t most) {
  if (static_cast<int64_t>(text.size()) < most) std::memcpy(to, text.c_str(), text.size() + 1);
  return static_cast<int64_t>(text.size()) + 1;
}
}  // namespace

extern "C" {
int sim_devices() { return sim::devices(); }
int sim_current_device() { return sim::current_device; }
void sim_set_device(int i) { sim::Guard().uncheckedSetDevice(sim::cuda(static_cast<c10::DeviceIndex>(i))); }
void sim_set_stream(int i, int64_t stream) { sim::current_stream[i] = stream; }
int64_t sim_current_stream(int i) { return sim::current_stream[i]; }
void sim_synchronize() { sim::events().record("sync", "device"); }
void sim_next_generator_is_default() { sim::hand_out_default = true; }

void sim_log(int on) { sim::events().start(on); }
int64_t sim_events(char* to, int64_t most) { return give_text(sim::events().text(), to, most); }

void sim_set_fraction(double fraction, int i) { sim::allocator().of(i).set_fraction(fraction); }
double sim_fraction(int i) { return sim::allocator().of(i).fraction(); }
void sim_memory_info(int i, int64_t* to) {
  const auto [free, total] = sim::allocator().getMemoryInfo(i);
  to[0] = static_cast<int64_t>(free);
  to[1] = static_cast<int64_t>(total);
}
void sim_rounded_bytes(int i, int64_t* to) {
  const auto& bytes = sim::allocator().of(i).rounded_bytes();
  to[0] = bytes.current;
  to[1] = bytes.peak;
}
}

REGISTER_ALLOCATOR(c10::DeviceType::CUDA, &sim::allocator());
C10_REGISTER_GUARD_IMPL(CUDA, sim::Guard);
