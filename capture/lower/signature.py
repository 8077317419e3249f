"""What makes two operations the same work: target, shapes, strides, dtypes, other arguments.

Not what a tensor is multiplied by: the rates of stochastic depth grow from layer to layer, and the
layers are alike nevertheless.
"""

from __future__ import annotations

from remat_gen.capture.fx.conjugates import is_conjugate
from remat_gen.ir.graph import Argument, Graph, Literal, Operation, Ref, Tensor
from remat_gen.ir.size import Size

_ANY_NUMBER = frozenset(
    """aten.add.Tensor aten.sub.Tensor aten.mul.Tensor aten.div.Tensor aten.bernoulli.p
    aten.native_dropout.default aten.native_dropout_backward.default
    remat.dropout_mask.default remat.dropout_scale.default""".split()
)
"""What takes as long for one number as for another; whole ones may have a kernel of their own."""


def signature(graph: Graph, operation: Operation) -> str:
    """Return a text that is equal for operations that do the same work and cost the same.

    Names do not enter it. Which results are used does: a result nobody uses is workspace.
    """
    any_number = operation.target in _ANY_NUMBER
    args = [
        "number" if any_number and _is_rate(argument) else _argument(graph, argument)
        for argument in operation.args
    ]
    args += [f"{name}={_argument(graph, value)}" for name, value in operation.kwargs]
    used = "".join("_" if output is None else "x" for output in operation.outputs)
    return f"{operation.target}({', '.join(args)}) -> {used}"


def _is_rate(argument: Argument) -> bool:
    return isinstance(argument, float) and not argument.is_integer()


def _argument(graph: Graph, argument: Argument) -> str:
    if isinstance(argument, Ref):
        conjugate = "conj " if is_conjugate(graph, argument.name) else ""
        return conjugate + _tensor(graph.tensors[argument.name])
    if isinstance(argument, Size):
        return repr(argument.value)
    if isinstance(argument, Literal):
        return f"{argument.kind}:{argument.text}"
    if isinstance(argument, tuple):
        return "[" + ", ".join(_argument(graph, item) for item in argument) + "]"
    return repr(argument)


def _tensor(tensor: Tensor) -> str:
    shape = ",".join(map(str, tensor.shape))
    stride = ",".join(map(str, tensor.stride))
    return f"{tensor.dtype}[{shape}]({stride})@{tensor.device}"
