"""Buffers that forward makes in its first step: planned as there, made as eager makes them."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from emitting_parts import emit_again
from pairs import Pair, make_pair_of, plan_file
from sources import model_source
from steps import assert_right, assert_same, run_steps
from torch import nn

from remat_gen.review.generated_module import Existing
from remat_gen.review.verifying import verify_file
from remat_gen.show.summary import summary_json

BODY = "x = self.body(x)\n"
NONE = "self.register_buffer('table', None)"
ZEROS = "self.register_buffer('table', torch.zeros(8), persistent=False)"
# what __init__ adds, what forward does behind the body
MADE = {
    "None, not persistent": (
        NONE,
        "if self.table is None:\n"
        "    self.register_buffer('table', -torch.arange(8.0), persistent=False)\n"
        "return self.head(x + self.table)",
    ),
    "None, in the state": (
        NONE,
        "if self.table is None:\n    self.table = -torch.arange(8.0)\n"
        "return self.head(x + self.table)",
    ),
    "not there at all": (
        "",
        "if not hasattr(self, 'table'):\n    self.register_buffer('table', -torch.arange(8.0))\n"
        "return self.head(x + self.table)",
    ),
    "of another shape": (
        "self.register_buffer('table', torch.zeros(1, 3))",
        "if self.table.shape[1] != x.shape[1]:\n    self.table = torch.ones(1, 8).cumsum(1)\n"
        "return self.head(x * self.table)",
    ),
    "where the length is another": (
        f"{NONE}\nself.length = 0",
        "if self.table is None or self.length != x.shape[1]:\n    self.length = x.shape[1]\n"
        "    self.table = torch.arange(float(self.length))\n"
        "return self.head(x + self.table)",
    ),
    "of the same shape, by a flag": (
        "self.register_buffer('table', torch.zeros(8))\nself.ready = False",
        "if not self.ready:\n    self.ready = True\n    self.table = torch.arange(8.0)\n"
        "return self.head(x + self.table)",
    ),
    "an equal one in each step": (
        "self.register_buffer('table', torch.zeros(8))",
        "self.table = torch.arange(float(x.shape[1]))\nreturn self.head(x + self.table)",
    ),
    "of what the first step is given": (
        NONE,
        "if self.table is None:\n    self.table = x.detach().std(0)\n"
        "return self.head(x / self.table)",
    ),
    "filled where it is, by a number": (
        f"{ZEROS}\nself.length = 0",
        "if self.length < x.shape[1]:\n    self.length = x.shape[1]\n"
        "    self.table[:] = torch.arange(8.0)\nreturn self.head(x + self.table)",
    ),
    "filled where it is, from a parameter": (
        f"{ZEROS}\nself.register_buffer('count', torch.zeros(()))\nself.length = 0\n"
        "self.scale = nn.Parameter(torch.ones(8) / 3, requires_grad=False)",
        "self.count += 1\nx = x + self.count\n"
        "if self.length == x.shape[1]:\n    return self.head(x * self.table)\n"
        "table = torch.arange(8.0) * self.scale\nself.table.copy_(table)\n"
        "self.length = x.shape[1]\nreturn self.head(x * table)",
    ),
    "filled from what the first step is given": (
        f"{ZEROS}\nself.norm = nn.BatchNorm1d(8)\nself.ready = False",
        "x = self.norm(x)\nif not self.ready:\n    self.ready = True\n"
        "    self.table.copy_(x.detach().std(0))\nreturn self.head(x + self.table)",
    ),
    "beside running statistics": (
        f"{NONE}\nself.norm = nn.BatchNorm1d(8)",
        "x = self.norm(x)\nif self.table is None:\n    self.table = torch.arange(8.0)\n"
        "return self.head(x + self.table)",
    ),
}


def pair_of(case: str) -> Pair:
    init, forward = MADE[case]
    return make_pair_of(model_source(BODY + forward, init=init), "lowest", "per-layer")


@pytest.mark.parametrize("case", MADE)
def test_the_steps_of_a_fresh_model_are_eagers(case: str) -> None:
    """Buffers are compared as well: they are there after the first step, and equal."""
    pair = pair_of(case)
    for steps in (1, 3):
        assert_right(pair, steps)


@pytest.mark.parametrize("case", MADE)
def test_the_state_has_the_names_that_eagers_has(case: str) -> None:
    pair = pair_of(case)
    names = []
    for model in pair.models():
        before = [*model.state_dict()]
        run_steps(model, pair, 1)
        names.append((before, [*model.state_dict()]))
    assert names[0] == names[1]
    assert ("table" in names[0][1]) == (case != "None, not persistent" and "filled" not in case)


def test_a_model_that_has_run_steps_as_eager_does() -> None:
    """Evaluation makes the buffer, too; a copy of a model, and a state that was saved, have it."""
    pair = pair_of("None, in the state")
    args, _ = pair.inputs()
    original, planned = pair.models()
    for model in (original, planned):
        model.eval()(*args)
        model.train()
    assert_same(run_steps(copy.deepcopy(original), pair), run_steps(copy.deepcopy(planned), pair))
    state = original.state_dict()
    assert "table" in state
    assert_same(run_steps(original, pair), run_steps(planned, pair))


def test_forward_runs_ahead_of_the_first_step_alone() -> None:
    pair = pair_of("None, in the state")
    _, planned = pair.models()
    calls: list[bool] = []
    eager = type(planned).forward_eager

    def counted(self: nn.Module, x: torch.Tensor) -> object:
        calls.append(torch.is_grad_enabled())
        return eager(self, x)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(planned), "forward_eager", counted)
        run_steps(planned, pair, 3)
    assert calls == [False]


def test_another_buffer_than_planned_for_is_named_with_both() -> None:
    pair = pair_of("of another shape")
    _, planned = pair.models()
    args, _ = pair.inputs()
    planned(*args)
    planned.table = torch.ones(1, 9)
    says = r"table: buffer float32\[1, 9\].*planned for .*float32\[1, 8\]"
    with pytest.raises(ValueError, match=says):
        planned(*args)


def test_other_values_of_what_each_step_makes_are_named_with_both() -> None:
    pair = pair_of("an equal one in each step")
    _, planned = pair.models()
    args, _ = pair.inputs()
    planned(*args)
    planned.table[1] = 7.0
    with pytest.raises(ValueError, match=r"table is .*0\.0, 7\.0, 2\.0.*planned for .* 1\.0, 2\.0"):
        planned(*args)


def test_a_first_step_by_the_longest_alone_pins_the_batch() -> None:
    """A shorter first step would leave another buffer than the plan's."""
    forward = (
        "if self.table is None or self.table.shape[0] < x.shape[0]:\n"
        "    self.table = torch.arange(float(x.shape[0]))[:, None]\n"
        "return self.head(x + self.table[:x.shape[0]])"
    )
    pair = make_pair_of(
        model_source(BODY + forward, init=NONE), "lowest", "per-layer", dynamic=None
    )
    assert not pair.plan.dynamic
    assert_right(pair)
    pair = make_pair_of(
        model_source(BODY + MADE["None, in the state"][1], init=NONE),
        "lowest",
        "per-layer",
        dynamic=None,
    )
    assert pair.plan.dynamic
    original, planned = pair.models()
    (x,), _ = pair.inputs()
    outputs = []
    for model in (original, planned):
        torch.manual_seed(5)
        outputs.append(model(x[:4]))
    assert torch.equal(*outputs)


def test_numbers_of_the_longest_first_step_alone_pin_the_batch() -> None:
    """A shorter first step would fill less of the buffer."""
    forward = (
        "if self.length < x.shape[0]:\n    self.length = x.shape[0]\n"
        "    self.table[:self.length] = torch.arange(float(self.length))\n"
        "return self.head(x + self.table[:x.shape[0], None])"
    )
    init = f"{ZEROS}\nself.length = 0"
    pinned = make_pair_of(
        model_source(BODY + forward, init=init), "lowest", "per-layer", dynamic=None
    )
    assert not pinned.plan.dynamic
    assert_right(pinned)
    init, forward = MADE["filled where it is, by a number"]
    pair = make_pair_of(
        model_source(BODY + forward, init=init), "lowest", "per-layer", dynamic=None
    )
    assert pair.plan.dynamic


def test_verify_lets_each_run_fill_them(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    init, forward = MADE["filled where it is, from a parameter"]
    path.write_text(model_source(BODY + forward, init=init))
    assert not plan_file(path, "100%", "none").original  # it repeats itself
    report = verify_file(path.with_name("model_remat.py"))
    assert report.bitwise and report.ok


def test_weights_cast_while_forward_runs_ahead_are_cast_again_with_a_gradient() -> None:
    """Older autocasts keep them, of a run without gradients too."""
    init, forward = MADE["None, in the state"]
    context = "\n\ndef step_context():\n    return torch.autocast('cpu', torch.bfloat16)\n"
    source = model_source(BODY + forward, init=init) + context
    pair = make_pair_of(source, "lowest", "per-layer")
    _, planned = pair.models()
    args, _ = pair.inputs()
    with torch.autocast("cpu", torch.bfloat16):
        planned(*args)
        eager = planned.forward_eager(*args)
    eager.float().sum().backward()
    assert all(parameter.grad is not None for parameter in planned.parameters())


def test_the_summary_names_them(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(model_source(BODY + MADE["None, in the state"][1], init=NONE))
    generated = plan_file(path, "100%", "none")
    assert "first step  makes table: forward runs ahead" in repr(generated)
    assert summary_json(generated)["made"] == ["table"]
    assert generated.text == emit_again(Existing.find(path.with_name("model_remat.py")))
