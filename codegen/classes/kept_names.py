"""Attribute names of what blocks keep, for *roles*.

The third value of a class is the same role in all of its instances, and what one class keeps
another reads under the same name.
"""

from __future__ import annotations

import keyword
from dataclasses import dataclass, field

from remat_gen.capture.fx.metadata import plain_name
from remat_gen.codegen.classes.arrange import BlockClass
from remat_gen.codegen.classes.roles import Roles, kept_marks
from remat_gen.codegen.expressions.marks import find
from remat_gen.codegen.statements.free_names import HOST, free_name, kept_hint, turns_of
from remat_gen.ir.errors import EmitError
from remat_gen.ir.graph import Graph

_OF_BLOCKS = frozenset(
    "at backward borrowed came constant forward forward_only keeps parameters strides turns".split()
)


@dataclass(slots=True)
class KeptNames:
    """Attribute names of what blocks keep: one for all values that play the same role."""

    graph: Graph
    classes: tuple[BlockClass, ...]
    roles: Roles = field(default_factory=Roles)
    names: dict[str, str] = field(default_factory=dict)
    made_by: dict[str, str] = field(default_factory=dict)  # the kind of operation, by storage

    def __post_init__(self) -> None:
        for operation in self.graph.operations:
            kind = plain_name(operation.target.split(".")[1])
            for output in filter(None, operation.outputs[:1]):
                self.made_by.setdefault(self.graph.tensors[output].storage, kind)
        owners: dict[str, int] = {}
        for block_class in self.classes:
            for body in block_class.bodies:
                marks = kept_marks(body)
                owners.update((mark.name, mark.owner) for mark in marks)
                self.roles.add(marks)
            if not self.roles.unite(*block_class.bodies):
                raise EmitError(f"blocks like {block_class.body.block} differ")
        self._assign(owners)

    def _sent(self) -> set[str]:
        """Return the roles of what is sent to the host: their copies have names, too."""
        bodies = (body for c in self.classes for body in c.bodies)
        sent = (s for body in bodies for s in body.forward.statements if s.sent)
        return {self.roles.of(find(s.text)[0].name) for s in sent}

    def __getitem__(self, storage: str) -> str:
        return self.names[self.roles.of(storage)]

    def _assign(self, owners: dict[str, int]) -> None:
        members: dict[str, list[str]] = {}
        for name in owners:
            members.setdefault(self.roles.of(name), []).append(name)
        bodies = [body for c in self.classes for body in c.bodies]
        read = (m.name for b in bodies for m in kept_marks(b) if m.owner != b.block)
        handed_on = set(map(self.roles.of, read))
        taken: dict[int, set[str]] = {}
        sending = self._sent()
        turns = {b.block: turns_of(b, self.graph.layers) for b in bodies}
        # what other blocks read is named first: `x` is what layers hand on, `x_relu` their own
        for role, storages in sorted(members.items(), key=lambda found: found[0] not in handed_on):
            blocks = {owners[s] for s in storages}
            used = {*keyword.kwlist, *_OF_BLOCKS, *(length.name for length in self.graph.lengths)}
            used.update(name for c in self.classes for name in c.numbers)
            used = used.union(*(taken.get(b, set()) for b in blocks))
            first, hint = storages[0], kept_hint(self.graph, storages[-1])
            turn, kind = turns[owners[first]], self.made_by.get(first, "")
            sent = role in sending
            used.update(n.removesuffix(HOST) for n in tuple(used) if sent and n.endswith(HOST))
            name = free_name(self.graph.layers, hint, first, used, turn, kind)
            self.names[role] = name
            for block in blocks:
                taken.setdefault(block, set()).update((name, name + HOST) if sent else (name,))
