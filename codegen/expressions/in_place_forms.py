"""Which operators have a form that writes the result over an argument.

Methods in place (`x.mul_(y)`) are used wherever an argument dies. The gradients of activations have
none, but can be told where to put their result; that is for where memory is short: it costs time,
since what was freed and allocated alternately is then held, and glibc gives pages back.
"""

from __future__ import annotations

from remat_gen.ir.graph import Graph, Operation, Ref

# Methods `x.NAME_(…)` that compute what `torch.NAME(x, …)` does, element by element.
METHODS = frozenset(
    """abs add clamp clamp_max clamp_min copy cos div exp masked_fill mul neg relu rsqrt sigmoid sin
    sqrt sub tanh""".split()
)
SLICE = "aten.slice.Tensor"
# Copies of a tensor of which a part is another one, by the view that the part is.
_PARTS = {"select_scatter": "aten.select.int", "slice_scatter": SLICE}
_TWO_ARGUMENTS = frozenset(("add", "sub"))  # a third, alpha, is another signature of a method
# Gradients, element by element, of one kernel with the overload that takes `grad_input`.
_GRADIENTS = frozenset(
    """elu_backward gelu_backward hardsigmoid_backward hardtanh_backward leaky_relu_backward
    sigmoid_backward silu_backward softplus_backward tanh_backward threshold_backward""".split()
)
# A row is summed before it is written, and no row reads another: so it is along the last axis on
# the CPU. Other kernels are not known to.
_ROWS = {"_softmax_backward_data": "grad_input", "_log_softmax_backward_data": "out"}


def method_of(operation: Operation) -> str:
    """Return the operator's name if it has a method in place, else ""."""
    name = _name(operation)
    plain = name not in _TWO_ARGUMENTS or len(operation.args) == 2
    return name if name in METHODS and plain else ""


def part_of(operation: Operation) -> str:
    """Return the view of the part that an operator replaces in a copy of a tensor, else ""."""
    return _PARTS.get(_name(operation), "")


def gradient_form(graph: Graph, operation: Operation) -> tuple[str, str] | None:
    """Return the target and the keyword that put a gradient over the incoming one, if there are."""
    name = _name(operation)
    if name in _GRADIENTS:
        return f"aten.{name}.grad_input", "grad_input"
    if name in _ROWS and _along_rows_on_cpu(graph, operation):
        return f"aten.{name}.out", _ROWS[name]
    return None


def _name(operation: Operation) -> str:
    """Return the name of an operator of ATen that returns one new tensor, else ""."""
    namespace, name, *overload = operation.target.split(".")
    plain = namespace == "aten" and overload != ["out"] and operation.single
    return name if plain else ""


def _along_rows_on_cpu(graph: Graph, operation: Operation) -> bool:
    gradient, axis = operation.args[0], operation.args[2]
    if not isinstance(gradient, Ref):
        return False
    tensor = graph.tensors[gradient.name]
    return tensor.device == "cpu" and axis in (-1, len(tensor.shape) - 1)
