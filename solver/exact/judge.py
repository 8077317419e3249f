"""Judge a sequence of runs by the replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remat_gen.solver.exact.bit_graph import BitGraph
from remat_gen.solver.liveness import prune, to_schedule
from remat_gen.solver.pins import honoured
from remat_gen.solver.program import Program
from remat_gen.solver.replay import IllegalScheduleError, Replay, replay
from remat_gen.solver.straight import in_segments


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
