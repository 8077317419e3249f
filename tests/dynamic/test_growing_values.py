"""Values that take more memory in shorter steps: each of these is within the budget, too."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from emitting_parts import CPU
from test_smaller_workspace import plan
from torch import Tensor
from varying_models import model

from remat_gen.capture.load.load import load
from remat_gen.ir.errors import InfeasibleBudgetError
from remat_gen.ir.size import Size, may_fall
from remat_gen.verification.peak import model_peak

# What the batch leaves of nine rows is filled up.
FILLED = model(
    """
    self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)
    self.mix = nn.Linear(64, 64)
    """,
    """
    h = self.down(F.gelu(self.up(x)))
    pad = x.new_zeros((9 - x.size(0)) * 16, 64)
    z = torch.tanh(self.mix(torch.cat([h.flatten(0, 1), pad, pad.cos()])))
    z = F.gelu(self.mix(z))
    return z.square().mean() + z[: h.size(0) * 16].mean()
    """,
    "(torch.randn(8, 16, 64),)",
)
# Each position is compared with the slots that are left: most in the middle, at 22 of 44.
SLOTS = model(
    """
    self.slots = nn.Parameter(torch.randn(44, 16))
    self.head = nn.Linear(16, 8)
    """,
    """
    d = torch.tanh(x[:, :, None] - self.slots[: 44 - x.size(1)])
    return self.head(x + torch.sigmoid(d * 2).mean(2)).square().mean()
    """,
    "(torch.randn(4, 32, 16),)",
)


def _rows(x: Tensor, number: int) -> Tensor:
    return x[:number].clone()


def _columns(x: Tensor, number: int) -> Tensor:
    return x[:, :number].clone()


@pytest.mark.parametrize(
    ("source", "dynamic", "cut", "longest"),
    [(FILLED, ("x:0",), _rows, 8), (SLOTS, ("x:1",), _columns, 32)],
    ids=["filled", "slots"],
)
def test_every_step_is_within_the_smallest_budget(
    source: str, dynamic: tuple[str, ...], cut: Callable[[Tensor, int], Tensor], longest: int
) -> None:
    with pytest.raises(InfeasibleBudgetError) as error:
        plan("40%", source, dynamic)
    least = error.value.smallest_bytes
    assert least is not None
    planned = plan(str(least), source, dynamic)
    assert planned.output and planned.plan.predicted.reruns
    loaded = load(planned.output, device="cpu")
    (x,) = loaded.args
    measured = {
        number: model_peak(loaded.model, (cut(x, number),), {}, CPU).peak_bytes
        for number in range(1, longest + 1)
    }
    predicted = planned.plan.predicted
    assert measured[longest] == predicted.peak_bytes
    assert max(measured.values()) == max(predicted.highest_bytes, predicted.peak_bytes) <= least
    if where := re.search(r"\d+", predicted.highest_at):
        assert max(measured, key=lambda number: measured[number]) == int(where[0])


BATCH = Size("length", ("batch",), 8)


@pytest.mark.parametrize(
    ("size", "falls"),
    [
        (8, False),
        (BATCH, False),
        (Size("+", (BATCH, -1), 7), False),
        (Size("//", (Size("+", (BATCH, -1), 7), 2), 3), False),
        (Size("+", (9, Size("*", (-1, BATCH), -8)), 1), True),
        (Size("//", (64, BATCH), 8), True),
        (Size("%", (BATCH, 3), 2), True),
        (Size("max", (1, Size("*", (-2, BATCH), -16)), 1), True),
    ],
)
def test_what_may_fall_as_lengths_grow(size: Size | int, falls: bool) -> None:
    assert may_fall(size) is falls
