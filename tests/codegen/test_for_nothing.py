"""What forward makes for backward alone, where backward makes it again, is not run for nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from emitting import HEAD, Emitted, assert_bitwise, at_share, compared, emit, keep_all
from torch import Tensor

from remat_gen.compile.fusible import fusible_in
from remat_gen.ir.graph import Graph, Phase
from remat_gen.solver.compiled.parts import Part, ends_of, longest_parts
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.schedule import Free, Run, Schedule
from remat_gen.verification.compare import Match

# the trace of what torch's GRU cell does has copies that its backward alone reads
MODEL = """
class Cell(nn.GRUCell):
    def forward(self, x, h):
        of_x = F.linear(x, self.weight_ih, self.bias_ih).unsafe_chunk(3, 1)
        of_h = F.linear(h, self.weight_hh, self.bias_hh).unsafe_chunk(3, 1)
        reset, update = of_h[0].add_(of_x[0]).sigmoid_(), of_h[1].add_(of_x[1]).sigmoid_()
        new = of_x[2].add(of_h[2].mul_(reset)).tanh_()
        return (h - new).mul_(update).add_(new)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.message, self.update = nn.Linear(32, 16), Cell(16, 16)

    def forward(self, x):
        return self.update(F.relu(self.message(torch.cat([x, x.flip(0)], 1))), x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x.square().sum()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(24, 16),)
"""


def runs_for_nothing(problem: Problem, schedule: Schedule) -> list[str]:
    """Return the runs of forward after which all that they made is freed at once."""
    found = []
    for segment in schedule.segments[: schedule.block_count]:
        for at, step in enumerate(segment.steps):
            if not isinstance(step, Run):
                continue
            freed = set()
            for after in segment.steps[at + 1 :]:
                if not isinstance(after, Free):
                    break
                freed.add(after.value)
            made = problem.operations[step.operation].outputs
            if made and freed.issuperset(made):
                found.append(problem.operations[step.operation].name)
    return found


def bare_calls(made: Emitted) -> Iterator[str]:
    """Yield calls of operators whose results go nowhere, in the blocks of a module."""
    for block in (node for node in made.tree().body if isinstance(node, ast.ClassDef)):
        if [ast.unparse(base) for base in block.bases] != ["PlannedBlock"]:
            continue
        for node in ast.walk(block):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                name = ast.unparse(node.value.func)
                if name.startswith(("torch.", "aten.", "F.")):
                    yield ast.unparse(node)


def all_parts(graph: Graph, problem: Problem, schedule: Schedule) -> tuple[Part, ...]:
    fusible = fusible_in(graph)
    longest = longest_parts(problem, schedule, fusible)
    assert any(ends_of(problem, schedule, part).results for part in longest)
    return tuple(part for part in longest if ends_of(problem, schedule, part).results)


def gradients(made: Emitted) -> dict[str, Tensor]:
    """Return the gradients of a step of the planned model."""
    model = made.planned.model
    model.load_state_dict(made.loaded.model.state_dict())
    model(*made.loaded.args).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def assert_as_if_all_were_kept(folder: Path, made: Emitted) -> None:
    """Assert the gradients of the schedule that runs nothing again, to the bit.

    Eager's are rounded otherwise: a GRU cell is traced to other operations than its kernel.
    """
    kept = emit(folder, HEAD + MODEL, keep_all, name="kept")
    kept.loaded.model.load_state_dict(made.loaded.model.state_dict())
    kept.loaded.args[0].copy_(made.loaded.args[0])
    found, wanted = gradients(made), gradients(kept)
    assert found.keys() == wanted.keys() and found
    assert all(torch.equal(found[name], wanted[name]) for name in found)
    assert all(c.match is not Match.DIFFERENT for c in compared(made))


def test_what_nobody_reads_is_not_run(tmp_path: Path) -> None:
    made = emit(tmp_path, HEAD + MODEL, at_share("rotor", 0.0))
    phases = {o.name: o.phase for o in made.traced.graph.operations}
    nothing = runs_for_nothing(made.problem, made.schedule)
    assert any(name.endswith("_copy") for name in nothing), nothing
    assert all(phases[name] is Phase.FORWARD for name in nothing)
    assert list(bare_calls(made)) == []
    assert_as_if_all_were_kept(tmp_path, made)


UPDATES = (
    "self.seen.copy_(h.detach().mean())",
    "self.seen.mul_(0.9).add_(h.detach().mean(), alpha=0.1)",
    "self.seen.copy_(F.mse_loss(h.detach(), y))",
    "self.seen.view(1).copy_(h.detach().sum().reshape(1))",
)


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_what_only_a_buffer_takes_is_run(tmp_path: Path, update: str, share: float) -> None:
    text = f"""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 64), nn.Linear(64, 16)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x, y):
        h = self.second(F.gelu(self.first(x)))
        {update}
        return (h - y).square().mean()


def build_model():
    return Net()


def example_inputs():
    return torch.randn(24, 16), torch.randn(24, 16)
"""
    assert_bitwise(emit(tmp_path, HEAD + text, at_share("rotor", share)))


def test_nor_in_functions(tmp_path: Path) -> None:
    made = emit(tmp_path, HEAD + MODEL, at_share("rotor", 0.0), parts=all_parts)
    assert "@compiled" in made.text
    assert_as_if_all_were_kept(tmp_path, made)
