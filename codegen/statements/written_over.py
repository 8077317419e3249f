"""Which inputs of an operation its result may be written over, whatever the schedule.

The input is all of its storage and laid out as the result; its maker surely made new memory; no
other argument shares it; neither leaves the step. The bits are then the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Set
from dataclasses import dataclass, field

from remat_gen.codegen.expressions.in_place_forms import METHODS, gradient_form, method_of, part_of
from remat_gen.ir.graph import Graph, Operation, Phase, Ref, refs_in

_COMMUTE = frozenset(("add", "mul"))
# Makers whose results are new memory on every path; others may hand an input on (dropout of 0).
_FRESH = METHODS | frozenset(
    """addmm avg_pool2d avg_pool2d_backward baddbmm _batch_norm_with_update_functional bmm cat
    clone convolution convolution_backward elu_backward embedding empty empty_like erf full
    full_like _fused_rms_norm _fused_rms_norm_backward gelu gelu_backward hardsigmoid_backward
    hardswish hardswish_backward hardtanh_backward leaky_relu_backward log _log_softmax
    _log_softmax_backward_data max_pool2d_with_indices_backward mean mm native_batch_norm
    native_batch_norm_backward _native_batch_norm_legit_functional native_group_norm
    native_group_norm_backward native_layer_norm native_layer_norm_backward new_empty
    new_empty_strided new_full new_ones new_zeros nll_loss_backward ones ones_like pow
    _scaled_dot_product_flash_attention_for_cpu_backward select_backward select_scatter
    sigmoid_backward silu silu_backward slice_backward slice_scatter _softmax
    _softmax_backward_data softplus_backward stack sum tanh_backward threshold_backward
    upsample_bilinear2d_backward upsample_nearest2d_backward where zeros zeros_like""".split()
)
_FLOATS = frozenset(("float32", "float64", "bfloat16", "float16"))


def written_over(graph: Graph, leaving: Container[str]) -> dict[str, str]:
    """Return by backward operation the storage that its result is written over.

    Nothing else reads that storage, so that it dies there in any schedule. `leaving` are the
    storages that somebody else holds.
    """
    fits = Fits(graph, leaving)
    readers = Counter(s for operation in graph.operations for s in graph.reads(operation))
    found = {}
    for operation in graph.operations:
        if operation.phase is Phase.BACKWARD:
            own = {s for s in graph.reads(operation) if readers[s] == 1}
            position = fits.position(operation, own)
            if position is not None:
                found[operation.name] = fits.storage(operation, position)
    return found


@dataclass(slots=True)
class Fits:
    """Decides by the graph alone; `leaving` are outputs and gradients: no views of others."""

    graph: Graph
    leaving: Container[str]
    _makers: dict[str, Operation] = field(init=False)

    def __post_init__(self) -> None:
        self._makers = {
            storage: operation
            for operation in self.graph.operations
            for storage in self.graph.writes(operation)
        }

    def position(self, operation: Operation, dying: Set[str]) -> int | None:
        """Return which argument the result may be written over, of storages that die with it."""
        forms = method_of(operation), part_of(operation), gradient_form(self.graph, operation)
        if not any(forms):
            return None
        for position in range(2 if self._commutes(operation) else 1):
            if self._fits(operation, position, dying):
                return position
        return None

    def storage(self, operation: Operation, position: int) -> str:
        """Return the storage of an argument that is one tensor."""
        (tensor,) = refs_in(operation.args[position])
        return self.graph.storage_of(tensor).name

    def _commutes(self, operation: Operation) -> bool:
        """Tell whether the order does not matter: it does where one operand is converted first.

        And where a single row may be laid out otherwise: the result is laid out like the first.
        """
        first, result = operation.args[0], operation.outputs[0]
        if method_of(operation) not in _COMMUTE or operation.kwargs or result is None:
            return False
        if not isinstance(first, Ref):
            return False
        taken, made = self.graph.tensors[first.name], self.graph.tensors[result]
        alike = (taken.shape, taken.dtype) == (made.shape, made.dtype)
        return alike and not self.graph.lies_otherwise_alone(made)

    def _fits(self, operation: Operation, position: int, dying: Set[str]) -> bool:
        """Tell whether an argument dies, is new memory, and is laid out as the result."""
        taken, result = operation.args[position], operation.outputs[0]
        if not isinstance(taken, Ref) or result is None:
            return False
        storage, made = (self.graph.storage_of(t).name for t in (taken.name, result))
        leaves = storage in self.leaving or made in self.leaving
        if leaves or storage not in dying or not self._is_fresh(storage):
            return False
        others = (*operation.args[:position], *operation.args[position + 1 :], operation.kwargs)
        shared = any(self.graph.storage_of(r).name == storage for r in refs_in(others))
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
