"""Carry a committed schedule over to another version of its model.

Each layer takes its re-runs from an old one; what has no counterpart runs once. Frees follow from
the runs, so that any choice of re-runs can run; whether it fits is for the replay to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, cached_property

from remat_gen.solver.blocks.block_chain import Chain, build_chain
from remat_gen.solver.blocks.simple_programs import in_segments
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.program import Program
from remat_gen.solver.stable.committed_schedule import Committed
from remat_gen.solver.stable.layer_kinds import Kind, kinds_of, matched

Source = Mapping[str, str]
"""The old layer that each new one takes its re-runs from; those that take none are not in it."""


class Transfer:
    """From a committed schedule to `problem`; `cuts` are those of the problem's own blocks."""

    def __init__(self, problem: Problem, committed: Committed, cuts: Sequence[int]) -> None:
        self.problem, self.committed, self.cuts = problem, committed, cuts
        self.names = [operation.name for operation in problem.operations]
        self.layer_of = cache(problem.layers.holding)  # by the name of an operation
        self.index = {name: p for p, name in enumerate(self.names)}
        self.reruns = committed.reruns()
        self.old_kinds: dict[str, Kind] = kinds_of(committed.names(), problem.layers)
        forward = self.names[: problem.forward_count]
        self.new_kinds: dict[str, Kind] = kinds_of(forward, problem.layers)
        starting = set(map(self.layer_of, committed.starts()))
        self.matched = matched(self.old_kinds, self.new_kinds, starting)

    @cached_property
    def fresh(self) -> tuple[int, ...]:
        """Return the operations of forward that the old version does not have."""
        renamer, old = _Renamer(self, self.matched), set(self.committed.names())
        return tuple(
            p
            for p in range(self.problem.forward_count)
            if not renamer.stays(self.layer_of(self.names[p]))
            or renamer.old(self.names[p]) not in old
        )

    def course(self, layer: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return the backward operations of an old layer in order, and what runs again before each.

        They go without its name, that two layers may be compared.
        """
        prefix = f"{layer}."
        return tuple(
            (anchor.removeprefix(prefix), tuple(name.removeprefix(prefix) for name in again))
            for anchor, again in self.reruns.items()
            if self.layer_of(anchor) == layer
        )

    @property
    def same(self) -> bool:
        """Tell whether both versions have the same operations."""
        old = {*self.committed.names(), *self.reruns}
        return len(old) == len(self.names) and old == set(self.names)

    def runs(self, source: Source) -> tuple[int, ...]:
        """Return all runs where each new layer takes its re-runs from the old one in `source`."""
        renamer = _Renamer(self, source)
        runs = list(range(self.problem.forward_count))
        for p in self._order(renamer):
            for again in self.reruns.get(renamer.old(self.names[p]), ()):
                q = self.index.get(renamer.new(again, self.names[p]), p)
                runs += [q] if self.problem.operations[q].rerunnable else []
            runs.append(p)
        return tuple(runs)

    def _order(self, renamer: _Renamer) -> list[int]:
        """Return the backward operations: those that stay in the old order, new ones behind them.

        A new one follows what it is traced behind; those of a layer are in its source's order. The
        replay tells whether that can run.
        """
        place = {name: i for i, name in enumerate(self.reruns)}
        traced = range(self.problem.forward_count, len(self.names))
        at = {p: place[old] for p in traced if (old := renamer.old(self.names[p])) in place}
        stays = {p for p in at if renamer.stays(self.layer_of(self.names[p]))}
        slots = self._in_old_order([p for p in at if p not in stays], at)
        behind: dict[int, list[int]] = {-1: []}
        last = -1
        for p in traced:
            if p in stays:
                last, behind[p] = p, []
            else:
                behind[last].append(slots.get(p, p))
        ordered = [-1, *sorted(stays, key=at.__getitem__)]
        return [q for p in ordered for q in (p, *behind[p]) if q >= 0]

    def _in_old_order(self, slots: Sequence[int], at: Mapping[int, int]) -> dict[int, int]:
        """Return what stands in each slot when those of one layer are in the old order."""
        by_layer: dict[str, list[int]] = {}
        for p in slots:
            by_layer.setdefault(self.layer_of(self.names[p]), []).append(p)
        pairs = (zip(m, sorted(m, key=at.__getitem__), strict=True) for m in by_layer.values())
        return {slot: p for layer in pairs for slot, p in layer}

    def program(self, runs: Sequence[int]) -> Program:
        """Return runs in segments: blocks begin where they did, and where new layers begin."""
        return in_segments(self.problem, self._chain, runs)

    @cached_property
    def _chain(self) -> Chain:
        renamer = _Renamer(self, self.matched)
        starts = set(self.committed.starts())
        fresh = set(self.fresh)
        cuts = {
            p for p in range(self.problem.forward_count) if renamer.old(self.names[p]) in starts
        }
        cuts.update(c for c in self.cuts if c in fresh)
        cuts.update(p for p in fresh if p - 1 not in fresh)
        cuts.update(p + 1 for p in fresh if p + 1 not in fresh)
        inside = sorted(c for c in cuts if 0 < c < self.problem.forward_count)
        return build_chain(self.problem, tuple(inside))

    def committed_program(self) -> Program:
        """Return the program of the committed schedule as it is, of the same operations."""
        segments = (*self.committed.forward, *self.committed.backward)
        return Program(tuple(tuple(self.index[name] for name in one) for one in segments))


class _Renamer:
    """Old names of new operations, and new names of old ones as seen from a new layer."""

    def __init__(self, transfer: Transfer, source: Source) -> None:
        self.source, self.matched = source, transfer.matched
        self.layer_of = transfer.layer_of
        self.now = {old: new for new, old in transfer.matched.items()}
        self.old_layers, self.new_layers = list(transfer.old_kinds), list(transfer.new_kinds)

    def stays(self, layer: str) -> bool:
        """Tell whether a layer, or what is outside of all, has its own place in the old version."""
        if not layer:
            return True
        return layer in self.matched and self.matched[layer] == self.source.get(layer)

    def old(self, name: str) -> str:
        """Return the name of the operation that a new one takes its re-runs from, or ""."""
        layer = self.layer_of(name)
        if not layer:
            return name
        return f"{self.source[layer]}{name.removeprefix(layer)}" if layer in self.source else ""

    def new(self, again: str, anchor: str) -> str:
        """Return the name of what runs again before `anchor`, where `again` did in the old one."""
        layer = self.layer_of(again)
        if not layer:
            return again
        return f"{self._layer(layer, self.layer_of(anchor))}{again.removeprefix(layer)}"

    def _layer(self, layer: str, here: str) -> str:
        """Return the new layer that stands to `here` as `layer` stood to the source of `here`."""
        if self.stays(here):
            return self.now.get(layer, "")
        step = self.old_layers.index(layer) - self.old_layers.index(self.source[here])
        at = self.new_layers.index(here) + step
        return self.new_layers[at] if 0 <= at < len(self.new_layers) else ""
