"""Judge a sequence of runs by the replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remat_gen.solver.blocks.simple_programs import in_segments
from remat_gen.solver.law.liveness import prune, to_schedule
from remat_gen.solver.law.pins import honoured
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.replay import IllegalScheduleError, Replay, replay
from remat_gen.solver.states.bit_graph import BitGraph


@dataclass(frozen=True, slots=True)
class Judged:
    """Runs without idle re-runs, and what the replay says of them."""

    runs: tuple[int, ...]
    replay: Replay

    @property
    def time_us(self) -> float:
        """Return the time of all runs."""
        return self.replay.time_us


def judge(graph: BitGraph, runs: Sequence[int]) -> Judged | None:
    """Return what runs cost, None where they cannot run."""
    if graph.chain is not None:
        program = in_segments(graph.problem, graph.chain, runs)
    else:
        program = Program(((), tuple(runs)))
    program = prune(graph.problem, honoured(graph.problem, program))
    try:
        judged = replay(graph.problem, to_schedule(graph.problem, program))
    except IllegalScheduleError:
        return None
    return Judged(tuple(program.flat()), judged)
