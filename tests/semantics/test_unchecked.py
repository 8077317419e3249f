"""What eager looks at in the values of tensors, and a planned step does not."""

from __future__ import annotations

import pytest
import torch
from pairs import make_pair_of
from sources import model_source


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
