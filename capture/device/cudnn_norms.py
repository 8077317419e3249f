"""BatchNorm as cuDNN runs it, which eager takes on a GPU: in 32 bits, and in float16 with float32
weights.

torch traces `native_batch_norm` in its place, which rounds otherwise and is slower. cuDNN's
operator updates the running statistics without saying so, as no functional graph can. So there is
an operator of ours that returns the new statistics. It is emitted as torch's own, which gets the
buffers, and none where it runs again. What cuDNN keeps for backward is one result more.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._decomp.decompositions import cudnn_batch_norm as as_native
from torch._prims_common import suggest_memory_format

aten = torch.ops.aten
_MOST_ROWS = 880801  # that cuDNN trains with
_library: Any = torch.library.Library("remat", "FRAGMENT")
_library.define(
    "cudnn_batch_norm(Tensor input, Tensor weight, Tensor? bias, Tensor running_mean, "
    "Tensor running_var, bool training, float momentum, float eps) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)


def _run(
    x: Tensor, weight: Tensor, bias: Tensor | None, mean: Tensor, var: Tensor, *settings: Any
) -> tuple[Tensor, ...]:
    """Run cuDNN's kernel on copies of the statistics."""
    mean, var = mean.clone(), var.clone()
    return *torch.cudnn_batch_norm(x, weight, bias, mean, var, *settings), mean, var


def _fake(
    x: Tensor, weight: Tensor, _bias: Tensor | None, mean: Tensor, var: Tensor, *_: Any
) -> tuple[Tensor, ...]:
    made = torch.empty_like(x, memory_format=suggest_memory_format(x))
    saved = (weight.new_empty(x.size(1)) for _ in range(2))
    reserve = torch.empty(reserve_bytes(x), dtype=torch.uint8, device=x.device)
    return made, *saved, reserve, torch.empty_like(mean), torch.empty_like(var)


def reserve_bytes(x: Tensor) -> int:
    """Return what cuDNN keeps for backward; where lengths vary, for those of the example.

    Nothing for what stands for a GPU's: so said cuDNN 9.19 on an H100 of 24 layers of a ResNet-50.
    """
    if x.device.type == "cpu":
        return 0
    shape = [n.node.hint if isinstance(n, torch.SymInt) else n for n in x.shape]
    example = torch.empty(shape, dtype=x.dtype, device=x.device)
    example = example.contiguous(memory_format=suggest_memory_format(x))
    of_cuda_builds: Any = torch._C
    return int(of_cuda_builds._get_cudnn_batch_norm_reserve_space_size(example, True))


_library.impl("cudnn_batch_norm", _run, "CompositeExplicitAutograd")
torch.library.register_fake("remat::cudnn_batch_norm", _fake, lib=_library)


def cudnn_batch_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """Trace what eager runs where it chooses cuDNN's; without statistics, what torch traces."""
    if not training or running_mean is None or running_var is None:
        found: tuple[Tensor, ...] = as_native(
            x, weight, bias, running_mean, running_var, training, momentum, eps
        )
        return found
    norm: Callable[..., tuple[Tensor, ...]] = _Norm.apply
    *results, mean, var = norm(x, weight, bias, running_mean, running_var, momentum, eps)
    with torch.no_grad():
        running_mean.copy_(mean)
        running_var.copy_(var)
    return tuple(results)


def batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """Trace, on tensors that stand for a GPU's, the kernel that eager would run there."""
    rest = running_mean, running_var, training, momentum, eps
    if weight is None or bias is None or not (training and _cudnn_takes(x, weight)):
        composite = torch._C.DispatchKey.CompositeImplicitAutograd
        found: Tensor = aten.batch_norm.default._op_dk(
            composite, x, weight, bias, *rest, cudnn_enabled
        )
        return found
    x = x.contiguous(memory_format=suggest_memory_format(x))
    return cudnn_batch_norm(x, weight.contiguous(), bias.contiguous(), *rest)[0]


def _cudnn_takes(x: Tensor, weight: Tensor) -> bool:
    """Tell whether eager takes cuDNN's kernel to train.

    `_select_batch_norm_backend` in aten/src/ATen/native/Normalization.cpp.
    """
    half = x.dtype is torch.float16 and weight.dtype is not torch.float32
    known = not half and torch.bfloat16 not in (x.dtype, weight.dtype)
    fits = x.dim() >= 3 and x.size(0) <= _MOST_ROWS
    return known and fits and bool(torch._C._get_cudnn_enabled())


class _Norm(torch.autograd.Function):
    """cuDNN's kernel and its backward."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        mean: Tensor,
        var: Tensor,
        momentum: float,
        eps: float,
    ) -> tuple[Tensor, ...]:
        with torch._C._AutoDispatchBelowAutograd():
            made: tuple[Tensor, ...] = torch.ops.remat.cudnn_batch_norm(
                x, weight, bias, mean, var, True, momentum, eps
            )
        ctx.save_for_backward(x, weight, *made[1:4])
        ctx.eps = eps
        ctx.mark_non_differentiable(*made[1:])
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        x, weight, mean, invstd, reserve = ctx.saved_tensors
        grad = grad.contiguous(memory_format=suggest_memory_format(x))
        made = aten.cudnn_batch_norm_backward.default(
            x, grad, weight, None, None, mean, invstd, ctx.eps, reserve
        )
        needed = ctx.needs_input_grad[:3]
        given = (g if wanted else None for g, wanted in zip(made, needed, strict=True))
        return *given, None, None, None, None


def drop_copies_of_statistics(graph: torch.fx.Graph) -> None:
    """Let a buffer become what the operator returns for it, without the copy that was traced."""
    for node in graph.find_nodes(op="call_function", target=aten.copy.default):
        new = node.args[1]
        if new.target is operator.getitem and new.args[0].target is _OURS:
            node.replace_all_uses_with(new)
            graph.erase_node(node)


_OURS = torch.ops.remat.cudnn_batch_norm.default
