"""Which call of a module a node belongs to, where forward calls it several times.

A layer that is run over and over, as in ALBERT or in a loop that refines, is as many layers to a
plan: `cell@0`, `cell@1`, …. Traces do not say where one call ends and the next begins. A call goes
on until an operation runs outside of the module, or the one that it began with comes again. What a
module's forward itself does over and over is told by its loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch

from remat_gen.capture.fx import metadata
from remat_gen.capture.fx.loops import Turn, comes_again, turns_of_loops
from remat_gen.ir.paths import at_turn

FEWEST = 3  # calls: the first and the last are unlike the others in backward
LEAST = 6  # operations of a call


def tell_turns(
    forward: Iterable[torch.fx.Node],
    backward: Iterable[torch.fx.Node],
    called: Mapping[str, int],
) -> None:
    """Write the module's path into each node's meta, with the call's number where it has several.

    Or that of the turn of a loop in its forward. Only of the outermost that has: what it calls goes
    with it. `called` is how often each module was, in a step that may run some of it again for
    backward: a module that loops begins no call.
    """
    nodes, calls = list(forward), _Calls(called)
    for node in nodes:
        calls.see(node)
    turns = calls.told()
    for node, turn in turns_of_loops(nodes, turns.keys()).items():
        if node not in turns or not f"{turn.path}.".startswith(f"{turns[node].path}."):
            turns[node] = turn
    by_autograd_node = {node.meta.get("seq_nr"): turns.get(node) for node in nodes}
    for node in nodes:
        _tell(node, turns.get(node))
    for node in backward:
        _tell(node, by_autograd_node.get(node.meta.get("seq_nr")))


def _tell(node: torch.fx.Node, turn: Turn | None) -> None:
    if turn and turn.path in ("", *metadata.module_paths(node)):
        path = metadata.module_path(node)
        node.meta[metadata.MODULE] = at_turn(path, turn.path, turn.number)


@dataclass(slots=True)
class _Calls:
    """The calls of each module so far: how many, how many operations, and how the last began."""

    called: Mapping[str, int]
    turns: dict[torch.fx.Node, dict[str, int]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    operations: dict[str, int] = field(default_factory=dict)
    begun: dict[str, torch.fx.Node] = field(default_factory=dict)
    owners: set[str] = field(default_factory=set)  # of modules that run operations
    inside: list[str] = field(default_factory=list)

    def see(self, node: torch.fx.Node) -> None:
        """Go on to the next operation of forward."""
        paths = metadata.module_paths(node)
        for path in paths:
            if path not in self.inside or comes_again(self.begun[path], node):
                self.counts[path] = self.counts.get(path, 0) + 1
                self.begun[path] = node
            self.operations[path] = self.operations.get(path, 0) + 1
        self.owners.update(paths[:-1])
        self.inside = paths
        self.turns[node] = {path: self.counts[path] - 1 for path in paths}

    def told(self) -> dict[torch.fx.Node, Turn]:
        """Return the call of each node: of the outermost module whose calls are layers."""
        repeated, found = self._repeated(), {}
        for node, turns in self.turns.items():
            path = next((path for path in metadata.module_paths(node) if path in repeated), None)
            if path is not None:
                found[node] = Turn(path, turns[path])
        return found

    def _repeated(self) -> set[str]:
        """Return the modules whose calls are layers: made of others, and of some operations."""
        return {
            path
            for path in self.owners
            if (count := self.counts[path]) >= FEWEST
            and self.operations[path] >= LEAST * count
            and self.called.get(path, 1) % count == 0
        }
