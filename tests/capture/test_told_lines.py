"""What Dynamo refuses is traced with the same names, lines and modules as what it accepts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tracing import source, traced

from remat_gen.capture.trace import joint
from remat_gen.capture.trace.assigned_names import assigned
from remat_gen.ir.graph import Graph

INIT = (
    "self.inner = nn.ModuleList(Inner() for _ in range(2))\n"
    "self.drop = nn.Dropout(0.5)\n"
    "self.head = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8))"
)
BEFORE = """

class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def mix(self, q, k):
        scores = q @ k.transpose(-2, -1) / 2
        return F.softmax(scores, -1)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        weights = self.mix(q, k)
        return weights @ v + torch.sigmoid(v)

"""
FORWARD = (
    "for layer in self.inner:\n"
    "    x = layer(x)\n"
    "x = self.drop(x)\n"
    "low, high = torch.aminmax(x.detach())\n"
    "scaled = (x - low) / (high - low)\n"
    "loss = F.mse_loss(self.head(scaled), scaled)\n"
    "return loss"
)


def told(graph: Graph) -> list[tuple[str, str, str, str]]:
    return [
        (o.name, o.module, o.target, f"{o.source.line} {o.source.text}") for o in graph.operations
    ]


def test_names_lines_and_modules_are_those_of_dynamo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = source(INIT, FORWARD, before=BEFORE)
    strict = traced(tmp_path, text)
    monkeypatch.setattr(joint, "_strict", lambda *_: 1 / 0)
    told_so = traced(tmp_path, text)
    assert (strict.strict, told_so.strict) == (True, False)
    names = [name for name, *_ in told(told_so.graph)]
    assert {"inner.0.scores", "inner.1.weights", "scaled", "loss", "drop.x_scale"} <= set(names)
    assert told(told_so.graph) == told(strict.graph)
    assert told_so.graph.layers == strict.graph.layers


def test_a_forward_that_dynamo_refuses_has_its_lines(tmp_path: Path) -> None:
    forward = "y = x.detach().requires_grad_()\nz = torch.tanh(self.lin(y))\nreturn z.sum()"
    found = traced(tmp_path, source("self.lin = nn.Linear(8, 8)", forward))
    assert not found.strict
    assert {o.source.text for o in found.graph.operations} == set(forward.splitlines()[1:])


def test_nothing_is_left_behind_on_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = sys.modules["torch.nn.modules.module"]
    before = (
        dict(vars(hooks)["_global_forward_hooks"]),
        dict(vars(hooks)["_global_forward_pre_hooks"]),
    )
    monkeypatch.setattr(joint, "_strict", lambda *_: 1 / 0)
    traced(tmp_path, source("self.lin = nn.Linear(8, 8)", "return self.lin(x).sum()"))
    assert before == (
        vars(hooks)["_global_forward_hooks"],
        vars(hooks)["_global_forward_pre_hooks"],
    )


def here() -> tuple[str, ...]:
    """Return what the caller assigns this call's result to."""
    frame = sys._getframe(1)
    return assigned([frame])


def passed_on() -> tuple[str, ...]:
    return assigned([sys._getframe(0), sys._getframe(1)])  # by its own return


class Indexed:
    def __getitem__(self, index: int) -> tuple[str, ...]:
        return here_of(2)


def here_of(depth: int) -> tuple[str, ...]:
    return assigned([sys._getframe(depth)])


def test_what_results_are_assigned_to() -> None:
    plain = here()
    first, second = here() or ("", "")
    direct = passed_on()
    item = Indexed()[0]
    assert plain == ("plain",)
    assert direct == ("direct",)
    assert item == ("item",)
    assert (first, second) == ("", "")  # `or` reads it first
    assert [here()] == [()]


def test_results_that_are_unpacked() -> None:
    class Pair(tuple[str, ...]):
        __slots__ = ()

    def pair() -> tuple[str, str]:
        found = assigned([sys._getframe(1)])
        return found if len(found) == 2 else ("", "")  # type: ignore[return-value]

    left, right = pair()
    assert (left, right) == ("left", "right")
    (one, two), three = pair(), pair()
    assert (one, two) == ("", "")  # a tuple of both is made first
    assert three == ("", "")
