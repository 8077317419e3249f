"""Models nobody wrote, under strategies and schedules nobody chose: bitwise as eager."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from emitting import (
    CPU,
    Choose,
    Emitted,
    assert_bitwise,
    at_share,
    emit,
    keep_all,
    measured_workspace,
    model_costs,
)
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from random_models import sources
from random_schedules import random_order, random_schedule

from remat_gen.capture.trace import Traced
from remat_gen.ir.costs import Costs
from remat_gen.measure import model_peak

ROWS = 8192  # so that a value of the model has half a MiB
CLOSE = 64 * 1024  # bytes

quick = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    database=None,
    phases=[Phase.explicit, Phase.generate],  # shrinking takes longer than reading the source
)


def emitted(
    source: str, choose: Choose = keep_all, costs: Callable[[Traced], Costs] = model_costs
) -> Emitted:
    with tempfile.TemporaryDirectory() as folder:
        return emit(Path(folder), source, choose, costs=costs)


@quick
@given(
    source=sources(),
    strategy=st.sampled_from(["rockmate", "rotor", "per-layer", "none"]),
    share=st.floats(0.0, 1.0),
)
def test_any_model_at_any_budget_is_bitwise_as_eager(
    source: str, strategy: str, share: float
) -> None:
    assert_bitwise(emitted(source, at_share(strategy, share)))


@quick
@given(
    source=sources(),
    seed=st.integers(0, 2**16),
    limit=st.integers(1, 8),
    share=st.sampled_from([0.1, 0.5, 1.0]),
)
def test_any_legal_schedule_is_bitwise_as_eager(
    source: str, seed: int, limit: int, share: float
) -> None:
    assert_bitwise(emitted(source, lambda p: random_schedule(p, seed, limit, share)))


@quick
@given(
    source=sources(),
    seed=st.integers(0, 2**16),
    limit=st.integers(1, 30),
    share=st.sampled_from([0.0, 0.1, 0.5]),
)
def test_backward_in_any_legal_order_is_bitwise_as_eager(
    source: str, seed: int, limit: int, share: float
) -> None:
    assert_bitwise(emitted(source, lambda p: random_order(p, seed, limit, share)))


@settings(quick, max_examples=5)
@given(source=sources(rows=ROWS), seed=st.integers(0, 2**16), share=st.sampled_from([0.1, 0.5]))
def test_the_peak_of_any_legal_schedule_is_as_replayed(
    source: str, seed: int, share: float
) -> None:
    made = emitted(source, lambda p: random_schedule(p, seed, 6, share), measured_workspace)
    measured = model_peak(made.planned.model, made.planned.args, made.planned.kwargs, CPU)
    assert abs(measured.peak_bytes - made.peak_bytes) <= CLOSE
    assert made.peak_bytes > 20 * CLOSE
