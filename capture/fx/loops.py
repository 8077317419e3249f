"""Which turn of a loop in forward a node belongs to, where most turns do the same.

A recurrence that is written out (`for t in range(x.shape[1])`) is as many layers to a plan as it
has turns. Traces do not say where one ends and the next begins: the lines of nodes do, which go
from one statement of the loop to the next, and back to the first.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TypeAlias

import torch

from remat_gen.capture.fx import metadata

_FEWEST = 4  # turns: some may be unlike the others, the first ones mostly
_LEAST = 6  # operations of a turn
LONG = 100  # operations of a loop: one of fewer is best planned with what is around it

Turns: TypeAlias = list[list[torch.fx.Node]]
_Loops: TypeAlias = tuple[tuple[object, int], ...]  # the outermost first, with a statement of each


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of the loops in the forward of the module at `path`."""

    path: str
    number: int


def turns_of_loops(
    forward: Sequence[torch.fx.Node], told: Collection[torch.fx.Node]
) -> dict[torch.fx.Node, Turn]:
    """Return the turn of each node that is in one.

    A loop over a module's calls is left out, where most of its nodes are `told` by these.
    """
    found: dict[torch.fx.Node, Turn] = {}
    counts: dict[str, int] = {}
    around = functools.cache(_loops_around)  # many nodes are made in the same frames
    placed = [(n, around(metadata.frames_of(n))) for n in forward if n.stack_trace]
    for turns in _regular_loops(placed, 0):
        nodes = [node for turn in turns for node in turn]
        path = _owner([metadata.module_paths(node) for node in nodes])
        if len(nodes) < LONG or 2 * sum(node in told for node in nodes) > len(nodes):
            continue
        for number, turn in enumerate(turns, start=counts.get(path, 0)):
            found |= dict.fromkeys(turn, Turn(path, number))
        counts[path] = counts.get(path, 0) + len(turns)
    return found


def _owner(within: Sequence[Sequence[str]]) -> str:
    """Return the innermost of the modules that all nodes are in, "" for the model."""
    shared = zip(*within, strict=False)
    return next((paths[0] for paths in reversed([*shared]) if len({*paths}) == 1), "")


def comes_again(first: torch.fx.Node, node: torch.fx.Node) -> bool:
    """Tell whether a node is what a turn or a call began with, of another run of the line."""
    if first.target != node.target or metadata.origin(first) == metadata.origin(node):
        return False
    return _line_of(first) == _line_of(node)


def _line_of(node: torch.fx.Node) -> object:
    """Return where a node stands: its modules, its lines, and the call there that it is part of."""
    call = metadata.without_number(metadata.origin(node))
    return metadata.module_paths(node), node.stack_trace, call


def _regular_loops(nodes: Sequence[tuple[torch.fx.Node, _Loops]], level: int) -> Iterator[Turns]:
    """Yield the turns of the outermost loops that do the same in most, within `level` others."""
    for loop, group in groupby(nodes, lambda found: found[1][level][0] if found[1][level:] else ()):
        turns = [*_turns(list(group), level)] if loop else []
        plain = [[node for node, _ in turn] for turn in turns]
        if _is_regular(plain):
            yield plain
        else:
            for turn in turns:
                yield from _regular_loops(turn, level + 1)


def _turns(
    nodes: Sequence[tuple[torch.fx.Node, _Loops]], level: int
) -> Iterator[list[tuple[torch.fx.Node, _Loops]]]:
    """Yield a loop's nodes turn by turn: in each its statements come in order."""
    alone = len({loops[level][1] for _, loops in nodes}) == 1
    first = 0
    for at, (before, now) in enumerate(pairwise(nodes), start=1):
        back = now[1][level][1] < before[1][level][1]
        if comes_again(nodes[first][0], now[0]) if alone else back:
            yield [*nodes[first:at]]
            first = at
    yield [*nodes[first:]]


def _is_regular(turns: Turns) -> bool:
    """Tell whether half of the turns and more do the same, and enough."""
    done = Counter(
        tuple((node.target, *metadata.module_paths(node)) for node in turn) for turn in turns
    )
    commonest, count = done.most_common(1)[0] if done else ((), 0)
    return len(turns) >= _FEWEST and 2 * count >= len(turns) and len(commonest) >= _LEAST


def _loops_around(frames: tuple[tuple[str, int], ...]) -> _Loops:
    found = []
    for depth, (file, line) in enumerate(frames):
        for loop in _loops_of("".join(linecache.getlines(file))):
            if (statement := loop.statement_at(line)) is not None:
                found.append(((frames[:depth], file, loop), statement))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Loop:
    """The lines of a loop's statements, first and last; `others` are functions made within."""

    statements: tuple[tuple[int, int], ...]
    others: tuple[tuple[int, int], ...]

    def statement_at(self, line: int) -> int | None:
        """Return which statement a line is in, None outside of the loop."""
        if any(first <= line <= last for first, last in self.others):
            return None
        within = (i for i, (first, last) in enumerate(self.statements) if first <= line <= last)
        return next(within, None)


@functools.lru_cache(maxsize=64)
def _loops_of(source: str) -> tuple[_Loop, ...]:
    """Return all loops in a file, each after those it is in."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a cell of a notebook with commands in it
        return ()
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While)]
    return tuple(
        _Loop(
            tuple((s.lineno, s.end_lineno or s.lineno) for s in loop.body),
            tuple(
                (inner.lineno, inner.end_lineno or inner.lineno)
                for inner in ast.walk(loop)
                if isinstance(inner, ast.FunctionDef)
            ),
        )
        for loop in loops
    )
