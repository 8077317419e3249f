"""`q, k, v = tensor` is one view of all rows, as it is in eager mode."""

from __future__ import annotations

from pathlib import Path

import pytest
from emitting import CPU, HEAD, Emitted, assert_bitwise, at_share, emit, keep_all

from remat_gen.verification.peak import model_peak

MODEL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(32, 96)

    def forward(self, x):
        rows = self.qkv(x).view(-1, 3, 32).transpose(0, 1)
{unpack}
        return (torch.softmax(q @ k.T, -1) @ v).square().mean()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(24, 32),)
"""
UNPACK = {
    "unpacked": "q, k, v = rows",
    "starred": "q, *others = rows\nk, v = others",
    "iterated": "q, k, v = [torch.tanh(row) for row in rows]",
    "listed": "q, k, v = list(rows)",
}


def emitted(folder: Path, unpack: str) -> Emitted:
    lines = "\n".join(" " * 8 + line for line in unpack.splitlines())
    return emit(folder, HEAD + MODEL.format(unpack=lines), keep_all)


def targets(made: Emitted) -> list[str]:
    return [operation.target for operation in made.traced.graph.operations]


@pytest.mark.parametrize("name", UNPACK)
def test_backward_stacks_the_rows(tmp_path: Path, name: str) -> None:
    made = emitted(tmp_path, UNPACK[name])
    assert targets(made).count("aten.stack.default") == 1
    assert "aten.select_backward.default" not in targets(made)
    eager = model_peak(made.loaded.model, made.loaded.args, made.loaded.kwargs, CPU)
    assert made.peak_bytes <= eager.peak_bytes
    assert_bitwise(made)


def test_rows_that_are_asked_for_stay_asked_for(tmp_path: Path) -> None:
    made = emitted(tmp_path, "q, k, v = rows[0], rows[1], rows[2]")
    assert targets(made).count("aten.select_backward.default") == 3
    assert_bitwise(made)


def test_under_a_schedule(tmp_path: Path) -> None:
    text = HEAD + MODEL.format(unpack="        q, k, v = rows")
    assert_bitwise(emit(tmp_path, text, at_share("rotor", 0.3)))
