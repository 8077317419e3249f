"""Which FX nodes look at the same storage: found by comparing storages, not by operator names."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field

import torch


def is_getitem(node: torch.fx.Node) -> bool:
    """Tell whether a node picks one of the results of another."""
    return node.target is operator.getitem


def tensors_of(node: torch.fx.Node) -> list[torch.Tensor]:
    """Return the tensors among a node's results."""
    value = node.meta.get("val")
    values = list(value) if isinstance(value, tuple | list) else [value]
    return [v for v in values if isinstance(v, torch.Tensor)]


def is_view(node: torch.fx.Node) -> bool:
    """Tell whether all that a node returns looks at the storage of one of its inputs."""
    if is_getitem(node) or node.op != "call_function":
        return is_getitem(node)
    made = {v.untyped_storage()._cdata for v in tensors_of(node)}
    read = {v.untyped_storage()._cdata for n in node.all_input_nodes for v in tensors_of(n)}
    return bool(made) and made <= read


@dataclass(slots=True)
class Storages:
    """The hints of storages, by identity of the storage in the trace."""

    hints: dict[int, str] = field(default_factory=dict)

    @staticmethod
    def key(value: torch.Tensor) -> int:
        """Return the identity of a tensor's storage."""
        identity: int = value.untyped_storage()._cdata
        return identity

    def name(self, node: torch.fx.Node, hints: tuple[str, ...]) -> None:
        """Remember what the results of a node are called."""
        value = node.meta.get("val")
        values = list(value) if isinstance(value, tuple | list) else [value]
        for tensor, hint in zip(values, hints, strict=True):
            if isinstance(tensor, torch.Tensor):
                self.hints.setdefault(self.key(tensor), hint)

    def hint(self, node: torch.fx.Node) -> str:
        """Return what the storage behind a node is called, or ""."""
        tensors = tensors_of(node)
        return self.hints.get(self.key(tensors[0]), "") if tensors else ""

    def hint_of_first_input(self, node: torch.fx.Node) -> str:
        """Return what the first tensor a node reads is called, or ""."""
        return next((self.hint(n) for n in node.all_input_nodes if self.hint(n)), "")
