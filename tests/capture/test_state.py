"""Tracing leaves the model's parameters and buffers where they are, whatever torch exchanges."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from remat_gen.capture.trace import joint
from remat_gen.capture.trace.trace import trace


class Shared(nn.Module):
    """A module with two names, as CoaT has: in the model and in its block."""

    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Conv2d(3, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.blocks = nn.ModuleList([nn.Sequential(self.position, self.norm, nn.GELU())])

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks[0](x + self.position(x)).square().mean()  # type: ignore[no-any-return]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("dynamic", [(), None])
def test_a_module_with_two_names_keeps_its_state(
    monkeypatch: pytest.MonkeyPatch, dynamic: tuple[str, ...] | None, strict: bool
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("Dynamo's turn is over")

    if not strict:
        monkeypatch.setattr(joint, "_strict", refuse)
    model = Shared()
    state = list(model.state_dict(keep_vars=True).items())
    values = [(name, tensor.clone()) for name, tensor in state]
    found = trace(model, (torch.randn(4, 3, 8, 8),), {}, dynamic=dynamic)
    after = list(model.state_dict(keep_vars=True).items())
    assert [(name, id(tensor)) for name, tensor in after] == [(n, id(t)) for n, t in state]
    assert all(torch.equal(tensor, dict(values)[name]) for name, tensor in after)
    assert found.strict is strict
    assert found.dynamic == (("x:0",) if dynamic is None else ())
