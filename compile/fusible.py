"""Which operations a compiler fuses: those that go through their tensors element by element, or
row by row.

Everything else stays a call of its own: matrix products, convolutions and other kernels of
libraries, which a compiler would only call in turn; what draws random numbers, so that the streams
are eager's; and what is written back into a buffer.
"""

from __future__ import annotations

from remat_gen.codegen.expressions.expressions import DROPOUT_SCALE
from remat_gen.codegen.statements.gradient_reach import apart, reach_of
from remat_gen.ir.graph import Graph, Operation, Trait

_POINTWISE = frozenset(
    """abs acos add addcdiv addcmul asin atan atan2 bitwise_and bitwise_not bitwise_or bitwise_xor
    ceil clamp clamp_max clamp_min clone copysign cos cosh div elu elu_backward eq erf erfc exp
    exp2 expm1 fill floor fmax fmin ge gelu gelu_backward gt hardsigmoid hardsigmoid_backward
    hardswish hardswish_backward hardtanh hardtanh_backward isinf isnan le leaky_relu
    leaky_relu_backward lerp log log10 log1p log2 log_sigmoid_backward logical_and logical_not
    logical_or logical_xor lt masked_fill maximum minimum mish mish_backward mul ne neg pow
    reciprocal relu round rsqrt rsub sigmoid sigmoid_backward sign silu silu_backward sin sinh
    softplus softplus_backward sqrt square sub tan tanh tanh_backward threshold_backward tril triu
    trunc where _to_copy""".split()
)
_REDUCTIONS = frozenset(
    """amax amin _fused_rms_norm _fused_rms_norm_backward mean native_layer_norm
    native_layer_norm_backward _log_softmax _log_softmax_backward_data _softmax
    _softmax_backward_data sum var var_mean""".split()
)
_SHAPING = frozenset(("cat", "constant_pad_nd", "embedding", "stack"))
# Kernels made by hand, which a compiler's may be slower than.
_OWN_KERNEL = _REDUCTIONS | _SHAPING | {"clone", "gelu", "gelu_backward"}
_DTYPES = frozenset("float32 float64 bfloat16 float16 bool int64 int32 int16 int8 uint8".split())


def fusible_in(graph: Graph) -> list[bool]:
    """Tell for each operation of a graph whether it can be part of what is compiled.

    Not what joins gradients of which one may have come for nothing: it is set to zero before.
    """
    sources = reach_of(graph)
    return [_is_fusible(graph, o) and not apart(graph, o, sources) for o in graph.operations]


def _is_fusible(graph: Graph, operation: Operation) -> bool:
    if Trait.RANDOM in operation.traits or operation.state or not _is_known(operation.target):
        return False
    written_back = {mutation.tensor for mutation in graph.mutations}
    made = [graph.tensors[output] for output in operation.outputs if output]
    updates = any(graph.tensors[w].storage in {t.storage for t in made} for w in written_back)
    return not updates and all(t.dtype in _DTYPES and 0 not in t.shape for t in made)


def has_own_kernel(operation: Operation) -> bool:
    """Tell whether torch's kernel of a fusible operation may be as quick alone as a compiler's."""
    return operation.target.split(".")[1] in _OWN_KERNEL


def _is_known(target: str) -> bool:
    namespace, name, *overload = target.split(".")
    known = name in _POINTWISE or name in _REDUCTIONS or name in _SHAPING
    return target == DROPOUT_SCALE or (namespace == "aten" and overload != ["out"] and known)
