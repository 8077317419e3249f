"""`torch.distributions` as people write them: with the checks of arguments that they have."""

from __future__ import annotations

from pathlib import Path

import pytest
from emitting import HEAD, assert_bitwise, emit
from torch.distributions import Distribution

MODEL = """
from torch import distributions as D

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(16, 8)

    def forward(self, x, action):
        mu, raw = self.lin(x).chunk(2, -1)
        {lines}


def build_model():
    return Net()


def example_inputs():
    return torch.randn(8, 16), torch.randint(4, (8,))
"""
LINES = {
    "VAE": "q = D.Normal(mu, raw.exp())\n        prior = D.Normal(torch.zeros_like(mu), 1.0)\n"
    "        return q.rsample().square().mean() + D.kl_divergence(q, prior).mean()",
    "policy": "d = D.Categorical(logits=mu)\n"
    "        return -(d.log_prob(action) * raw.mean(-1)).mean() - d.entropy().mean()",
    "Student": "return -D.StudentT(F.softplus(raw) + 2, mu).log_prob(x[:, :4]).mean()",
    "relaxed": "z = D.RelaxedOneHotCategorical(torch.tensor(0.5), logits=mu).rsample()\n"
    "        return (z * raw).square().mean()",
    "independent": "d = D.Independent(D.Bernoulli(logits=mu), 1)\n"
    "        return -d.log_prob((x[:, :4] > 0).float()).mean() + raw.mean()",
}


@pytest.mark.parametrize("lines", LINES.values(), ids=LINES)
def test_bitwise(tmp_path: Path, lines: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Distribution, "_validate_args", True)  # torch.compile leaves it off
    assert_bitwise(emit(tmp_path, HEAD + MODEL.format(lines=lines)))
    assert Distribution._validate_args, "left as it was"
