"""Buffers that forward makes: traced as there, where later steps do as the first; else refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tracing import LINEAR, source, traced

from remat_gen.capture.load.load import load
from remat_gen.capture.trace.trace import trace, trace_loaded
from remat_gen.ir.errors import TraceError

NONE = f"{LINEAR}\nself.register_buffer('b', None)"
ZEROS = f"{LINEAR}\nself.register_buffer('b', torch.zeros(8))"
MAKE = "if self.b is None:\n    self.register_buffer('b', {})\n"
# what __init__ adds, what forward does
OTHERWISE = {
    "a running mean": (
        ZEROS,
        "self.b = 0.9 * self.b + x.mean(0)\nreturn self.lin(x - self.b).sum()",
    ),
    "a counter that nobody reads": (ZEROS, "self.b = self.b + 1\nreturn self.lin(x).sum()"),
    "a copy of each step's input": (ZEROS, "self.b = x.mean(0)\nreturn self.lin(x).sum()"),
    "drawn in the first step": (
        NONE,
        MAKE.format("torch.rand(8)") + "return (self.lin(x) + self.b).sum()",
    ),
    "with a gradient": (
        NONE,
        MAKE.format("self.lin(x).mean(0)") + "return (self.lin(x) + self.b).sum()",
    ),
    "written in each step": (
        NONE,
        MAKE.format("torch.zeros(8)") + "self.b.add_(1)\nreturn self.lin(x).sum()",
    ),
    "written by itself in each step": (
        NONE,
        MAKE.format("torch.ones(8)") + "self.b.mul_(1)\nreturn (self.lin(x) * self.b).sum()",
    ),
    "another result at first": (
        NONE,
        "if self.b is None:\n    self.b = torch.ones(8)\n    return self.lin(x).sum() * 2\n"
        "return self.lin(x).sum()",
    ),
    "another gradient at first": (
        NONE,
        "w = self.lin.bias.sum()\nif self.b is None:\n    self.b = w.detach()\n"
        "    return self.lin(x).sum() * w\nreturn self.lin(x).sum() * self.b",
    ),
    "a view of another buffer": (
        f"{NONE}\nself.register_buffer('all', torch.ones(9))",
        MAKE.format("self.all[:8]") + "return (self.lin(x) * self.b).sum()",
    ),
    "taken away again": (
        ZEROS,
        "if self.b is not None:\n    self.b = None\nreturn self.lin(x).sum()",
    ),
    "an input that is written": (
        NONE,
        MAKE.format("torch.ones(8)") + "x.mul_(2)\nreturn (self.lin(x) * self.b).sum()",
    ),
}


@pytest.mark.parametrize("case", OTHERWISE)
def test_what_later_steps_do_otherwise_is_refused(tmp_path: Path, case: str) -> None:
    with pytest.raises(TraceError, match=r"self\.(b|x)\b"):
        traced(tmp_path, source(*OTHERWISE[case]))


def test_the_trace_is_that_of_a_model_which_has_run(tmp_path: Path) -> None:
    text = source(NONE, MAKE.format("-torch.arange(8.0)") + "return (self.lin(x) + self.b).sum()")
    found = traced(tmp_path, text)
    warm = "    model = Net()\n    model(*example_inputs())\n    return model\n"
    (tmp_path / "warm").mkdir()
    expected = traced(tmp_path / "warm", text.replace("    return Net()\n", warm))
    assert found.graph == expected.graph
    assert found.first and found.first.made == ("b",) and not found.first.again
    assert expected.first is None


def test_the_model_and_the_random_stream_are_left_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    init = f"{NONE}\nself.norm = nn.BatchNorm1d(8)\nself.length = 0"
    make = "if self.length == 0:\n    self.length = 8\n    self.b = torch.arange(8.0)\n"
    forward = f"{make}return (F.dropout(self.norm(self.lin(x))) + self.b).sum()"
    path.write_text(source(init, forward), encoding="utf-8")
    loaded = load(path, None, None, "cpu")
    model = loaded.model
    state = {name: t.clone() for name, t in model.state_dict().items()}
    stream = torch.get_rng_state()
    found = trace_loaded(loaded)
    assert found.first
    assert torch.equal(torch.get_rng_state(), stream)
    assert (model.b, model.length, [*model.state_dict()]) == (None, 0, [*state])
    assert all(torch.equal(t, state[name]) for name, t in model.state_dict().items())
    with found.held():
        assert model.length == 8
        assert torch.equal(model.b, torch.arange(8.0))
    assert (model.b, model.length) == (None, 0)


@pytest.mark.limit(
    "a buffer that only the first step makes, where that step goes on otherwise than later ones, "
    "draws for it, or is one of a unit's or of a `--target`'s",
    "refused with its name; make it in `__init__`, or run the model once in `build_model()`",
)
def test_units_and_models_without_values_are_refused(tmp_path: Path) -> None:
    """`check` builds the model with values then."""
    path = tmp_path / "net.py"
    text = source(NONE, MAKE.format("-torch.arange(8.0)") + "return (self.lin(x) + self.b).sum()")
    path.write_text(text, encoding="utf-8")
    for loaded, taken in (
        (load(path, None, None, "cpu", fake=True), None),
        (load(path, None, None, "cpu"), frozenset({0})),
    ):
        with pytest.raises(TraceError, match=r"self\.b.*run the model once in build_model\(\)"):
            trace(loaded.model, loaded.args, loaded.kwargs, path, taken=taken)
