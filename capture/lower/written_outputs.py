"""Outputs that look at a buffer or argument which forward writes: eager's share its memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from remat_gen.capture.lower.tensors import TensorTable
from remat_gen.ir import graph as ir
from remat_gen.ir.errors import TraceError

_RESHAPES = ("aten.view.default", "aten._unsafe_view.default")


@dataclass(frozen=True, slots=True)
class WrittenOutputs:
    """Finds such outputs in a trace, where they look at the copy that is written back.

    `written` has what is written back, by the tensor of the buffer or argument.
    """

    table: TensorTable
    views: list[ir.View]  # gets those of the buffer itself
    written: Mapping[str, str]

    def itself(self, output: ir.Output, place: int) -> ir.Output:
        """Return an output that looks at the buffer, as eager's does, and not at the copy.

        Raises:
            TraceError: it is a part that was written by itself: of the buffer there is no view.
        """
        if output.tensor is None or self._storage(output.tensor).kind.outside:
            return output
        made = {view.tensor: view for view in self.views}
        found = self._copies(made)
        chain: list[ir.View] = []
        name = output.tensor
        while name not in found and name in made:
            chain.append(made[name])
            name = made[name].base
        if name not in found:
            raise TraceError(
                f"output {place} of forward is a view of a buffer or argument that forward writes: "
                "return the buffer or argument itself, or a clone() of the view"
            )
        target = found[name]
        tensor = target if name == self.written[target] else self._shaped(target, made, name)
        for view in reversed(chain):
            tensor = self._again(view, tensor)
        return ir.Output(tensor, None, None, False)

    def _copies(self, made: Mapping[str, ir.View]) -> dict[str, str]:
        """Return whose copies tensors are: what is written back, and what that is a reshape of."""
        found = {}
        for target, name in self.written.items():
            found[name] = target
            while name in made and made[name].target in _RESHAPES:
                name = made[name].base
                found.setdefault(name, target)
        return found

    def _shaped(self, target: str, made: Mapping[str, ir.View], like: str) -> str:
        """Make a view of a buffer in the shape that it was written in."""
        layout = self.table.layouts.get(like)
        shape = layout.shape if layout else self.table.tensors[like].shape
        view = made[self.written[target]]
        view = replace(view, tensor=like, args=(ir.Ref(view.base), shape), kwargs=())
        return self._again(view, target)

    def _again(self, view: ir.View, base: str) -> str:
        """Make a view of another tensor, which is shaped as the one that it was made of."""
        tensor, old = f"{base}:{view.tensor}", self.table.tensors[view.tensor]
        if tensor in self.table.tensors:
            return tensor
        storage = self._storage(base).name
        self.table.tensors[tensor] = replace(old, name=tensor, storage=storage)
        if view.tensor in self.table.layouts:
            self.table.layouts[tensor] = self.table.layouts[view.tensor]
        args = tuple(ir.Ref(base) if a == ir.Ref(view.base) else a for a in view.args)
        self.views.append(replace(view, tensor=tensor, base=base, args=args))
        return tensor

    def _storage(self, tensor: str) -> ir.Storage:
        return self.table.stored[self.table.tensors[tensor].storage]
