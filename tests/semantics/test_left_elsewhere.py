"""What forward leaves for others that is no tensor on a module: numbers, other files, objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pairs import Pair, make_pair_of
from sources import model_source
from steps import assert_right, verified

import remat_gen

NUMBERS = """
self.rows = x.shape[0]
self.sizes = tuple(x.shape)
self.width = x.shape[1]
self.head.mode = "train"
return self.head(self.body(x))
"""


@pytest.fixture(scope="module")
def numbers() -> Pair:
    return make_pair_of(model_source(NUMBERS), "lowest", "per-layer")


def test_numbers_are_those_of_the_step(numbers: Pair) -> None:
    """A loop divided the summed loss by the rows of the last evaluation."""
    (x,) = numbers.inputs()[0]
    for model in numbers.models():
        model.eval()(x[:2])
        model.head.mode = "eval"
        model.width = 0
        model.train()(x)
        assert (model.width, model.head.mode) == (8, "train")


def test_what_varies_with_the_batch_is_that_of_the_step(numbers: Pair) -> None:
    """It was that of the last evaluation, or None."""
    _, planned = numbers.models()
    (x,) = numbers.inputs()[0]
    planned.eval()(x[:2])
    assert (planned.rows, planned.sizes) == (2, (2, 8))
    for rows in (6, 5):
        planned.train()(x[:rows])
        assert (planned.rows, planned.sizes) == (rows, (rows, 8))


def test_with_one_batch_all_of_them_are_known(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(model_source(NUMBERS), encoding="utf-8")
    output = remat_gen.generate(path, budget="100%", static=True, device="cpu").output
    assert output is not None
    assert "self.rows = 6" in output.read_text(encoding="utf-8")


OWN = """
class Scales(nn.Linear):
    def __setattr__(self, name, value):
        super().__setattr__(name, value * 0.01 if name == "aux" else value)

    def forward(self, x: Tensor) -> Tensor:
        self.aux = x.square().mean()
        self.seen = 3
        return super().forward(x)
"""


def test_what_a_class_makes_of_it_is_made_once() -> None:
    forward = "h = self.own(self.body(x))\nreturn self.head(h)"
    init = "self.own = Scales(8, 8)"
    source = model_source(forward, init=init).replace("\n\nclass Model", f"\n{OWN}\n\nclass Model")
    original, planned = make_pair_of(source, "lowest", "per-layer").models()
    x = torch.randn(6, 8)
    for model in (original, planned):
        torch.manual_seed(3)
        model(x)
    assert torch.equal(original.own.aux, planned.own.aux)
    assert planned.own.seen == original.own.seen == 3


TRACKER = """
import contextvars

LAST = 0.0
RATE = contextvars.ContextVar("rate", default=0.0)


def report(value):
    global LAST
    LAST = value
"""


def generate(folder: Path, forward: str, prelude: str = "") -> remat_gen.Generated:
    (folder / "tracker_of_test.py").write_text(TRACKER, encoding="utf-8")
    path = folder / "model.py"
    path.write_text(model_source(forward, prelude=prelude), encoding="utf-8")
    return remat_gen.generate(path, budget="100%", device="cpu")


@pytest.mark.parametrize(
    ("prelude", "call"),
    [
        ("import tracker_of_test", "tracker_of_test.report(h.mean())"),
        ("from tracker_of_test import report", "report(h.mean())"),
        ("import tracker_of_test", "tracker_of_test.LAST = x.shape[0]"),
    ],
    ids=["by its function", "by a function alone", "a number"],
)
def test_another_file_that_is_told(tmp_path: Path, prelude: str, call: str) -> None:
    forward = f"h = self.body(x)\n{call}\nreturn self.head(h)"
    with pytest.raises(remat_gen.RematError, match="changes the global variable LAST"):
        generate(tmp_path, forward, prelude)


@pytest.mark.limit(
    "what `forward` leaves in other places for a loop to read: context variables, closures, "
    "objects with slots or of other files, attributes of parameters",
    "not noticed, and not there behind a planned step: return it, or keep it on the module",
)
def test_a_context_variable_is_not_set(tmp_path: Path) -> None:
    forward = "h = self.body(x)\ntracker_of_test.RATE.set(1.0)\nreturn self.head(h)"
    text = generate(tmp_path, forward, "import tracker_of_test").text
    assert text.count("RATE.set(") == 1  # in forward_eager


@pytest.mark.parametrize("held", ["vars(self)", 'object.__getattribute__(self, "__dict__")'])
def test_what_is_looked_up_in_the_dict_of_a_module_is_read(tmp_path: Path, held: str) -> None:
    """It went on from what the step before had left, unseen by what attributes are asked for.

    With the same inputs it is the same again: other numbers left there tell.
    """
    forward = f"""
    h = self.body(x)
    before = {held}.get("mean")
    self.mean = h.detach().mean()
    return self.head(h) if before is None else self.head(h) + (self.mean - before)
    """
    with pytest.raises(remat_gen.RematError, match=r"(keeps a tensor in|changes) self\.mean"):
        generate(tmp_path, forward)


def test_verify_sends_gradients_into_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """None came into a mixture's balance: a mistake behind it alone was called bitwise."""
    forward = (
        "h = self.body(x)\nself.aux = h.softmax(-1).mean(0).square().sum()\nreturn self.head(h)"
    )
    pair = make_pair_of(model_source(forward), "lowest", "per-layer")
    original, planned = pair.models()
    args, kwargs = pair.inputs()

    def gradients() -> bool | None:
        return verified(original, planned, args, kwargs, "gradients")[0]

    assert gradients()
    right: Any = vars(pair.planned)["incoming_gradient"]

    def wrong(gradient: Any, like: Any) -> Any:
        return right(gradient, like) * (1 if like[0] else 2)

    monkeypatch.setattr(pair.planned, "incoming_gradient", wrong)
    assert not gradients()


CARRIED = {
    "of the first step": (
        "if self.rows is None:\n    self.rows = x.shape[0]\n"
        "return self.head(self.body(x / self.rows))",
        "self.rows = None",
    ),
    "of the step before": (
        "y = self.head(self.body(x / self.rows))\nself.rows = x.shape[0]\nreturn y",
        "self.rows = 6",
    ),
}


@pytest.mark.parametrize(("forward", "init"), CARRIED.values(), ids=CARRIED)
def test_a_size_that_is_remembered_pins_the_batch(forward: str, init: str) -> None:
    """In the example it is the same each time; of other batches it was the example's."""
    pair = make_pair_of(model_source(forward, init=init), "lowest", "per-layer")
    _, planned = pair.models()
    (x,) = pair.inputs()[0]
    with pytest.raises(ValueError, match=r"x is float32\[3, 8\]"):
        planned(x[:3])
    planned(x)
    planned.eval()(x[:2])
    planned.rows = 2
    with pytest.raises(ValueError, match=r"rows is 2, planned for"):
        planned.train()(x)


def test_a_forward_that_has_one_batch_alone() -> None:
    """It does not run with fewer rows, which was taken for a mistake of the model's."""
    forward = "self.rows = x.shape[0]\nreturn self.head(self.body(x.view(6, 8)))"
    pair = make_pair_of(model_source(forward), "lowest", "per-layer")
    _, planned = pair.models()
    planned(*pair.inputs()[0])
    assert planned.rows == 6


def test_a_name_that_is_no_identifier() -> None:
    forward = "y = self.head(self.body(x))\nsetattr(self, 'loss/mean', y.mean())\nreturn y"
    pair = make_pair_of(model_source(forward), "lowest", "per-layer")
    found = []
    for model in pair.models():
        torch.manual_seed(3)
        model(*pair.inputs()[0])
        found.append(vars(model)["loss/mean"])
    assert torch.equal(*found)


@pytest.mark.limit(
    "a table of the longest call so far that is kept as a plain attribute, and whose numbers "
    "follow from how long that was (`torch.linspace(0, 1, n)`)",
    "a planned step has the example's numbers: make it a buffer, which is compared",
)
def test_a_table_of_the_longest_call_is_the_examples() -> None:
    forward = """
    n = x.shape[1]
    if self.table is None or self.table.shape[0] < n:
        self.table = torch.linspace(0, 1, n)
    return self.head(self.body(x + self.table[:n]))
    """
    pair = make_pair_of(model_source(forward, init="self.table = None"), "lowest", "per-layer")
    _, planned = pair.models()
    (x,) = pair.inputs()[0]
    torch.manual_seed(3)
    first = planned(x)
    planned.table = torch.linspace(0, 1, 32)
    torch.manual_seed(3)
    assert torch.equal(planned(x), first)


CONDITIONED = """
for layer in self.layers:
    layer.skips = False
for layer in self.layers:
    x = x if layer.skips else layer(x)
for layer in self.layers:
    layer.skips = None
return self.head(x)
"""


def test_what_forward_puts_there_before_it_reads_it_may_be_anything() -> None:
    """A condition that `__init__` does not know, and that is cleared at the end of each step."""
    pair = make_pair_of(model_source(CONDITIONED), "lowest", "per-layer")
    assert_right(pair)
    _, planned = pair.models()
    planned.layers[1].skips = True
    planned(*pair.inputs()[0])
    assert planned.layers[1].skips is None


@pytest.mark.parametrize("made", ["x.new_ones(shape)", "torch.zeros_like(x) + 1"])
def test_a_table_in_the_file_that_has_the_shape_of_an_input(made: str) -> None:
    """Optical flow keeps one so: of the input it knows the shape alone."""
    forward = f"""
    shape = tuple(x.shape)
    if shape not in TABLES:
        TABLES[shape] = {made}
    return self.head(self.body(x * TABLES[shape]))
    """
    assert_right(make_pair_of(model_source(forward, prelude="TABLES = {}"), "lowest", "per-layer"))


def test_a_sparse_buffer_that_nobody_reads(tmp_path: Path) -> None:
    """Whisper's heads of attention."""
    path = tmp_path / "model.py"
    init = "self.register_buffer('heads', torch.eye(4).to_sparse(), persistent=False)"
    path.write_text(model_source("return self.head(self.body(x))", init=init), encoding="utf-8")
    output = remat_gen.generate(path, budget="100%", device="cpu").output
    assert output is not None
    assert remat_gen.verify(output).ok
