"""A random model, a random schedule of it: planned, run, compared with eager to the bit."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from emitting import (
    CPU,
    Emitted,
    Parts,
    assert_bitwise,
    at_share,
    emit,
    measured_workspace,
    no_parts,
)
from hypothesis import strategies as st
from random_models import sources
from random_schedules import random_order, random_schedule
from torch.utils import _pytree as pytree

from remat_gen.capture.load.load import load
from remat_gen.ir.errors import TraceError
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.schedule import Schedule
from remat_gen.verification.peak import model_peak
from remat_gen.verification.step import training_step

STRATEGIES = ("rockmate", "rotor", "chen-greedy", "per-layer", "none")
RANDOM = "random"
REORDERED = "reordered"


@dataclass(frozen=True, slots=True)
class Case:
    """A model's source, and how its schedule is found.

    `strategy` at a `share` of the way from its smallest budget to the plain peak; or, RANDOM, any
    legal schedule from a `seed`: it runs about that share of the operations again. REORDERED also
    moves the runs of backward.
    """

    source: str
    strategy: str
    share: float
    seed: int

    def choose(self, problem: Problem) -> Schedule:
        """Find the schedule."""
        if self.strategy == RANDOM:
            return random_schedule(problem, self.seed, 1 + self.seed % 8, self.share)
        if self.strategy == REORDERED:
            return random_order(problem, self.seed, 1 + self.seed % 30, self.share)
        return at_share(self.strategy, self.share)(problem)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a case; half of them have any legal schedule, in the traced order or in another."""
    strategy = draw(st.sampled_from((RANDOM, RANDOM, RANDOM, REORDERED, REORDERED, *STRATEGIES)))
    return Case(
        source=draw(sources()),
        strategy=strategy,
        share=draw(st.sampled_from((0.0, 0.1, 0.3, 0.5, 0.8, 1.0))),
        seed=draw(st.integers(0, 2**16)),
    )


def emitted(case: Case, parts: Parts = no_parts) -> Emitted:
    """Plan a case in a folder of its own, with the workspace of each operation as it is."""
    with tempfile.TemporaryDirectory() as folder:
        return emit(Path(folder), case.source, case.choose, costs=measured_workspace, parts=parts)


def assert_right(case: Case) -> None:
    """Assert that two steps are eager's to the bit, within the peak that was replayed.

    Refused is only what eager's own step refuses.
    """
    try:
        made = emitted(case)
    except TraceError:
        assert eager_fails(case)
        return
    assert_bitwise(made)
    planned = made.planned
    peak = model_peak(planned.model, planned.args, planned.kwargs, CPU).peak_bytes
    limit = made.peak_bytes + unplanned_bytes(made)
    assert peak <= limit, f"peak {peak} bytes, replayed {limit}"


def unplanned_bytes(made: Emitted) -> int:
    """Return the bytes of gradients that a step brings in and no plan counts.

    That is one into an input that the model hands on, and a second one into the same output.
    """
    leaves = made.traced.returned.leaves
    values = pytree.tree_leaves(made.traced.returned.value)
    return sum(
        value.numel() * value.itemsize
        for leaf, value in zip(leaves, values, strict=True)
        if leaf.requires_grad and (leaf.outside or leaf.same_as is not None)
    )


def eager_fails(case: Case) -> bool:
    """Tell whether the original's own step raises."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.py"
        path.write_text(case.source, encoding="utf-8")
        loaded = load(path, None, None, "cpu")
    try:
        training_step(loaded.model, loaded.args, loaded.kwargs)
    except RuntimeError:
        return True
    return False
