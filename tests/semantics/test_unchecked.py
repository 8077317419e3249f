"""What eager looks at in the values of tensors, and a planned step does not."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pairs import make_pair_of
from sources import model_source
from torch.nn.attention import SDPBackend, sdpa_kernel


@pytest.mark.limit(
    "the checks of `torch.distributions` whether arguments lie in their domain",
    "not made in a planned step, whose numbers are eager's; `forward_eager()` makes them",
)
def test_distributions(monkeypatch: pytest.MonkeyPatch) -> None:
    # Dynamo leaves the checks out for good when it is first used by itself.
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)
    lines = "q = torch.distributions.Normal(self.body(x), 1.0)\nreturn q.rsample().square().mean()"
    pair = make_pair_of(model_source(lines), "1GB", "per-layer")
    _, planned = pair.models()
    args, _ = pair.inputs()
    assert planned(*args).isfinite()
    assert planned(args[0] * torch.nan).isnan()
    with pytest.raises(ValueError, match="Expected parameter loc"):
        planned.forward_eager(args[0] * torch.nan)


READS = """\
import contextvars

SCALE = contextvars.ContextVar("SCALE", default=2.0)


def scaled(x):
    return x * 2.0
"""
Patch = pytest.MonkeyPatch
UNSEEN: dict[str, Callable[[Any, Patch], object]] = {
    "other code of a function": lambda file, patch: patch.setattr(
        file.scaled, "__code__", (lambda x: x * 3.0).__code__
    ),
    "a context variable": lambda file, patch: file.SCALE.set(3.0),
}


@pytest.mark.parametrize("change", UNSEEN.values(), ids=UNSEEN)
def test_what_no_error_tells(change: Callable[[Any, Patch], object], monkeypatch: Patch) -> None:
    """It stands in docs/limits.md: forward_eager() has other numbers then."""
    lines = "return (self.head(scaled(self.body(x))) * SCALE.get()).square().mean()"
    pair = make_pair_of(model_source(lines, prelude=READS), "1GB", "per-layer")
    _, planned = pair.models()
    args, _ = pair.inputs()

    def losses() -> list[float]:
        found = []
        for step in (planned, planned.forward_eager):
            torch.manual_seed(0)
            found.append(float(step(*args).detach()))
        return found

    once, eager = losses()
    assert once == eager

    def changed_losses() -> list[float]:
        change(pair.planned, monkeypatch)
        return losses()

    again, changed = contextvars.copy_context().run(changed_losses)
    assert again == once != changed


def test_writes_that_no_version_counts() -> None:
    """What is run again reads what was written: it stands in docs/limits.md."""
    lines = """
        y = self.body(x)
        z = self.last(self.wide(y.repeat(1, 16).sigmoid()).sigmoid())
        return y, z.sum()
    """
    init = "self.wide = nn.Linear(128, 128)\nself.last = nn.Linear(128, 128)"
    pair = make_pair_of(model_source(lines, init=init))
    gradients = []
    for model in pair.models():
        torch.manual_seed(0)
        out, loss = model(*pair.inputs()[0])
        out.data.mul_(3)
        loss.backward()
        gradients.append(model.layers[0].up.weight.grad)
    assert not torch.allclose(*gradients)


def test_other_kernels_of_attention_are_not_asked_for() -> None:
    """The planned one runs: it stands in docs/limits.md."""
    lines = "y = self.body(x)[None, None]\nreturn F.scaled_dot_product_attention(y, y, y).sum()"
    pair = make_pair_of(model_source(lines), "1GB", "per-layer")
    _, planned = pair.models()
    args, _ = pair.inputs()
    losses = []
    for context in (contextlib.nullcontext(), sdpa_kernel(SDPBackend.MATH)):
        torch.manual_seed(0)
        with context:
            losses.append(planned(*args))
    assert torch.equal(*losses)
    assert "flash_attention_for_cpu" in pair.text
