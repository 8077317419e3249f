"""What an evaluation makes of a model, and the next training step's forward undoes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from emitting_parts import emit_again
from pairs import Pair, make_pair_of, plan_file
from sources import model_source
from steps import assert_same, run_steps, same
from torch import Tensor, nn

from remat_gen.ir.errors import TraceError
from remat_gen.review.generated_module import Existing
from remat_gen.review.verifying import verify_file
from remat_gen.show.summary import summary_json

INIT = "self.scaled = False\nself.norm = nn.BatchNorm1d(8)"
TURN = """
    @torch.no_grad()
    def turn(self) -> None:
        self.head.weight.mul_(FACTOR if self.training else 1 / FACTOR)
        self.scaled = not self.training

"""
FORWARD = "if self.training == self.scaled:\n    self.turn()\nx = self.body(self.norm(x))\n"
RESULT = "return self.head(x) * (1 if self.training else FACTOR)"


def source(factor: str = "2.0", forward: str = FORWARD + RESULT) -> str:
    """Return a model whose head's weight is divided for evaluation, as RWKV's are."""
    text = model_source(forward, init=INIT, prelude=f"FACTOR = {factor}\n")
    return text.replace("\n    def body", f"{TURN}    def body")


def test_steps_behind_evaluations_are_eagers() -> None:
    pair = make_pair_of(source(), "lowest", "per-layer")
    models = pair.models()
    args, _ = pair.inputs()
    for _ in range(3):
        assert_same(*(run_steps(model, pair) for model in models))
        torch.manual_seed(7)
        outputs = [model.eval()(*args) for model in models]
        assert torch.equal(*outputs)
        assert torch.equal(*(model.head.weight for model in models))
        for model in models:
            model.train()


def test_a_step_in_training_mode_under_no_grad_turns_it_back_itself() -> None:
    pair = make_pair_of(source(), "lowest", "per-layer")
    models = pair.models()
    args, _ = pair.inputs()
    for model in models:
        model.eval()(*args)
        with torch.no_grad():
            model.train()(*args)
    assert_same(*(run_steps(model, pair) for model in models))


@pytest.mark.limit(
    "an evaluation that changes what `forward` reads, where the next step does not undo all of it",
    "an error with its name in that step, and in `verify`, which takes one; where it is undone to "
    "the bit (RWKV's scaled weights) forward runs ahead of that step",
)
def test_what_the_step_does_not_undo_to_the_bit_is_named_as_before() -> None:
    """A third does not come back: behind an evaluation eager's weights are others, too."""
    pair = make_pair_of(source("3.3"), "lowest", "per-layer")
    planned = pair.models()[1]
    args, _ = pair.inputs()
    planned.head.weight.data.fill_(0.7)
    planned.eval()(*args)
    with pytest.raises(ValueError, match="scaled is True, planned for False"):
        planned.train()(*args)


def test_a_step_that_goes_on_otherwise_behind_an_evaluation_is_no_undoing() -> None:
    forward = "was = self.scaled\n" + FORWARD + "return self.head(x) + (1.0 if was else 0.0)"
    pair = make_pair_of(source(forward=forward), "lowest", "per-layer")
    planned = pair.models()[1]
    args, _ = pair.inputs()
    planned.eval()(*args)
    with pytest.raises(ValueError, match="scaled is True, planned for False"):
        planned.train()(*args)


def test_verify_takes_a_step_behind_an_evaluation(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(source("3.3"))
    assert not plan_file(path, "100%", "none").turned
    report = verify_file(path.with_name("model_remat.py"))
    (row,) = (row for row in report.rows() if row.ok is False)
    assert row.what == "evaluation" and "scaled is True, planned for False" in row.detail


def test_the_summary_names_it_and_verify_compares_it(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(source())
    generated = plan_file(path, "100%", "none")
    assert "evaluation  turns scaled: forward runs ahead of the next step" in repr(generated)
    assert summary_json(generated)["turned"] == ["scaled"]
    assert generated.text == emit_again(Existing.find(path.with_name("model_remat.py")))
    report = verify_file(path.with_name("model_remat.py"))
    assert report.bitwise and report.ok


@pytest.mark.untold(
    "The gradient of a buffer that `forward` lets require grad (`self.zero.requires_grad_()`): "
    "eager leaves it in `.grad`, a planned step leaves None."
)
def test_a_buffer_that_forward_lets_require_grad() -> None:
    """As vector quantizers begin their losses: an evaluation leaves it so, and training goes on."""
    lines = "return self.head(self.body(x)).square().mean() + self.zero.requires_grad_()"
    source = model_source(lines, init='self.register_buffer("zero", torch.tensor(0.0))')
    pair, found = make_pair_of(source), []
    (x,), _ = pair.inputs()
    models = pair.models()
    for model in models:
        found.append([])
        for _ in range(3):
            torch.manual_seed(0)
            loss = model.train()(x)
            loss.backward()
            found[-1] += loss.detach(), *(p.grad for p in model.parameters())
            model.eval()(x)
            assert model.zero.requires_grad
        assert (model.zero.grad is None) == (model is models[1])
    assert all(map(torch.equal, *found))


@pytest.mark.limit(
    "a table that `forward` makes anew where it is too short, once an evaluation of longer inputs "
    "has made a longer one",
    "an error with both sizes in the next planned step; make it as long as any call needs it in "
    "`build_model()`",
)
@pytest.mark.parametrize("rows", [6, 12])
def test_a_table_that_grows_in_an_evaluation(rows: int) -> None:
    forward = """
    if self.table.shape[0] < x.shape[0]:
        self.table = torch.arange(float(x.shape[0]))[:, None].cos()
    return self.head(self.body(x) * self.table[:x.shape[0]]).square().mean()
    """
    init = f"self.table = torch.arange({rows}.0)[:, None].cos()"
    pair = make_pair_of(model_source(forward, init=init))
    (x,), _ = pair.inputs()
    _, model = pair.models()
    model(x)
    model.eval()(torch.randn(12, 8))
    if rows == 12:
        model.train()(x)
        return
    with pytest.raises(ValueError, match=r"table is float32\[12, 1\].*planned for float32\[6, 1\]"):
        model.train()(x)


ROTARY = """
    if x.shape[1] {asked} self.cached:
        self.cached = x.shape[1]
        self.table = torch.arange(float(x.shape[1]))[:, None].cos()
    x = self.body(x * self.table[:x.shape[1]])
    return self.head(x).square().mean()
"""


def _rotary(asked: str) -> Pair:
    text = ROTARY.format(asked=asked)
    init = "self.cached, self.table = 0, None"
    return make_pair_of(model_source(text, init=init, inputs="(torch.randn(2, 6, 8),)"))


def _trained(model: nn.Module, lengths: list[int]) -> list[Tensor]:
    """Return what steps of 6 leave, and evaluations of other lengths between them."""
    found: list[Tensor] = []
    for length in lengths:
        model.train(length == 0)
        torch.manual_seed(length)
        loss = model(torch.randn(2, length or 6, 8))
        found += [loss.detach(), torch.tensor(model.cached), model.table.clone()]
        if model.training:
            loss.backward()
            found += [p.grad.clone() for p in model.parameters()]
    return found


@pytest.mark.parametrize("lengths", [[0, 6, 0], [4, 0, 6, 0], [0, 4, 0, 9, 0, 6, 2, 3, 0]])
def test_a_table_that_is_kept_with_its_length(lengths: list[int]) -> None:
    """Rotary embeddings are kept so: a planned step had set the length, and made no table."""
    models = _rotary("!=").models()
    assert all(map(same, *(_trained(model, lengths) for model in models)))


@pytest.mark.parametrize("lengths", [[0, 6, 0], [4, 0, 2, 0]])
def test_a_table_of_the_longest_call_so_far(lengths: list[int]) -> None:
    models = _rotary(">").models()
    assert all(map(same, *(_trained(model, lengths) for model in models)))


def test_a_step_that_goes_on_otherwise_behind_a_shorter_evaluation_is_no_undoing() -> None:
    forward = (
        "was, self.cached = self.cached, x.shape[1]\n"
        "return self.head(self.body(x if was == 6 else x + 1)).square().mean()"
    )
    inputs = "(torch.randn(2, 6, 8),)"
    pair = make_pair_of(model_source(forward, init="self.cached = 6", inputs=inputs))
    planned = pair.models()[1]
    planned.eval()(torch.randn(2, 3, 8))
    with pytest.raises(ValueError, match="cached is 3, planned for 6"):
        planned.train()(torch.randn(2, 6, 8))


def test_a_table_of_lengths_that_vary_is_made_for_the_longest() -> None:
    """A step reads what the one before has left: it is refused, and what is told helps."""
    init = "self.cached, self.table = 0, None"
    text = model_source(ROTARY.format(asked="!="), init=init, inputs="(torch.randn(2, 6, 8),)")
    with pytest.raises(TraceError, match=r"cached as the step before .* make what goes by it in"):
        make_pair_of(text, dynamic=("x:1",))
    text = text.replace("!= self.cached", "> self.cached")
    pair = make_pair_of(text.replace("0, None", "6, torch.rand(6, 1)"), dynamic=("x:1",))
    models = pair.models()
    models[1].table = models[0].table
    found: list[list[Any]] = []
    for model in models:
        found.append([])
        for length in (6, 2, 4):
            torch.manual_seed(length)
            found[-1].append(model(torch.randn(2, length, 8)))
            found[-1][-1].backward()
        found[-1] += [p.grad for p in model.parameters()]
    assert all(map(torch.equal, *found))
