"""Gradients are written over the ones they are made from, where memory is short: the same bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from emitting import CPU, HEAD, Emitted, assert_bitwise, emit

from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.schedule import Schedule
from remat_gen.solver.solve import Solver
from remat_gen.verification.peak import model_peak

aten = torch.ops.aten

# what stands behind the gradient in each call
ELEMENTS: dict[str, Callable[[torch.Tensor], tuple[object, ...]]] = {
    "elu_backward": lambda y: (1.0, 1.0, 1.0, False, y),
    "gelu_backward": lambda y: (y,),
    "hardsigmoid_backward": lambda y: (y,),
    "hardtanh_backward": lambda y: (y, -0.5, 0.5),
    "leaky_relu_backward": lambda y: (y, 0.01, False),
    "sigmoid_backward": lambda y: (y.sigmoid(),),
    "silu_backward": lambda y: (y,),
    "softplus_backward": lambda y: (y, 1.0, 20.0),
    "tanh_backward": lambda y: (y.tanh(),),
    "threshold_backward": lambda y: (y, 0.0),
}
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ELEMENTS)
def test_a_kernel_may_write_over_its_gradient(name: str, dtype: torch.dtype) -> None:
    """More elements than fit a vector, a row, or a thread's share; and such that none is left."""
    operator = getattr(aten, name)
    for shape in ((7,), (3, 1031), (256, 1024)):
        d, y = (torch.randn(shape).to(dtype) for _ in range(2))
        rest = ELEMENTS[name](y)
        expected = operator.default(d, *rest)
        got = operator.grad_input(d, *rest, grad_input=d)
        assert got.data_ptr() == d.data_ptr()
        assert torch.equal(got, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("name", "keyword", "forward"),
    [
        ("_softmax_backward_data", "grad_input", torch.softmax),
        ("_log_softmax_backward_data", "out", torch.log_softmax),
    ],
)
def test_a_softmax_may_write_over_its_gradient(
    name: str, keyword: str, forward: Callable[..., torch.Tensor], dtype: torch.dtype
) -> None:
    """Rows shorter than a vector, longer than a cache, and of both kinds of memory format."""
    operator = getattr(aten, name)
    for shape in ((5, 3), (4, 8, 127), (2, 50257), (300, 1024)):
        d = torch.randn(shape).to(dtype)
        y = forward(torch.randn(shape).to(dtype), -1)
        expected = operator.default(d, y, -1, dtype)
        got = operator.out(d, y, -1, dtype, **{keyword: d})
        assert got.data_ptr() == d.data_ptr()
        assert torch.equal(got, expected)


MODEL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(32, 512)
        self.down = nn.Linear(512, 32)
        self.head = nn.Linear(32, {classes})

    def forward(self, x):
        x = x + self.down({act}(self.up(x)))
        return F.cross_entropy(self.head(x), torch.zeros({rows}, dtype=torch.long))


def build_model():
    return Net()


def example_inputs():
    return (torch.randn({rows}, 32),)
"""


def smallest(problem: Problem) -> Schedule:
    solver = Solver(problem, "auto")
    return solver.solve(solver.smallest_budget().nbytes).schedule


def unlimited(problem: Problem) -> Schedule:
    solver = Solver(problem, "auto")
    return solver.solve(solver.plain.peak_bytes).schedule


def emitted(
    folder: Path, choose: Callable[[Problem], Schedule], act: str, classes: int = 8, rows: int = 64
) -> Emitted:
    text = HEAD + MODEL.format(act=act, classes=classes, rows=rows)
    return emit(folder, text, choose)


def assert_as_predicted(made: Emitted) -> None:
    measured = model_peak(made.planned.model, made.loaded.args, made.loaded.kwargs, CPU)
    assert measured.peak_bytes == made.peak_bytes
    assert_bitwise(made)


@pytest.mark.parametrize("act", ["F.gelu", "F.silu", "F.leaky_relu", "torch.tanh"])
def test_where_memory_is_short_the_gradient_is_written_over(tmp_path: Path, act: str) -> None:
    made = emitted(tmp_path, smallest, act)
    assert "grad_input=" in made.text
    assert_as_predicted(made)


def test_the_gradient_of_the_loss_is_written_over(tmp_path: Path) -> None:
    made = emitted(tmp_path, smallest, "F.gelu", classes=4096)
    assert "_log_softmax_backward_data.out" in made.text
    assert_as_predicted(made)


def test_where_there_is_room_gradients_are_new(tmp_path: Path) -> None:
    """Memory that is freed and taken alternately is quicker than one that is held."""
    made = emitted(tmp_path, unlimited, "F.gelu", classes=4096)
    assert "gelu_backward.default" in made.text
    assert "grad_input=" not in made.text
    assert_bitwise(made)


def test_less_memory_is_enough(tmp_path: Path) -> None:
    """Without it GELU's gradient needs three values of the MLP at once, with it two."""
    problem = emitted(tmp_path, smallest, "F.gelu").problem
    wide = 64 * 512 * 4
    least = Solver(problem, "auto").smallest_budget().nbytes
    new = Solver(problem.in_new_memory(), "auto").smallest_budget().nbytes
    assert least < 3 * wide <= new


def test_what_another_operation_reads_is_left(tmp_path: Path) -> None:
    """The sum's gradient goes on to both terms: neither may be written over it."""
    made = emitted(tmp_path, smallest, "(lambda y: F.gelu(y) + F.silu(y))")
    names = [value.name for value in made.problem.values]
    read = [v for operation in made.problem.operations for v in operation.inputs]
    over = [o.over for o in made.problem.operations if o.over is not None]
    assert all(read.count(v) == 1 for v in over), [names[v] for v in over]
    assert_bitwise(made)
