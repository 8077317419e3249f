"""What forward switches for a part of it: inference mode, a layer's mode; and what it is given."""

from __future__ import annotations

import pytest
import torch
from pairs import make_pair_of
from sources import model_source
from steps import assert_right

BODY = """
h = self.down(F.gelu(self.up(x)))
for _ in range(2):
    h = h + self.down(F.gelu(self.up(h)))
"""
INIT = """
self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)
self.teacher = nn.Linear(8, 8).requires_grad_(False)
self.norm = nn.BatchNorm1d(8)
self.seen = None
"""
FORWARDS = {
    "a teacher of what was computed": (
        "with torch.inference_mode():\n    t = self.teacher(h.detach())\n"
        "return (h - t).square().mean()"
    ),
    "with gradients within": (
        "with torch.inference_mode(False):\n    t = self.teacher(h)\nreturn (h - t).square().mean()"
    ),
    "behind gradients that are off": (
        "with torch.no_grad():\n    with torch.inference_mode():\n        t = self.teacher(h)\n"
        "    t = 2 * t\nreturn (self.teacher(h) - t).square().mean()"
    ),
    "a frozen norm, and something kept": (
        "self.norm.eval()\nself.seen = x\nreturn self.norm(h).square().mean()"
    ),
}


@pytest.mark.parametrize("forward", FORWARDS.values(), ids=FORWARDS)
def test_it_steps_as_eager_does(forward: str) -> None:
    prelude = "import torch.nn.functional as F"
    assert_right(make_pair_of(model_source(BODY + forward, init=INIT, prelude=prelude)))


def test_a_conjugate_is_no_plain_tensor() -> None:
    pair = make_pair_of(
        model_source(
            "z = torch.view_as_real(x.resolve_conj()).flatten(1)\n"
            "return self.lin(z).square().mean()",
            init="self.lin = nn.Linear(16, 8)",
            inputs="(torch.randn(6, 8, dtype=torch.complex64),)",
        ),
        "1GB",
    )
    _, planned = pair.models()
    (x,), _ = pair.inputs()
    planned(x)
    with pytest.raises(ValueError, match=r"x is complex64\[6, 8\], conjugate on cpu, planned for"):
        planned(x.conj())
    assert torch.equal(planned(x.conj().resolve_conj()), planned(x.conj_physical()))
