"""What is solved: the problem that judges, and the views of it that searches have, in units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remat_gen.solver.blocks.block_chain import Chain
from remat_gen.solver.blocks.partition import partition
from remat_gen.solver.blocks.simple_programs import in_segments
from remat_gen.solver.law.bare_graph import BareGraph
from remat_gen.solver.law.eager_memory import of_eager
from remat_gen.solver.law.liveness import to_schedule
from remat_gen.solver.law.pins import forced, honoured, unpinned
from remat_gen.solver.law.problem import Problem, in_units
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.replay import Replay, replay
from remat_gen.solver.law.schedule import Schedule
from remat_gen.solver.law.sums import added


@dataclass(frozen=True, slots=True)
class Subject:
    """`problem` judges; `whole` and `staged` are what searches see, in units of `unit` bytes.

    `staged` has its forward operations first: its operation p is `order[p]` of the others.
    `chain` is the default chain of a training problem, None for a bare graph.
    """

    problem: Problem
    unit: int
    whole: Problem
    staged: Problem
    order: tuple[int, ...]
    chain: Chain | None

    def plain(self) -> Program:
        """Return the program that runs everything once, in the order that was given."""
        return self.program(range(len(self.problem.operations)))

    def program(self, runs: Sequence[int]) -> Program:
        """Return the program of a search's runs of `whole`."""
        return in_segments(self.whole, self.chain, runs)

    def unstaged(self, program: Program) -> Program:
        """Return the program of `whole` for one of `staged`."""
        if self.chain is not None:
            return program
        return Program(((), tuple(self.order[p] for p in program.flat())))

    def judge(self, program: Program) -> tuple[Schedule, Replay]:
        """Return the schedule of a program that honours all pins, and its exact figures.

        Raises:
            IllegalScheduleError: the program cannot run.
        """
        schedule = to_schedule(self.problem, honoured(self.problem, program))
        return schedule, replay(self.problem, schedule)

    def eager(self) -> Replay:
        """Return the figures of eager's step: the plain program, no pins."""
        free = of_eager(unpinned(self.problem))
        return replay(free, to_schedule(free, self.plain()))

    def block_ranges(self) -> tuple[tuple[int, int], ...]:
        """Return the range of forward operations of each block of the default chain."""
        blocks = self.chain.blocks if self.chain else ()
        return tuple((block.start, block.stop) for block in blocks)

    def least_time_us(self) -> float:
        """Return the time of running everything once, and again what pins ask for: no less does."""
        again = (self.problem.operations[p].time_us for p in forced(self.problem))
        return self.problem.once_us + added(again)


def subject_of(given: Problem | BareGraph) -> Subject:
    """Return the views of a training problem or of a bare graph."""
    if isinstance(given, Problem):
        scaled, unit = in_units(given)
        order = tuple(range(len(given.operations)))
        return Subject(given, unit, scaled, scaled, order, partition(scaled))
    problem = given.problem()
    scaled, unit = in_units(problem)
    staged, order = given.staged()
    return Subject(problem, unit, scaled, in_units(staged)[0], order, None)
