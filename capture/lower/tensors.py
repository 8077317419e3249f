"""The tensors and storages of a trace, by name, and which of them an FX node stands for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from remat_gen.capture.fx.literals import argument
from remat_gen.capture.fx.nodes import position
from remat_gen.capture.fx.storages import Storages, is_getitem
from remat_gen.capture.fx.symbolic_sizes import Sizes
from remat_gen.ir import graph as ir
from remat_gen.ir.errors import TraceError
from remat_gen.ir.size import Layout, Size

_MADE = (ir.Kind.ACTIVATION, ir.Kind.GRADIENT)  # by an operation that is no view


@dataclass(slots=True)
class TensorTable:
    """Tensors by name; `names` has them by node and position among the node's results.

    `modules` has the module that made a storage, `geometry` the tensors that a view was made from,
    `layouts` the shapes and strides that vary with a length of the inputs. `lazy` are the views
    that are conjugated or negated when they are read.
    """

    sizes: Sizes | None = None
    names: dict[tuple[torch.fx.Node, int], str] = field(default_factory=dict)
    storage_names: dict[int, str] = field(default_factory=dict)
    tensors: dict[str, ir.Tensor] = field(default_factory=dict)
    stored: dict[str, ir.Storage] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)
    geometry: dict[str, tuple[str, ...]] = field(default_factory=dict)
    layouts: dict[str, Layout] = field(default_factory=dict)
    lazy: set[str] = field(default_factory=set)

    def add(
        self,
        node: torch.fx.Node,
        index: int,
        value: torch.Tensor,
        name: str,
        hint: str,
        kind: ir.Kind | None,
        nbytes: int | None = None,
    ) -> None:
        """Add a tensor, and with a `kind` its storage unless another tensor looks at it.

        `nbytes` where the fake storage does not tell how large the real one is.

        Raises:
            TraceError: an operation that is no view returns memory that has a name already.
        """
        key = Storages.key(value)
        if kind in _MADE and key in self.storage_names:
            raise TraceError(
                f"{name} looks at the memory of {self.storage_names[key]}, which its operator does "
                "not say: it cannot be planned"
            )
        if kind is not None and key not in self.storage_names:
            self.storage_names[key] = name
            size = int(value.untyped_storage().nbytes()) if nbytes is None else nbytes
            self.stored[name] = ir.Storage(name, size, kind)
        self.names[node, index] = name
        self.tensors[name] = ir.Tensor(
            name=name,
            storage=self.storage_names[key],
            shape=tuple(map(int, value.shape)),
            stride=tuple(map(int, value.stride())),
            offset=int(value.storage_offset()),
            dtype=str(value.dtype).removeprefix("torch."),
            device=str(value.device),
            hint=hint,
        )
        if value.is_conj() or value.is_neg():
            self.lazy.add(name)
        numbers = (*value.shape, *value.stride(), value.storage_offset())
        if any(isinstance(number, torch.SymInt) for number in numbers):
            self.layouts[name] = self._layout(value)

    def _layout(self, value: torch.Tensor) -> Layout:
        return Layout(
            tuple(map(self._number, value.shape)),
            tuple(map(self._number, value.stride())),
            self._number(value.storage_offset()),
        )

    def _number(self, value: int | torch.SymInt) -> Size | int:
        number = self.argument(value)
        assert isinstance(number, Size | int)
        return number

    def name(self, node: torch.fx.Node) -> str:
        """Return the name of the tensor that a node stands for."""
        if is_getitem(node):
            return self.names[node.all_input_nodes[0], position(node)]
        return self.names[node, 0]

    def argument(self, value: object) -> ir.Argument:
        """Translate an argument of an FX node."""
        return argument(value, self.name, self.sizes)

    def arguments(self, values: tuple[Any, ...]) -> tuple[ir.Argument, ...]:
        """Translate the arguments of an FX node."""
        return tuple(map(self.argument, values))

    def keywords(self, kwargs: dict[str, Any]) -> tuple[tuple[str, ir.Argument], ...]:
        """Translate the keyword arguments of an FX node, sorted."""
        return tuple((name, self.argument(value)) for name, value in sorted(kwargs.items()))

    def same_as_an_ancestor(self, base: str, name: str) -> str:
        """Return the tensor in a chain of views that a new one equals: `t().t()` is no view."""
        new = self.tensors[name]
        chain = (base, *self.geometry.get(base, ()))
        for ancestor in chain if name not in self.lazy else ():
            if ancestor in self.lazy:
                continue  # it looks the same and reads otherwise
            old = self.tensors[ancestor]
            alike = self.layouts.get(ancestor) == self.layouts.get(name)
            if alike and _looks(old) == _looks(new):
                return ancestor
        return ""


def _looks(tensor: ir.Tensor) -> tuple[object, ...]:
    return (tensor.storage, tensor.shape, tensor.stride, tensor.offset, tensor.dtype)
