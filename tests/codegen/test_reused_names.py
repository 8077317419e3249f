"""One name for a variable and for what is written over it, where no line needs them apart."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from emitting import HEAD, emit, keep_all

from remat_gen.codegen.classes.reused_names import reused_names, without_assignment
from remat_gen.codegen.expressions.marks import Mark, kept, value
from remat_gen.codegen.statements.statements import Body, Function, Statement
from remat_gen.ir.graph import Graph, Kind, Storage, Tensor


def _graph(**hints: str) -> Graph:
    """Return a graph of values alone, by the names that the trace found for them."""
    tensors = {
        name: Tensor(name, (4,), (1,), 0, "float32", "cpu", name, hint=hint)
        for name, hint in hints.items()
    }
    storages = {name: Storage(name, 16, Kind.ACTIVATION) for name in hints}
    return Graph((), (), (), tensors, storages, (), (), ())


def _made(name: str) -> Statement:
    return Statement(f"{value(name)} = torch.ones(4)")


def _over(result: Mark, taken: str) -> Statement:
    return Statement(f"{result} = {value(taken)}.mul_(2)", over=True)


def _in_kernel(result: Mark, taken: str) -> Statement:
    return Statement(f"{result} = kernel({value(taken)}, out={value(taken)})", over=True)


def _body(*forward: Statement, backward: tuple[Statement, ...] = ()) -> Body:
    return Body(0, Function(forward, {}), Function(backward, {}), ())


A, B, C = value("a"), value("b"), value("c")


def test_an_operators_name_gives_way_to_the_users() -> None:
    graph = _graph(a="matmul", b="scores", c="scores")
    body = _body(_made("a"), _over(B, "a"), _over(C, "b"))
    assert reused_names(graph, body) == {"a": "b", "b": "b", "c": "b"}


def test_of_operators_names_the_makers_is_taken() -> None:
    body = _body(_made("a"), _over(B, "a"))
    assert reused_names(_graph(a="mean", b="add"), body) == {"a": "a", "b": "a"}


def test_a_gradient_is_called_by_what_it_is_of_in_the_end() -> None:
    body = _body(_made("a"), _over(B, "a"))
    assert reused_names(_graph(a="d_rsqrt_mul", b="d_add"), body) == {"a": "b", "b": "b"}


def test_a_line_that_assigns_keeps_operators_names_apart() -> None:
    body = _body(_made("a"), _in_kernel(B, "a"))
    named = reused_names(_graph(a="d_gelu", b="d_up"), body)
    assert named.get("a", "a") != named.get("b", "b")
    assert reused_names(_graph(a="d_up", b="d_up_sum"), body) == {"a": "a", "b": "a"}


def test_a_sum_of_gradients_is_the_gradient() -> None:
    body = _body(_made("a"), _over(B, "a"))
    assert reused_names(_graph(a="d_hidden", b="d_hidden_sum"), body) == {"a": "a", "b": "a"}


def test_what_an_operator_adds_to_a_name_tells_nothing() -> None:
    body = _body(_made("a"), _over(B, "a"))
    named = reused_names(_graph(a="hidden_pow", b="hidden_pow_mul"), body)
    assert named == {"a": "a", "b": "a"}


def test_names_that_say_different_things_stay_apart() -> None:
    body = _body(_made("a"), _over(B, "a"))
    named = reused_names(_graph(a="projected", b="dropped"), body)
    assert named.get("a", "a") != named.get("b", "b")


def test_a_value_is_no_gradient() -> None:
    """`d_up = F.silu(gate)` stood in a forward: backward runs it again, and writes over it."""
    for hints in ({"a": "silu", "b": "d_up"}, {"a": "silu", "b": "d_silu"}):
        named = reused_names(_graph(**hints), _body(_made("a"), _over(B, "a")))
        assert named.get("a", "a") != named.get("b", "b")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(_body(_made("a"), _over(B, "a"), _made("a")), id="made again"),
        pytest.param(
            _body(_made("a"), _over(B, "a"), backward=(_made("a"), _made("b"))),
            id="anew in the other function",
        ),
        pytest.param(_body(_made("a"), replace(_over(B, "a"), blocks=(1,))), id="in some blocks"),
        pytest.param(_body(_made("a"), _over(kept(0, "b"), "a")), id="kept"),
        pytest.param(_body(_made("a"), _made("b")), id="new memory"),
    ],
)
def test_what_a_line_needs_apart_stays_apart(body: Body) -> None:
    named = reused_names(_graph(a="x", b="x"), body)
    assert named.get("a", "a") != named.get("b", "b")


def test_a_line_in_place_says_its_variable_once() -> None:
    assert without_assignment("x = x.mul_(y)") == "x.mul_(y)"
    for line in ("x = x.view(2, 2).mul_(y)", "self.x = x.mul_(y)", "x = x.mul(y)", "x = y.mul_(x)"):
        assert without_assignment(line) == line


MODEL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        scores = self.first(x) @ self.second(x).t() / 3.0
        scores = scores.masked_fill(x[:, :1] > 1, 0.5)
        return scores.softmax(-1).square().mean()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(8, 8),)
"""


def test_the_users_variable_is_one_in_the_file_and_freed_once(tmp_path: Path) -> None:
    _, _, planned = emit(tmp_path, HEAD + MODEL, keep_all).text.partition("(PlannedBlock)")
    written = re.findall(r"^ +(scores.*)", planned, re.MULTILINE)
    assert [line.split("(")[0] for line in written] == [
        "scores = torch.mm",
        "scores.div_",
        "scores.masked_fill_",
    ]
    assert len(re.findall(r"del .*\bscores\b", planned)) == 1
