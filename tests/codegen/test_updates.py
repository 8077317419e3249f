"""Buffers are updated where they are, once, and only where nothing else needs the new value."""

from __future__ import annotations

from pathlib import Path

import pytest
from emitting import HEAD, Emitted, assert_bitwise, at_share, emit, keep_all

MODEL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(32, 64)
        self.norm = nn.BatchNorm1d(64)
        self.second = nn.Linear(64, 8)
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x):
        y = self.second(F.relu(self.norm(self.first(x))))
        {update}
        return y.square().mean()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(16, 32),)
"""
IN_PLACE = {
    "added to": ("self.seen.add_(y.detach().mean(0))", "seen.add_("),
    "scaled": ("self.seen.mul_(0.9)", "seen.mul_(0.9)"),
}
COPIED = {
    "read again": "self.seen.add_(1)\n        y = y + self.seen",
    "made of another": "self.seen.copy_(y.detach().mean(0) + self.seen)",
    "twice": "self.seen.mul_(0.9).add_(y.detach().mean(0), alpha=0.1)",
    "of itself": "self.seen.copy_(self.seen * self.seen)",
    "copied into": "self.seen.copy_(self.seen + 1)",
    "a part": "self.seen[:4].add_(1)",
}


def emitted(folder: Path, update: str, share: float | None = None) -> Emitted:
    choose = keep_all if share is None else at_share("rotor", share)
    return emit(folder, HEAD + MODEL.format(update=update), choose)


def planned_text(made: Emitted) -> str:
    """Return the blocks, without the user's own text, which stands in comments too."""
    text = made.text.partition("what they keep -")[2]
    return "\n".join(line for line in text.splitlines() if not line.strip().startswith("#"))


@pytest.mark.parametrize("name", IN_PLACE)
def test_a_buffer_is_updated_in_place(tmp_path: Path, name: str) -> None:
    update, text = IN_PLACE[name]
    made = emitted(tmp_path, update)
    assert text in planned_text(made)
    assert "norm_num_batches_tracked.add_(1)" in planned_text(made)
    assert_bitwise(made)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_statistics_of_16_bits_are_written_as_eager_does(tmp_path: Path, dtype: str) -> None:
    model = MODEL.format(update="pass").replace("Net()", f"Net().to(torch.{dtype})")
    made = emit(
        tmp_path, HEAD + model.replace("(16, 32)", f"(16, 32, dtype=torch.{dtype})"), keep_all
    )
    assert "norm_running_mean" in planned_text(made) and ".to(" not in planned_text(made)
    assert_bitwise(made)


@pytest.mark.parametrize("name", COPIED)
def test_what_is_more_than_an_update_is_copied(tmp_path: Path, name: str) -> None:
    made = emitted(tmp_path, COPIED[name])
    assert "seen.copy_(" in planned_text(made)
    assert_bitwise(made)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_once_where_the_block_runs_again(tmp_path: Path, share: float) -> None:
    made = emitted(tmp_path, "self.seen.add_(y.detach().mean(0))", share=share)
    assert planned_text(made).count("seen.add_(") == 1
    assert_bitwise(made)
