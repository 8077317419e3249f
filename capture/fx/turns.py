"""Which call of a module a node belongs to, where forward calls it several times.

A layer that is run over and over, as in ALBERT or in a loop that refines, is as many layers to a
plan: `cell@0`, `cell@1`, …. Traces do not say where one call ends and the next begins. A call goes
on until an operation runs outside of the module, or the one that it began with comes again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch

from remat_gen.capture.fx import metadata
from remat_gen.ir.paths import at_turn

FEWEST = 3  # calls: the first and the last are unlike the others in backward
LEAST = 6  # operations of a call


def tell_turns(
    forward: Iterable[torch.fx.Node],
    backward: Iterable[torch.fx.Node],
    called: Mapping[str, int],
) -> None:
    """Write the module's path into each node's meta, with the call's number where it has several.

    Only of the outermost module that has: what it calls goes with it. `called` is how often each
    was, in a step that may run some of it again for backward: a module that loops begins no call.
    """
    calls = _Calls(called)
    for node in forward:
        calls.see(node)
    repeated = calls.repeated()
    for node in calls.turns:
        _tell(node, calls.turns[node], repeated)
    by_autograd_node = {node.meta.get("seq_nr"): turns for node, turns in calls.turns.items()}
    for node in backward:
        _tell(node, by_autograd_node.get(node.meta.get("seq_nr"), {}), repeated)


def _tell(node: torch.fx.Node, turns: dict[str, int], repeated: set[str]) -> None:
    path = next((path for path in metadata.module_paths(node) if path in repeated), "")
    if path in turns:
        node.meta[metadata.MODULE] = at_turn(metadata.module_path(node), path, turns[path])


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
            if path not in self.inside or _comes_again(self.begun[path], node):
                self.counts[path] = self.counts.get(path, 0) + 1
                self.begun[path] = node
            self.operations[path] = self.operations.get(path, 0) + 1
        self.owners.update(paths[:-1])
        self.inside = paths
        self.turns[node] = {path: self.counts[path] - 1 for path in paths}

    def repeated(self) -> set[str]:
        """Return the modules whose calls are layers: made of others, and of some operations."""
        return {
            path
            for path in self.owners
            if (count := self.counts[path]) >= FEWEST
            and self.operations[path] >= LEAST * count
            and self.called.get(path, 1) % count == 0
        }


def _comes_again(first: torch.fx.Node, node: torch.fx.Node) -> bool:
    """Tell whether a node is what a call began with, of another run of the user's line."""
    if first.target != node.target or metadata.origin(first) == metadata.origin(node):
        return False
    return _place(first) == _place(node)


def _place(node: torch.fx.Node) -> object:
    """Return where a node stands: its modules, its lines, and the call there that it is part of."""
    call = metadata.without_number(metadata.origin(node))
    return metadata.module_paths(node), node.stack_trace, call
