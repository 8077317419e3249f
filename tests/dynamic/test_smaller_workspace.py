"""Kernels that need more workspace for fewer samples: every batch is within the budget."""

from __future__ import annotations

import atexit
import functools
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from emitting_parts import CPU, equal_times
from varying_models import GPT, model

from remat_gen.ask.budget import parse_budget
from remat_gen.ask.request import Request, Strategy
from remat_gen.capture.load.load import load
from remat_gen.ir.byte_text import size
from remat_gen.ir.errors import InfeasibleBudgetError
from remat_gen.plan.pipeline import Generated, generate
from remat_gen.review.checking import check_file
from remat_gen.show.summary import summary_lines
from remat_gen.terminal.progress import Progress
from remat_gen.verification.peak import model_peak

LARGEST = 3
# For one sample torch unfolds the input of a small 3-D convolution: 27 times its size.
CONVOLUTIONS = model(
    """
    self.convs = nn.ModuleList(nn.Conv3d(8 if i else 3, 8, 3, padding=1) for i in range(4))
    self.head = nn.Linear(8, 5)
    """,
    """
    for conv in self.convs:
        x = F.gelu(conv(x))
    return self.head(x.mean((2, 3, 4)))
    """,
    f"(torch.randn({LARGEST}, 3, 4, 16, 16),)",
)


@functools.cache
def folder_of(source: str) -> Path:
    """Return a folder with the model's file in it; it is there for the session."""
    folder = Path(tempfile.mkdtemp(prefix="remat-gen-test-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "net.py").write_text(source, encoding="utf-8")
    return folder


def plan(
    budget: str, source: str = CONVOLUTIONS, dynamic: tuple[str, ...] | None = None
) -> Generated:
    """Plan a model without measuring times: all operations take the same."""
    folder = folder_of(source)
    output = folder / f"net_{budget.rstrip('%')}.py"
    request = Request(folder / "net.py", parse_budget(budget), output, device="cpu")
    request = replace(request, strategy=Strategy.ROTOR, dynamic=dynamic)
    with equal_times():
        return generate(request, Progress())


generated = functools.cache(plan)


@functools.cache
def least() -> str:
    """Return the smallest budget that fits: which kernels a machine has decides it."""
    with pytest.raises(InfeasibleBudgetError, match=r"at a batch of 1 than .*; --static") as error:
        generated("80%")
    return str(error.value.smallest_bytes)


def measured_bytes(planned: Generated) -> dict[int, int]:
    """Return the measured activation peak of a step of each batch."""
    assert planned.output
    loaded = load(planned.output, device="cpu")
    (x,) = loaded.args
    return {
        batch: model_peak(loaded.model, (x[:batch].clone(),), {}, CPU).peak_bytes
        for batch in range(1, LARGEST + 1)
    }


# In 2 MB every step fits; in 100 % eager's own step of one sample does not.
LEAST, EAGERS, ROOMY = least, lambda: "100%", lambda: "2MB"


@pytest.mark.parametrize("budget", [LEAST, EAGERS, ROOMY], ids=["least", "eager's", "roomy"])
def test_every_batch_is_within_the_budget(budget: Callable[[], str]) -> None:
    planned = generated(budget())
    measured = measured_bytes(planned)
    assert max(measured.values()) <= planned.plan.asked.budget_bytes, measured
    assert measured[LARGEST] == planned.plan.predicted.peak_bytes


def test_two_lengths_are_within_the_budget_together() -> None:
    planned = plan("97%", dynamic=("x:0", "x:2"))
    assert planned.output
    loaded = load(planned.output, device="cpu")
    planned_model, (x,) = loaded.model, loaded.args
    sizes = [(batch, length) for batch in range(1, LARGEST + 1) for length in range(1, 5)]
    steps = {(b, n): (x[:b, :, :n].clone(),) for b, n in sizes}
    measured = {
        at: model_peak(planned_model, step, {}, CPU).peak_bytes for at, step in steps.items()
    }
    assert max(measured.values()) == measured[1, 4] == planned.plan.predicted.highest_bytes
    assert measured[1, 4] <= planned.plan.asked.budget_bytes


def test_the_highest_peak_is_predicted_to_the_byte() -> None:
    planned = generated("100%")
    predicted = planned.plan.predicted
    assert predicted.highest_at == "a batch of 1"
    assert predicted.highest_bytes == measured_bytes(planned)[1] > predicted.peak_bytes


def test_eagers_peak_stays_that_of_the_example() -> None:
    eager = load(folder_of(CONVOLUTIONS) / "net.py", device="cpu")
    measured = model_peak(eager.model, eager.args, eager.kwargs, CPU).peak_bytes
    assert generated("100%").plan.predicted.eager_peak_bytes == measured


def test_people_are_told_where_the_peak_is() -> None:
    planned = generated("100%")
    most = size(planned.plan.predicted.highest_bytes)
    said = [line for line in summary_lines(planned) if "at a batch of 1" in line]
    assert said == [f"            {most} at a batch of 1, where values or workspace are larger"]
    assert re.search(f"^#   at most +{most}     at a batch of 1$", planned.text, re.MULTILINE)


def test_less_room_costs_time_and_more_never_does() -> None:
    times = [generated(budget()).plan.predicted.time_us for budget in (LEAST, EAGERS, ROOMY)]
    assert times == sorted(times, reverse=True)
    assert times[0] > times[1] > times[2]


@pytest.mark.limit(
    "a budget that is too small for a smaller batch, whose kernels need more workspace",
    "refused when planning, with the batch; `--static` plans for the example's alone",
)
def test_below_the_smallest_budget_it_is_said_which_batch_is_to_blame() -> None:
    assert max(measured_bytes(generated(least())).values()) == int(least())


def test_the_same_costs_give_the_same_plan() -> None:
    planned = generated("100%")
    assert planned.output
    assert not check_file(planned.output).stale
    again = plan("100%")
    assert again.costs_reused
    assert (again.plan, again.text) == (planned.plan, planned.text)


def test_costs_say_where_more_is_needed() -> None:
    costs = generated("100%").plan.costs
    more = {name: cost.smaller for name, cost in costs.items() if cost.smaller}
    targets = {name: name.rpartition(".")[2] for name in more}
    assert set(targets.values()) == {"conv3d", "d_x", "d_convs_0_weight"}  # and their backwards
    assert {there.lengths for found in more.values() for there in found} == {(1,)}


def test_other_kernels_say_nothing() -> None:
    planned = generated("80%", GPT)
    assert planned.plan_file
    assert not any(cost.smaller for cost in planned.plan.costs.values())
    assert "highest" not in planned.plan_file.read_text(encoding="utf-8")
