"""Where parameters outweigh activations, gradients leave one after the other, as in eager mode."""

from __future__ import annotations

from pathlib import Path

import pytest
from emitting import CPU, HEAD, Emitted, assert_bitwise, emit, keep_all

from remat_gen.solver.blocks.partition import partition
from remat_gen.verification.peak import model_peak

FOOT = """

def build_model():
    return Net()
"""
PERCEPTRON = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        pairs = [(nn.Linear(128, 128), nn.Tanh()) for _ in range(6)]
        self.layers = nn.Sequential(*[module for pair in pairs for module in pair])

    def forward(self, x):
        return self.layers(x).square().mean()


def example_inputs():
    return (torch.randn(4, 128),)
"""
EMBEDDING = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(1000, 64)
        self.first = nn.Linear(64, 512)
        self.second = nn.Linear(512, 512)

    def forward(self, ids):
        x = self.embed(ids)
        return self.second(torch.tanh(self.first(x))).square().mean()


def example_inputs():
    return (torch.randint(1000, (2, 8)),)
"""
MODELS = {"perceptron": PERCEPTRON, "embedding": EMBEDDING}


def measured_peak(made: Emitted, *, planned: bool) -> int:
    model = made.planned.model if planned else made.loaded.model
    return model_peak(model, made.loaded.args, made.loaded.kwargs, CPU).peak_bytes


@pytest.mark.parametrize("name", MODELS)
def test_nothing_run_again_peaks_as_eager(tmp_path: Path, name: str) -> None:
    made = emit(tmp_path, HEAD + MODELS[name] + FOOT, keep_all)
    eager = measured_peak(made, planned=False)
    assert made.peak_bytes == measured_peak(made, planned=True) == eager
    assert_bitwise(made)


def test_each_large_gradient_has_a_block(tmp_path: Path) -> None:
    made = emit(tmp_path, HEAD + PERCEPTRON + FOOT, keep_all)
    problem = made.problem
    held = [
        [v for b in block.backward for v in problem.operations[b].outputs if is_weight(made, v)]
        for block in partition(problem).blocks
    ]
    assert sorted(map(len, held)) == [0] + [1] * 6


def is_weight(made: Emitted, value: int) -> bool:
    return made.problem.values[value].nbytes == 128 * 128 * 4
