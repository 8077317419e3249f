"""How operators are spelled: public torch functions where they are the same operation."""

from __future__ import annotations

import keyword
import sys
from collections.abc import Sequence

from remat_gen.ir.graph import Argument

# Operators whose `torch.NAME` takes the same positional arguments and calls the same kernel.
_PUBLIC = frozenset(
    """abs acos add addcdiv addcmul addmm all amax amin any arange argmax argmin asin atan atan2
    baddbmm bernoulli bitwise_and bitwise_not bitwise_or bitwise_xor bmm cat ceil clamp clamp_max
    clamp_min clone convolution cos cosh cumprod cumsum div embedding empty_like eq erf erfc exp
    expm1 flip floor fmod full full_like gather ge gt index_add index_select isfinite isinf isnan le
    log log10 log1p log2 logical_and logical_not logical_or logical_xor logsumexp lt masked_fill
    maximum mean minimum mm mul native_batch_norm native_dropout native_group_norm
    native_layer_norm ne neg ones ones_like pow prod rand rand_like randn randn_like reciprocal relu
    remainder roll round rsqrt rsub scatter scatter_add sgn sigmoid sign sin sinh sqrt square stack
    std sub sum tan tanh topk tril triu trunc var where zeros zeros_like""".split()
)
_FUNCTIONAL = frozenset("gelu glu hardswish hardtanh leaky_relu mish silu softplus".split())
# What is taken over dimensions: one of them may be a number.
_OVER_DIMENSIONS = frozenset("amax amin logsumexp mean sum".split())
# Views that are methods of a tensor with the same arguments.
METHODS = frozenset(
    """alias as_strided detach diagonal expand permute select split split_with_sizes
    squeeze t transpose unbind unfold unsqueeze view""".split()
)


def function(target: str) -> str:
    """Return the Python spelling of an operator: `torch.addmm`, `aten.gelu_backward.default`."""
    namespace, name, overload = target.split(".")
    if namespace == "aten" and overload != "out":
        if name in _PUBLIC:
            return f"torch.{name}"
        if name in _FUNCTIONAL:
            return f"F.{name}"
    root = "aten" if namespace == "aten" else f"torch.ops.{namespace}"
    parts = (root, name, overload)
    return ".".join(part if not keyword.iskeyword(part) else f"{part}_" for part in parts)


def with_lone_dimension(target: str, args: tuple[Argument, ...]) -> tuple[Argument, ...]:
    """Return arguments as people write them: `sum(x, 0)` for `sum(x, (0,))`."""
    match target.split("."), args:
        case ["aten", name, _], (taken, (dimension,), *rest) if name in _OVER_DIMENSIONS:
            return (taken, dimension, *rest)
    return args


def method(target: str) -> str | None:
    """Return the method of a tensor that makes a view, if there is one with the same arguments."""
    namespace, name, _ = target.split(".")
    name = {"_unsafe_view": "view", "alias": "detach"}.get(name, name)
    return name if namespace == "aten" and name in METHODS else None


def sliced(whole: str, ndim: int, place: Sequence[str]) -> str:
    """Return `aten.slice` as Python writes it, of its arguments behind the tensor: `x[:, 16:]`."""
    dim, start, end, step = (*place, *("0", "None", "None", "1")[len(place) :])
    axis = int(dim) % ndim
    first = "" if start in ("0", "None") else start
    last = "" if end in ("None", str(sys.maxsize)) else end
    part = f"{first}:{last}" + (f":{step}" if step != "1" else "")
    before = "..., " if axis == ndim - 1 and ndim > 2 else ":, " * axis
    return f"{whole}[{before}{part}]"
