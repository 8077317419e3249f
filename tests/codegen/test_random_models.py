"""Models nobody wrote, under strategies and schedules nobody chose: bitwise as eager."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from emitting import CPU, assert_bitwise, emit, measured_workspace
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from random_cases import RANDOM, Case, assert_right, cases
from random_leaves import LAYERS, STATE
from random_models import sources
from random_schedules import random_schedule, random_travels

from remat_gen.ir.plan import HostCopies
from remat_gen.verification.peak import model_peak

ROWS = 8192  # so that a value of the model has half a MiB
EXAMPLES = 25  # of models whose values travel
CLOSE = 64 * 1024  # bytes

quick = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    database=None,
    phases=[Phase.explicit, Phase.generate],  # shrinking takes longer than reading the source
)


@quick
@given(case=cases())
def test_any_model_under_any_schedule_is_bitwise_as_eager(case: Case) -> None:
    """More of them, from other seeds: `benchmarks/fuzz.py`."""
    assert_right(case)


@settings(quick, max_examples=5)
@given(
    source=sources(rows=ROWS, leaves=LAYERS | STATE),
    seed=st.integers(0, 2**16),
    share=st.sampled_from([0.1, 0.5]),
)
def test_the_peak_of_any_legal_schedule_is_as_replayed(
    source: str, seed: int, share: float
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = emit(
            Path(folder),
            source,
            lambda p: random_schedule(p, seed, 6, share),
            costs=measured_workspace,
        )
    measured = model_peak(made.planned.model, made.planned.args, made.planned.kwargs, CPU)
    assert abs(measured.peak_bytes - made.peak_bytes) <= CLOSE
    assert made.peak_bytes > 20 * CLOSE


@settings(quick, max_examples=EXAMPLES)
@given(
    source=sources(leaves=LAYERS | STATE),
    seed=st.integers(0, 2**16),
    share=st.sampled_from([0.0, 0.1, 0.4]),
)
def test_what_goes_to_the_host_comes_back_as_it_was(source: str, seed: int, share: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = emit(
            Path(folder),
            source,
            lambda p: random_travels(p, seed, 6, share),
            copies=HostCopies(1e9, 1.0),
        )
        assert_bitwise(made)


_SOURCE = """\
import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.conv = nn.Conv1d(4, 4, 3, padding=1)
        self.small = nn.Linear(16, 16)

    def forward(self, x):
        h = self.first(x)
        y = h + self.conv(h.view(-1, 4, 16)).flatten(0, 1).cumsum(1) / 16
        {lines}
        return y.square().mean()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(8, 16, requires_grad=True),)
"""
FOUND = {
    "a gradient that an earlier block held, which only reads the parameter": (
        "with torch.autocast('cpu', torch.bfloat16):\n"
        "            z = F.gelu(self.small(h)).float()\n"
        "        y = torch.cat((y[:, :8], z[:, 8:]), dim=1)\n"
        "        y = self.conv(y.view(-1, 4, 16)).flatten(0, 1)",
        Case("", RANDOM, 0.8, 1217),
    ),
    "a copy of a part, which takes as much as the whole": (
        "y[:4].mul_(0.5)\n        y[4:].mul_(2.0)\n        y = y.sin()",
        Case("", RANDOM, 1.0, 95),
    ),
}


@pytest.mark.parametrize(("lines", "case"), FOUND.values(), ids=FOUND)
def test_found_by_random_models(lines: str, case: Case) -> None:
    source = _SOURCE.format(lines=lines)
    for _ in range(2):  # the second trace of a process finds torch's cache of fake results filled
        assert_right(Case(source, case.strategy, case.share, case.seed))
