"""Keep a committed schedule where it is about as good as the best that is found.

People review the diff of a generated file: a schedule that is 0.1 % quicker, and another one in
every layer, is not worth it. The problem may be the same, and its costs or its budget others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from remat_gen.solver.contest.contest import Contest, Entry
from remat_gen.solver.contest.subject import Subject
from remat_gen.solver.law.liveness import prune
from remat_gen.solver.law.problem import Held, Operation, Problem, Value
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.replay import IllegalScheduleError
from remat_gen.solver.law.search_types import Effort
from remat_gen.solver.stable.committed_schedule import NAME, Committed
from remat_gen.solver.stable.layer_transfer import Source, Transfer
from remat_gen.solver.stages.exact_search import search

TOLERANCE = {Effort.QUICK: 5e-3, Effort.NORMAL: 5e-3, Effort.THOROUGH: 0.0}
"""By what part of a step's time a kept schedule may be slower: measured costs are not as exact."""
RELATED = 1 / 2  # of the operations of forward must be old ones: else it is another model
TEMPLATES = 4  # kinds of schedules tried for new layers
WIDENED = (0, 1, 2, 4)  # layers that are decided again


@dataclass(frozen=True)
class WarmStart:
    """A committed schedule, as the contest of a budget on `subject` sees it.

    Without `searching` nothing is decided again: a strategy's schedule stays that strategy's.
    """

    subject: Subject
    committed: Committed
    effort: Effort
    searching: bool

    @cached_property
    def transfer(self) -> Transfer:
        cuts = [start for start, _ in self.subject.block_ranges()]
        return Transfer(self.subject.whole, self.committed, cuts)

    @property
    def related(self) -> bool:
        """Tell whether the schedule is of this model, or of one that it has grown from."""
        total = self.subject.whole.forward_count
        return self.subject.chain is not None and len(self.transfer.fresh) <= RELATED * total

    def unchanged(self, entry: Entry) -> bool:
        """Tell whether an entry's schedule is the committed one."""
        if not self.related or not self.transfer.same:
            return False
        committed = self._judged(self.transfer.committed_program())
        return committed is not None and committed.schedule == entry.schedule

    def kept(self, contest: Contest) -> Entry | None:
        """Return what is kept instead of the contest's best, if anything is."""
        if not self.related:
            return None
        best_us = contest.best.replay.time_us if contest.best is not None else math.inf
        for program in self._programs(contest.budget_units):
            entry = self._judged(program)
            fits = entry is not None and entry.replay.peak_bytes <= contest.budget_bytes
            if entry and fits and entry.replay.time_us <= best_us * (1 + TOLERANCE[self.effort]):
                return entry
        return None

    def _judged(self, program: Program) -> Entry | None:
        """Return a program's entry; None where what is new cannot run in the old order."""
        try:
            return Entry(NAME, program, *self.subject.judge(program))
        except IllegalScheduleError:
            return None

    def _programs(self, budget: int) -> Iterator[Program]:
        """Yield what may be kept, that of the fewest changes first.

        That is every layer as it was, new ones as one made of the same; then the best runs of what
        is new; then some layers beside it decided again as well, or those that stand last.
        """
        if self.transfer.same:
            yield self.transfer.committed_program()
        yield from (self._pruned(self.transfer.runs(source)) for source in self._sources())
        if not self.searching:
            return
        before = self._pruned(self.transfer.runs(self.transfer.matched))
        if self._judged(before) is None:
            return
        decided = before.flat()
        for free in self._widened():
            left, original = frozen(self.subject.whole, decided, free)
            found = search(left, budget, Effort.QUICK)
            if found.runs is not None:
                yield self._pruned(tuple(original[p] for p in found.runs))

    def _pruned(self, runs: tuple[int, ...]) -> Program:
        return prune(self.subject.whole, self.transfer.program(runs))

    def _sources(self) -> Iterator[Source]:
        """Yield from where each layer takes its re-runs: new ones from others made of the same."""
        pairs, kinds = self.transfer.matched, self.transfer.new_kinds
        alike = {layer: self._templates(layer) for layer in kinds if layer not in pairs}
        for number in range(max(map(len, alike.values()), default=1)):
            new = {layer: old[min(number, len(old) - 1)] for layer, old in alike.items() if old}
            yield {**pairs, **new}

    def _templates(self, layer: str) -> list[str]:
        """Return old layers made of the same as a new one: one for each schedule, by frequency."""
        kind = self.transfer.new_kinds[layer]
        alike = [old for old, other in self.transfer.old_kinds.items() if other == kind]
        schedules = {old: self.transfer.course(old) for old in alike}
        often = Counter(schedules.values())
        firsts = {schedule: old for old, schedule in reversed(schedules.items())}
        ordered = sorted(firsts, key=lambda schedule: -often[schedule])
        return [firsts[schedule] for schedule in ordered[:TEMPLATES]]

    def _widened(self) -> Iterator[set[int]]:
        """Yield larger and larger sets of operations that are decided again."""
        fresh, inside = set(self.transfer.fresh), self._by_layer()
        layers = list(self.transfer.new_kinds)
        changed = [i for i, layer in enumerate(layers) if fresh & inside[layer]]
        fresh.update(*(inside[layers[i]] for i in changed))
        around = changed or [len(layers)]
        near = sorted(range(len(layers)), key=lambda i: (min(abs(i - c) for c in around), -i))
        others = [layers[i] for i in near if i not in changed]
        for count in WIDENED:
            more = [inside[layer] for layer in others[:count]]
            if count < max(len(others), 1) and (fresh or more):
                yield fresh.union(*more)

    def _by_layer(self) -> dict[str, set[int]]:
        """Return the operations of each layer, of forward and of backward."""
        found: dict[str, set[int]] = {}
        for p, name in enumerate(self.transfer.names):
            found.setdefault(self.transfer.layer_of(name), set()).add(p)
        return found


def frozen(
    problem: Problem, runs: Sequence[int], free: Collection[int]
) -> tuple[Problem, tuple[int, ...]]:
    """Decide `runs` but for operations in `free`; return as well which each operation then is.

    A decided re-run is an operation of its own in backward, whose results, values of their own, are
    what backward reads from there on. Any search finds the best re-runs of the others beside it.
    Forward ones of these may run again, and their re-runs are left out; backward ones may move.
    """
    total = problem.forward_count
    operations = [
        replace(operation, rerunnable=operation.rerunnable and p in free)
        for p, operation in enumerate(problem.operations[:total])
    ]
    undecided = {v for p in free for v in problem.operations[p].outputs}
    values = [
        replace(value, recompute=value.recompute and v in undecided)
        for v, value in enumerate(problem.values)
    ]
    original = list(range(total))
    newest: dict[int, int] = {}
    for p in runs[total:]:
        operation = problem.operations[p]
        if operation.backward or p not in free:
            decided = _decided(operation, newest, values, len(original))
            operations.append(replace(decided, ordered=operation.ordered or p not in free))
            newest.update(zip(operation.outputs, decided.outputs, strict=True))
            original.append(p)
    left = replace(problem, operations=tuple(operations), values=tuple(values))
    return left, tuple(original)


def _decided(
    operation: Operation, newest: dict[int, int], values: list[Value], number: int
) -> Operation:
    """Return a run of backward as an operation; a re-run makes values of its own."""
    outputs = operation.outputs
    if not operation.backward:
        outputs = tuple(range(len(values), len(values) + len(operation.outputs)))
        values += [
            replace(values[v], name=f"{values[v].name} {number}", held=Held.FREE, recompute=False)
            for v in operation.outputs
        ]
    return replace(
        operation,
        name=f"{operation.name} {number}",
        inputs=tuple(newest.get(v, v) for v in operation.inputs),
        outputs=outputs,
        backward=True,
        rerunnable=False,
        over=None if operation.over is None else newest.get(operation.over, operation.over),
    )
