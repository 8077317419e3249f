"""Example inputs that are slices, repeats or transposes: planned for as they are."""

from __future__ import annotations

from pathlib import Path

import torch
from emitting import HEAD, assert_bitwise, at_share, emit
from hypothesis import given
from hypothesis import strategies as st

from remat_gen.capture.process.copies import copied

MODEL = (
    HEAD
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.mix = nn.Linear(32, 32)
        self.head = nn.Linear(32, 50)

    def forward(self, ids, labels, scale, noise):
        x = self.embed(ids) * scale + noise
        scores = self.head(torch.tanh(self.mix(torch.tanh(x))))
        return F.cross_entropy(scores.flatten(0, 1), labels.flatten())


def build_model():
    return Net()


def example_inputs():
    data = torch.randint(50, (4, 33))
    scale = torch.ones(1).expand(4, 32, 32)
    return data[:, :-1], data[:, 1:], scale, torch.randn(32, 4, 32).transpose(0, 1)
"""
)


def test_slices_of_one_batch_are_what_was_planned(tmp_path: Path) -> None:
    assert_bitwise(emit(tmp_path, MODEL, at_share("rotor", 0.5)))


@given(
    shape=st.lists(st.integers(0, 4), max_size=3),
    strides=st.lists(st.integers(0, 5), min_size=3, max_size=3),
    offset=st.integers(0, 3),
)
def test_a_copy_has_values_and_strides_and_shares_nothing(
    shape: list[int], strides: list[int], offset: int
) -> None:
    memory = torch.arange(100.0)
    tensor = memory.as_strided(shape, strides[: len(shape)], offset).requires_grad_()
    copy = copied(tensor)
    assert torch.equal(copy, tensor)
    assert copy.stride() == tensor.stride()
    assert copy.requires_grad and copy.is_leaf and copy._base is None
    memory.zero_()
    assert torch.equal(copy, tensor) == (not copy.any())
