// Operations that must know the device's memory, and those whose results a GPU's kernels keep
// otherwise than the CPU's: norms in 16 bits have float32 statistics.
#pragma once
#include <ATen/Context.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>

#include "fallback.h"

namespace sim {

using at::IntArrayRef;
template <class T>
using Maybe = std::optional<T>;

inline Tensor empty(IntArrayRef size, Maybe<at::ScalarType> dtype, Maybe<at::Layout>,
                    Maybe<Device> device, Maybe<bool>, Maybe<at::MemoryFormat> format) {
  c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(size, &allocator(), kCudaKeys, c10::dtype_or_default(dtype), format);
}

inline Tensor empty_strided(IntArrayRef size, IntArrayRef stride, Maybe<at::ScalarType> dtype,
                            Maybe<at::Layout>, Maybe<Device> device, Maybe<bool>) {
  c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(size, stride, &allocator(), kCudaKeys,
                                           c10::dtype_or_default(dtype));
}

inline Tensor& copy_(Tensor& self, const Tensor& from, bool non_blocking) {
  if (self.is_cuda() != from.is_cuda()) {
    const char* kind = from.is_cuda() ? "read" : "upload";
    events().record(kind, non_blocking ? "copy_ non_blocking" : "copy_", from.numel());
  }
  c10::impl::ExcludeDispatchKeyGuard excluded(above_the_kernel());
  on_host(self).copy_(on_host(from));
  return self;
}

inline const Tensor& resize_(const Tensor& self, IntArrayRef size, Maybe<at::MemoryFormat> format) {
  resize(self, size);
  if (format && *format != at::MemoryFormat::Preserve) {
    self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  }
  return self;
}

inline Tensor& set_all(Tensor& self, c10::Storage storage, int64_t offset, IntArrayRef size,
                       IntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  impl->set_storage_offset(offset);
  if (stride.empty()) impl->set_sizes_contiguous(size);
  else impl->set_sizes_and_strides(size, stride);
  return self;
}
inline Tensor& set_storage(Tensor& self, c10::Storage storage) {
  const auto n = static_cast<int64_t>(storage.nbytes() / self.dtype().itemsize());
  return set_all(self, std::move(storage), 0, {n}, {});
}
inline Tensor& set_tensor(Tensor& self, const Tensor& from) {
  return set_all(self, from.storage(), from.storage_offset(), from.sizes(), from.strides());
}
inline Tensor& set_nothing(Tensor& self) {
  return set_all(self, c10::Storage(c10::Storage::use_byte_size_t(), 0, &allocator(), true), 0, {0}, {});
}

inline void record_stream(Tensor&, c10::Stream) {}  // all work is done at once

inline Maybe<Tensor> as_float(const Maybe<Tensor>& t) {
  if (!t || !t->defined()) return std::nullopt;
  return is_16_bit(*t) ? on_host(*t).to(at::kFloat) : on_host(*t);
}

using Three = std::tuple<Tensor, Tensor, Tensor>;

inline Three layer_norm(const Tensor& x, IntArrayRef shape, const Maybe<Tensor>& weight,
                        const Maybe<Tensor>& bias, double eps) {
  c10::impl::ExcludeDispatchKeyGuard excluded(above_the_kernel());
  events().record("op", "aten::native_layer_norm");
  auto [y, mean, rstd] = at::native_layer_norm(*as_float(x), shape, as_float(weight), as_float(bias), eps);
  return {to_device(y.to(x.scalar_type()), x.device()), to_device(mean, x.device()),
          to_device(rstd, x.device())};
}

inline Three layer_norm_backward(const Tensor& grad, const Tensor& x, IntArrayRef shape,
                                 const Tensor& mean, const Tensor& rstd, const Maybe<Tensor>& weight,
                                 const Maybe<Tensor>& bias, std::array<bool, 3> wanted) {
  c10::impl::ExcludeDispatchKeyGuard excluded(above_the_kernel());
  events().record("op", "aten::native_layer_norm_backward");
  auto [a, b, c] = at::native_layer_norm_backward(*as_float(grad), *as_float(x), shape, on_host(mean),
                                                  on_host(rstd), as_float(weight), as_float(bias), wanted);
  const auto back = [&](const Tensor& t, const Tensor& like) {
    return t.defined() ? to_device(t.to(like.scalar_type()), x.device()) : t;
  };
  return {back(a, x), back(b, weight ? *weight : x), back(c, bias ? *bias : x)};
}

// Which attention eager takes: in the order that torch is told, the first that can.
inline int64_t attention_choice(const Tensor& q, const Tensor& k, const Tensor& v,
                                const Maybe<Tensor>& mask, double, bool, Maybe<double>, bool gqa) {
  auto& context = at::globalContext();
  const bool same_heads = q.size(-1) == v.size(-1) && q.size(-1) <= 256;
  const bool gathered = gqa && q.size(-3) != k.size(-3);
  for (auto backend : context.sDPPriorityOrder()) {
    switch (backend) {
      case at::SDPBackend::cudnn_attention:
        if (number_from("SIMULATED_CUDNN_ATTENTION", 0) && context.userEnabledCuDNNSDP() &&
            is_16_bit(q) && same_heads && q.size(-1) <= 128) return static_cast<int64_t>(backend);
        break;
      case at::SDPBackend::flash_attention:
        if (context.userEnabledFlashSDP() && is_16_bit(q) && same_heads && !mask) {
          return static_cast<int64_t>(backend);
        }
        break;
      case at::SDPBackend::efficient_attention:
        if (context.userEnabledMemEfficientSDP() && !gathered) return static_cast<int64_t>(backend);
        break;
      case at::SDPBackend::math:
        if (context.userEnabledMathSDP()) return static_cast<int64_t>(backend);
        break;
      default: break;
    }
  }
  TORCH_CHECK(false, "No available kernel. Aborting execution.");
}

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  const auto on_cpu = [] { return torch::CppFunction::makeFromBoxedFunction<&fallback>(); };
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("copy_", &copy_);
  m.impl("resize_", &resize_);
  m.impl("set_.source_Storage_storage_offset", &set_all);
  m.impl("set_.source_Storage", &set_storage);
  m.impl("set_.source_Tensor", &set_tensor);
  m.impl("set_", &set_nothing);
  m.impl("record_stream", &record_stream);
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  m.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  m.impl("native_layer_norm", &layer_norm);
  m.impl("native_layer_norm_backward", &layer_norm_backward);
  m.impl("convolution", on_cpu());  // or torch would look for cuDNN
  m.impl("convolution_backward", on_cpu());
}

// Kernels in Python see the memory without a copy that would count as a read.
TORCH_LIBRARY_FRAGMENT(simulated, m) {
  m.def("on_host(Tensor(a) t) -> Tensor(a)");
}
TORCH_LIBRARY_IMPL(simulated, CUDA, m) {
  m.impl("on_host", [](const Tensor& t) { return on_host(t); });
}

inline const bool attention_is_chosen = [] {
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&attention_choice);
  return true;
}();

}  // namespace sim
