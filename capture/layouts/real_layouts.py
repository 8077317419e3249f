"""Strides as kernels give them, where torch's fake kernels say otherwise.

A trace runs on fake tensors. A view that it takes of a result whose strides are other for real
does not exist in the step (`BatchNorm1d` of a transposed tensor, then `reshape`), or needs a copy
that is nowhere in the plan. The rules here are what the CPU's kernels allocate, as far as they
differ; `tests/capture/test_real_layouts.py` compares them with the kernels. Some kernels are the
same code for GPUs, or allocate likewise there. Of products in groups fakes know those of
bfloat16 alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch._prims_common import compute_elementwise_output_strides, suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from remat_gen.capture.device.absent import AbsentDevice
from remat_gen.capture.fx.view_strides import VIEWS, with_strides_of_views
from remat_gen.capture.process.replaced import replaced

aten = torch.ops.aten
_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
Rule: TypeAlias = Callable[[Tensor, Sequence[Any]], Sequence[int]]
"""Returns the strides of a result, from the fake one and the arguments; all at example lengths."""


@contextmanager
def layouts_of_kernels(stands_for: AbsentDevice | None = None) -> Iterator[None]:
    """Let fake tensors have the strides of kernels.

    `stands_for` is the device that fake tensors on the CPU stand for, if they are not themselves.
    """
    dispatch: Callable[..., Any] = FakeTensorMode.dispatch

    def corrected(
        mode: FakeTensorMode, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is aten._grouped_mm.default and not stands_for and _device(args) == "cpu":
            return _in_groups(partial(dispatch, mode, func, types), args, kwargs)
        result = dispatch(mode, func, types, args, kwargs)
        if func in VIEWS and isinstance(result, Tensor) and all_have_hints(result, args[0]):
            with mode:
                return with_strides_of_views(result, args[0])
        rule = RULES.get(func)
        if result is NotImplemented or (rule is None and func not in SPARE):
            return result
        on_cpu = not stands_for and _device(result) == "cpu"
        if rule is None:
            return _with_spare(mode, func, result) if on_cpu else result
        if not on_cpu and func not in ALSO_ON_GPUS:
            return result
        return _corrected(mode, rule, result, args)

    with replaced(FakeTensorMode, "dispatch", corrected):
        yield


def _in_groups(product: Callable[..., Tensor], args: Sequence[Any], kwargs: Any) -> Tensor:
    """Return a product in groups of any type: as one of bfloat16, in the operands' type."""
    narrow = pytree.tree_map_only(Tensor, _narrowed, (tuple(args), kwargs or {}))
    return product(*narrow).to(args[0].dtype)


def _narrowed(tensor: Tensor) -> Tensor:
    return tensor.bfloat16() if tensor.is_floating_point() else tensor


def _device(result: Any) -> str:
    found = (leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor))
    return next((tensor.device.type for tensor in found), "")


def _with_spare(mode: FakeTensorMode, func: Any, result: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the results of an operation, that in `SPARE` with room for one more number."""
    parts = list(result)
    fake = parts[SPARE[func]]
    (length,) = fake.shape
    if type(length) is not int or length > 0:
        with mode:
            longer = torch.empty(length + 1, dtype=fake.dtype, device=fake.device)
            parts[SPARE[func]] = longer[:length]
    return tuple(parts)


def _corrected(mode: FakeTensorMode, rule: Rule, result: Any, args: Sequence[Any]) -> Any:
    """Return a result, each tensor of as many dimensions as its first one laid out by the rule."""
    if isinstance(result, Tensor):
        return _restrided(mode, rule, result, args)
    first = result[0]
    if not isinstance(first, Tensor):  # a gradient that nobody wants
        return result

    def alike(part: Any) -> bool:
        return isinstance(part, Tensor) and part.ndim == first.ndim  # lengths may be symbols

    return tuple(_restrided(mode, rule, part, args) if alike(part) else part for part in result)


def _restrided(mode: FakeTensorMode, rule: Rule, fake: Tensor, args: Sequence[Any]) -> Tensor:
    if not all_have_hints(fake, *args):
        return fake
    example, *examples = pytree.tree_map_only(Tensor, at_example, (fake, *args))
    strides = tuple(rule(example, examples))
    if strides == example.stride():
        return fake
    with mode:
        return _empty(fake, strides)


def _empty(fake: Tensor, strides: tuple[int, ...]) -> Tensor:
    """Return a tensor like a fake one, with such strides at the example's lengths."""
    if all(type(size) is int for size in fake.shape):
        return torch.empty_strided(fake.shape, strides, dtype=fake.dtype, device=fake.device)
    order = sorted(range(fake.ndim), key=lambda dim: -strides[dim])
    dense = torch.empty([fake.shape[dim] for dim in order], dtype=fake.dtype, device=fake.device)
    return dense.permute([order.index(dim) for dim in range(fake.ndim)])


def all_have_hints(*args: Any) -> bool:
    return all(_has_hints(arg) for arg in args if isinstance(arg, Tensor))


def _has_hints(tensor: Tensor) -> bool:
    lengths = (*tensor.shape, *tensor.stride())
    return all(n.node.has_hint() for n in lengths if isinstance(n, torch.SymInt))


def at_example(tensor: Tensor) -> Tensor:
    """Return a tensor without memory, its lengths those of the example: no guard on any is made."""
    shape, stride = (
        [n.node.hint if isinstance(n, torch.SymInt) else n for n in many]
        for many in (tensor.shape, tensor.stride())
    )
    return torch.empty_strided(shape, stride, dtype=tensor.dtype, device="meta")


def _contiguous(result: Tensor, _args: Sequence[Any]) -> Sequence[int]:
    return torch.empty(result.shape, device="meta").stride()


def _suggested(at: int) -> Rule:
    """Return the rule of `empty(…, x.suggest_memory_format())` for the argument x at a position."""

    def strides(result: Tensor, args: Sequence[Any]) -> Sequence[int]:
        layout = suggest_memory_format(args[at])
        return torch.empty(result.shape, device="meta", memory_format=layout).stride()

    return strides


def _normalised(result: Tensor, args: Sequence[Any]) -> Sequence[int]:
    """Return the strides of BatchNorm on the CPU: contiguous stays so, or with its channels last.

    Also where lengths are ones, whose strides suggest another layout.
    """
    layouts = torch.contiguous_format, _CHANNELS_LAST.get(result.ndim, torch.contiguous_format)
    for layout in layouts:
        if args[0].is_contiguous(memory_format=layout):
            return torch.empty(result.shape, device="meta", memory_format=layout).stride()
    return _suggested(0)(result, args)


def _elementwise(*at: int) -> Rule:
    """Return the rule of a pointwise kernel of the arguments at some positions, in its order.

    Of one argument it is that of `empty_like(x)`.
    """

    def strides(result: Tensor, args: Sequence[Any]) -> Sequence[int]:
        operands = [args[i] for i in at]
        same = all(operand.shape == result.shape for operand in operands)
        return compute_elementwise_output_strides(*operands) if same else result.stride()

    return strides


def _convolved(result: Tensor, args: Sequence[Any]) -> Sequence[int]:
    """Return the strides of a convolution: fakes miss channels that lie last in varying lengths."""
    if result.ndim not in _CHANNELS_LAST:
        return result.stride()
    with FakeTensorMode():  # of the example's lengths
        x, weight, bias = pytree.tree_map_only(Tensor, _on_cpu, args[:3])
        backend = torch._C._select_conv_backend(x, weight, bias, *args[3:9])
        layout = torch._C._conv_determine_backend_memory_format(x, weight, backend)
    return torch.empty(result.shape, device="meta", memory_format=layout).stride()


def _on_cpu(t: Tensor) -> Tensor:
    return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cpu")


def _convolved_backward(result: Tensor, args: Sequence[Any]) -> Sequence[int]:
    """Return the strides of the gradients of a convolution's input and weight."""
    _, x, weight, bias_sizes, *rest = args
    has_bias = bias_sizes and bias_sizes[0]  # [0] says that there is none, too
    bias = torch.empty(bias_sizes, dtype=x.dtype, device="meta") if has_bias else None
    return _convolved(result, [x, weight, bias, *rest])


def _rolled(result: Tensor, args: Sequence[Any]) -> Sequence[int]:
    """Return the strides of `roll(x, shifts, dims)`: without dims, x is made flat for it."""
    along = args[2] if len(args) > 2 else ()
    return _suggested(0)(result, args) if along else _contiguous(result, args)


def _rrelu_backward(result: Tensor, args: Sequence[Any]) -> Sequence[int]:
    """Return the strides of the noise times the gradient; evaluated, it is a leaky ReLU's."""
    training = args[5]
    return (_elementwise(2, 0) if training else _elementwise(1, 0))(result, args)


ALSO_ON_GPUS: dict[Any, Rule] = {
    aten.cudnn_batch_norm_backward.default: _suggested(0),
    aten.native_layer_norm_backward.default: _contiguous,
    aten._fused_rms_norm_backward.default: _contiguous,
    aten._log_softmax_backward_data.default: _contiguous,
    aten.elu_backward.default: _elementwise(0, 5),
    aten.hardswish_backward.default: _elementwise(0, 1),
    aten.softplus_backward.default: _elementwise(0, 1),
    aten.hardsigmoid_backward.default: _elementwise(0, 1),
    aten.hardtanh_backward.default: _elementwise(0, 1),
    aten.logit_backward.default: _elementwise(0, 1),
    aten.xlogy.Tensor: _elementwise(0, 1),
    aten.special_xlog1py.default: _elementwise(0, 1),
    aten.copysign.Tensor: _elementwise(0, 1),
    aten.mse_loss_backward.default: _contiguous,
    aten.smooth_l1_loss_backward.default: _contiguous,
    aten.huber_loss_backward.default: _contiguous,
    aten.upsample_bicubic2d_backward.default: _contiguous,  # fakes among lengths say otherwise
    aten._upsample_bicubic2d_aa_backward.default: _contiguous,
}
"""Allocated by one code for all devices; LayerNorm's on a GPU and RMSNorm's are contiguous too."""

RULES = ALSO_ON_GPUS | {
    aten.convolution.default: _convolved,
    aten.convolution_backward.default: _convolved_backward,
    aten.native_batch_norm.default: _normalised,
    aten._native_batch_norm_legit.default: _normalised,
    aten._native_batch_norm_legit.no_stats: _normalised,
    aten._native_batch_norm_legit_functional.default: _normalised,
    aten._native_batch_norm_legit_no_training.default: _normalised,
    aten.native_batch_norm_backward.default: _suggested(1),
    aten.nll_loss2d_forward.default: _contiguous,
    aten.log_sigmoid_forward.default: _contiguous,
    aten.rrelu_with_noise.default: _contiguous,
    aten.rrelu_with_noise_functional.default: _contiguous,
    aten.rrelu_with_noise_backward.default: _rrelu_backward,
    aten.binary_cross_entropy.default: _elementwise(0),
    aten.binary_cross_entropy_backward.default: _elementwise(1),
    aten.glu_backward.default: _contiguous,
    aten.channel_shuffle.default: _suggested(0),
    aten.roll.default: _rolled,
    aten.max_unpool2d.default: _suggested(0),
    aten.reflection_pad2d.default: _suggested(0),  # torch 2.11: the fake of 2.13 says so
    aten.replication_pad2d.default: _suggested(0),  # likewise
    aten.reflection_pad2d_backward.default: _suggested(1),
    aten.replication_pad2d_backward.default: _suggested(1),
    aten.replication_pad3d.default: _suggested(0),
    aten.replication_pad3d_backward.default: _suggested(1),
}

SPARE = {aten._embedding_bag.default: 1, aten._embedding_bag_forward_only.default: 1}
"""Which result a kernel makes of one number more, and then cuts: its memory stays as it was."""
