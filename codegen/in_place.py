"""Which operations write their result over an input that dies with them.

An operation may take over the memory of an input when that is freed before anything else runs, when
the input is all of its storage, alike in shape, strides and type, and when its maker surely made
new memory. The bits are the same; what is saved is the time to fetch and to fill fresh pages.

The prediction stays exact: the operation that sets the peak, and those alike, keep to new memory.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from remat_gen.ir.graph import Graph, Operation, Ref, refs_in
from remat_gen.solver.problem import Held, Problem
from remat_gen.solver.replay import replay
from remat_gen.solver.schedule import Schedule

# Methods `x.NAME_(…)` that compute what `torch.NAME(x, …)` does, element by element.
_IN_PLACE = frozenset(
    """abs add clamp clamp_max clamp_min cos div exp masked_fill mul neg relu rsqrt sigmoid sin
    sqrt sub tanh""".split()
)
_TWO_ARGUMENTS = frozenset(("add", "sub"))  # a third, alpha, is another signature of a method
_COMMUTE = frozenset(("add", "mul"))
# Makers whose results are new memory on every path; others may hand an input on (dropout of 0).
_FRESH = _IN_PLACE | frozenset(
    """addmm baddbmm bmm cat convolution convolution_backward embedding gelu gelu_backward mm
    _native_batch_norm_legit_functional native_batch_norm native_batch_norm_backward
    native_group_norm native_group_norm_backward native_layer_norm native_layer_norm_backward silu
    silu_backward sigmoid_backward _softmax _softmax_backward_data stack tanh_backward
    threshold_backward""".split()
)
_FLOATS = frozenset(("float32", "float64", "bfloat16", "float16"))


def in_place_name(operation: Operation) -> str:
    """Return the operator's name if it has a form in place, else ""."""
    namespace, name, *overload = operation.target.split(".")
    known = namespace == "aten" and overload != ["out"] and name in _IN_PLACE
    plain = name not in _TWO_ARGUMENTS or len(operation.args) == 2
    return name if known and plain and operation.single else ""


@dataclass(slots=True)
class InPlace:
    """Decides for the operations of a schedule."""

    graph: Graph
    problem: Problem
    schedule: Schedule
    _peaks: frozenset[str] = field(init=False)
    _makers: dict[str, Operation] = field(init=False)
    _leaving: frozenset[str] = field(init=False)  # outputs and gradients: no views of others

    def __post_init__(self) -> None:
        operations = self.problem.operations
        replays = [replay(self.problem, self.schedule, keep_gradients=k) for k in (False, True)]
        self._peaks = frozenset(operations[r.peak_at].signature for r in replays)
        self._leaving = frozenset(v.name for v in self.problem.values if v.held is not Held.FREE)
        self._makers = {
            storage: operation
            for operation in self.graph.operations
            for storage in self.graph.writes(operation)
        }

    def argument(self, p: int, dying: Set[int]) -> int | None:
        """Return which argument of operation p its result is written over, if one is.

        `dying` are the values that are freed before any other operation runs.
        """
        operation = self.graph.operations[p]
        name = in_place_name(operation)
        if not name or self.problem.operations[p].signature in self._peaks:
            return None
        names = {self.problem.values[v].name for v in dying if self._is_free(v)}
        for position in range(2 if self._commutes(operation, name) else 1):
            if self._fits(operation, position, names):
                return position
        return None

    def _commutes(self, operation: Operation, name: str) -> bool:
        """Tell whether the order does not matter: it does where one operand is converted first."""
        first, result = operation.args[0], operation.outputs[0]
        if name not in _COMMUTE or operation.kwargs or result is None:
            return False
        tensors = self.graph.tensors
        return isinstance(first, Ref) and (
            (tensors[first.name].shape, tensors[first.name].dtype)
            == (tensors[result].shape, tensors[result].dtype)
        )

    def _is_free(self, v: int) -> bool:
        return self.problem.values[v].held is Held.FREE

    def _fits(self, operation: Operation, position: int, dying: Set[str]) -> bool:
        """Tell whether an argument dies, is new memory, and is laid out as the result."""
        taken, result = operation.args[position], operation.outputs[0]
        if not isinstance(taken, Ref) or result is None:
            return False
        storage = self.graph.storage_of(taken.name)
        leaves = self.graph.storage_of(result).name in self._leaving
        if leaves or storage.name not in dying or not self._is_fresh(storage.name):
            return False
        values = tuple(value for _, value in operation.kwargs)
        others = (*operation.args[:position], *operation.args[position + 1 :], *values)
        shared = any(self.graph.storage_of(r).name == storage.name for r in refs_in(others))
        return not shared and self._alike(taken.name, result)

    def _is_fresh(self, storage: str) -> bool:
        maker = self._makers.get(storage)
        if maker is None or not maker.target.startswith("aten."):
            return False
        return maker.target.split(".")[1] in _FRESH

    def _alike(self, taken: str, result: str) -> bool:
        tensors, layouts = self.graph.tensors, self.graph.layouts
        x, y = tensors[taken], tensors[result]
        sizes = self.graph.storages[x.storage].nbytes, self.graph.storages[y.storage].nbytes
        return (
            (x.shape, x.stride, x.offset, x.dtype) == (y.shape, y.stride, 0, y.dtype)
            and x.dtype in _FLOATS
            and sizes[0] == sizes[1]
            and layouts.get(taken) == layouts.get(result)
        )
