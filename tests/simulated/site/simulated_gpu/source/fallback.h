// Every operation without a kernel of its own: the CPU's kernel, run on aliases of the same memory.
#pragma once
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view.h>
#include <torch/library.h>

#include "hooks.h"

namespace sim {

using at::Tensor;
using c10::IValue;

constexpr c10::DispatchKeySet kCudaKeys(c10::DispatchKey::CUDA);

inline c10::DispatchKeySet above_the_kernel() {
  return c10::autograd_dispatch_keyset | c10::autocast_dispatch_keyset |
      c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView);
}

inline char* begin_of(const Tensor& t) {
  if (!t.storage().nbytes()) return nullptr;
  return static_cast<char*>(t.storage().mutable_data()) + t.storage_offset() * t.dtype().itemsize();
}

// A tensor of the CPU on the memory of one of the device; empty ones may be resized.
inline Tensor on_host(const Tensor& t) {
  if (!t.defined() || !t.is_cuda()) return t;
  TORCH_CHECK(t.layout() == at::kStrided, "simulated GPU: only strided tensors are known");
  const auto options = at::TensorOptions().dtype(t.dtype()).device(at::kCPU);
  if (!begin_of(t)) return at::detail::empty_strided_cpu(t.sizes(), t.strides(), options);
  auto alias = at::from_blob(begin_of(t), t.sizes(), t.strides(), [](void*) {}, options);
  if (t.is_conj()) alias = alias.conj();
  if (t.is_neg()) alias._set_neg(true);
  return alias;
}

inline Tensor new_like(const Tensor& t, Device device) {
  c10::DeviceGuard guard(device);
  return at::detail::empty_strided_generic(t.sizes(), t.strides(), &allocator(), kCudaKeys,
                                           t.scalar_type());
}

inline Tensor to_device(const Tensor& t, Device device) {
  if (!t.defined()) return t;
  auto made = new_like(t, device);
  if (t.numel()) on_host(made).copy_(t.resolve_conj().resolve_neg());
  return made;
}

inline void resize(const Tensor& t, at::IntArrayRef size) {
  auto* impl = t.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(size);
  auto* storage = t.storage().unsafeGetStorageImpl();
  const auto need = (t.numel() + t.storage_offset()) * t.dtype().itemsize();
  if (t.numel() == 0 || storage->nbytes() >= need) return;
  c10::DeviceGuard guard(t.device());
  auto memory = allocator().allocate(need);
  if (storage->nbytes()) std::memcpy(memory.get(), storage->data(), storage->nbytes());
  storage->set_data_ptr_noswap(std::move(memory));
  storage->set_nbytes(need);
}

// Operations that may read tensors of the host beside those of the device.
inline bool reads_the_host(const std::string& name) {
  static const std::set<std::string> known = {
      "aten::index.Tensor", "aten::index.Tensor_out", "aten::index_put_", "aten::index_put",
      "aten::_index_put_impl_", "aten::copy_", "aten::_copy_from",
  };
  return known.count(name) > 0;
}

// Operations whose results' sizes or values the host waits for.
inline bool waits_for_device(const std::string& name) {
  static const std::set<std::string> known = {
      "aten::_local_scalar_dense", "aten::equal", "aten::nonzero", "aten::masked_select",
      "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive", "aten::bincount",
      "aten::repeat_interleave.Tensor",
  };
  return known.count(name) > 0;
}

// Products that a GPU sums up in float32; the CPU's of 16 bits take a hundred times as long.
inline bool sums_in_float(const std::string& name) {
  static const std::set<std::string> known = {
      "aten::mm.out", "aten::addmm.out", "aten::bmm.out", "aten::baddbmm.out",
      "aten::convolution", "aten::convolution_backward",
  };
  return known.count(name) > 0;
}

inline bool is_16_bit(const Tensor& t) {
  return t.scalar_type() == at::kHalf || t.scalar_type() == at::kBFloat16;
}

// One call of an operation: arguments to the host, the CPU's kernel, results back.
class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack* stack)
      : op_(op), stack_(*stack), schema_(op.schema()), n_(schema_.arguments().size()),
        begin_(stack->size() - n_), given_(stack->begin() + begin_, stack->end()),
        name_(op.operator_name().name) {
    if (!op.operator_name().overload_name.empty()) name_ += "." + op.operator_name().overload_name;
  }

  void run() {
    for (size_t i = 0; i < n_; i++) stack_[begin_ + i] = argument(stack_[begin_ + i]);
    check_devices();
    events().record(waits_for_device(name_) ? "read" : "op", name_);
    if (op_.hasTag(at::Tag::nondeterministic_seeded)) draw_from_device();
    else run_on_cpu();
    for (size_t i = 0; i < schema_.returns().size(); i++) {
      auto& value = stack_[begin_ + i];
      value = result(value, schema_.returns()[i].alias_info());
    }
  }

 private:
  IValue argument(const IValue& v) {
    if (v.isTensor()) return tensor(v.toTensor());
    if (v.isTensorList()) {
      c10::List<Tensor> made;
      for (const Tensor& t : v.toTensorVector()) made.push_back(tensor(t));
      return made;
    }
    if (v.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> made;
      for (const std::optional<Tensor>& t : v.toOptionalTensorList()) {
        made.push_back(t ? std::optional<Tensor>(tensor(*t)) : std::nullopt);
      }
      return made;
    }
    if (v.isDevice() && v.toDevice().is_cuda()) {
      device_ = cuda(or_current(v.toDevice().index()));
      return Device(at::kCPU);
    }
    if (v.isGenerator()) return generator(v.toGenerator());
    return v;
  }

  Tensor tensor(const Tensor& t) {
    if (!t.defined()) return t;
    if (!t.is_cuda()) {
      if (t.dim() > 0) host_ = true;
      return t;
    }
    if (!aliases_.empty() && t.device() != aliases_[0].first.device()) second_ = t.device();
    device_ = t.device();
    aliases_.emplace_back(t, on_host(t));
    if (!is_16_bit(t) || !sums_in_float(name_)) return aliases_.back().second;
    narrow_ = t.scalar_type();
    return aliases_.back().second.to(at::kFloat);
  }

  at::Generator generator(const at::Generator& g) {
    TORCH_CHECK(g.device().is_cuda(), "Expected a 'cuda' device type for generator but found '",
                g.device().type(), "'");
    generator_ = g;
    return at::detail::getDefaultCPUGenerator();
  }

  void check_devices() {
    const auto* message = "Expected all tensors to be on the same device, but found at least two devices, ";
    TORCH_CHECK(!second_, message, aliases_[0].first.device(), " and ", *second_, "! (", name_, ")");
    TORCH_CHECK(!host_ || aliases_.empty() || reads_the_host(name_), message, "cpu and ",
                device_, "! (", name_, ")");
  }

  // Numbers come from the host's generator, seeded by the device's, and left as it was.
  void draw_from_device() {
    static std::mutex one_at_a_time;
    std::lock_guard<std::mutex> guard(one_at_a_time);
    auto& drawn_from = implementation(generator_ ? *generator_ : default_generator(device_.index()));
    TORCH_CHECK(drawn_from.device() == device_, "Expected a generator of ", device_, " but found ",
                drawn_from.device());
    auto* host = at::detail::getDefaultCPUGenerator().unsafeGetGeneratorImpl();
    const auto state = host->get_state();
    host->set_current_seed(drawn_from.draw(aliases_.empty() ? 1 : aliases_[0].first.numel()));
    try {
      run_on_cpu();
    } catch (...) {
      host->set_state(*state);
      throw;
    }
    host->set_state(*state);
  }

  void run_on_cpu() {
    c10::impl::ExcludeDispatchKeyGuard excluded(above_the_kernel());
    op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
  }

  IValue result(const IValue& v, const c10::AliasInfo* alias) {
    if (v.isTensorList()) {
      c10::List<Tensor> made;
      for (const Tensor& t : v.toTensorVector()) made.push_back(brought_back(t));
      return made;
    }
    if (!v.isTensor()) return v;
    return alias && alias->isWrite() ? written(v.toTensor(), *alias) : brought_back(v.toTensor());
  }

  // The argument that an operation has written to: an empty `out` was given a size on the host.
  Tensor written(const Tensor& made, const c10::AliasInfo& alias) {
    for (size_t i = 0; i < n_; i++) {
      const auto* info = schema_.arguments()[i].alias_info();
      if (!info || !info->isWrite() || !(*info == alias) || !given_[i].isTensor()) continue;
      const Tensor out = given_[i].toTensor();
      if (!begin_of(out) && made.numel()) {
        resize(out, made.sizes());
        on_host(out).copy_(made);
      } else if (narrow_) {
        on_host(out).copy_(made);
      }
      return out;
    }
    return brought_back(made);
  }

  Tensor brought_back(const Tensor& made) {
    if (!made.defined() || made.is_cuda()) return made;
    if (narrow_) return to_device(made.to(*narrow_), device_);
    for (auto& [ours, alias] : aliases_) {
      if (made.is_same(alias)) return ours;
    }
    const auto* at = static_cast<const char*>(made.numel() ? made.data_ptr() : nullptr);
    for (auto& [ours, alias] : aliases_) {
      if (at && is_view(at, ours)) return view(ours, made, at);
    }
    return to_device(made, device_);
  }

  static bool is_view(const char* at, const Tensor& of) {
    const auto* begin = static_cast<const char*>(of.storage().data());
    return begin && at >= begin && at < begin + of.storage().nbytes();
  }

  static Tensor view(const Tensor& of, const Tensor& made, const char* at) {
    const auto bytes = at - static_cast<const char*>(of.storage().data());
    auto base = of.dtype() == made.dtype() ? of : of.view(made.scalar_type());
    return at::native::as_strided_tensorimpl(base, made.sizes(), made.strides(),
                                             bytes / static_cast<int64_t>(made.dtype().itemsize()));
  }

  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  const c10::FunctionSchema& schema_;
  size_t n_, begin_;
  std::vector<IValue> given_;
  std::string name_;
  std::vector<std::pair<Tensor, Tensor>> aliases_;  // of the device, on the host
  Device device_ = cuda(current_device);
  std::optional<Device> second_;
  std::optional<at::ScalarType> narrow_;  // of results that were summed up in float32
  std::optional<at::Generator> generator_;
  bool host_ = false;
};

inline void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) { Call(op, stack).run(); }

TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

}  // namespace sim
