"""Which batches a plan is for, what pins a batch, and what is said then."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from varying import Varying, assert_as_eager, varying
from varying_models import RESNET, model, one_line

from remat_gen.capture.load.load import load
from remat_gen.capture.trace.trace import Traced, trace
from remat_gen.ir.errors import TraceError, UsageError

BATCH_NORM = one_line("self.norm = nn.BatchNorm1d(8)", "return self.norm(self.lin(x))")
BRANCH = one_line("", "h = self.lin(x)\nreturn h * 2 if len(x) > 3 else h")
SQUEEZE = one_line("", "return self.lin(x).squeeze().sum(0)")
POSITIONS = one_line(
    "self.places = nn.Parameter(torch.zeros(6, 8))", "h = self.lin(x)\nreturn h + self.places"
)
LOOP = one_line("", "h = self.lin(x)\nreturn torch.stack([row * i for i, row in enumerate(h)])")
NUMBER = one_line("", "return self.lin(x) * [0, 1, 2, 3, 4, 5, 6][x.shape[0]]")
NORM = one_line("self.norm = nn.LayerNorm((6, 8))", "h = self.lin(x)\nreturn self.norm(h)")
SELECTED = one_line("", "h = self.lin(x)\nreturn h[x[:, 0] > 0].sum()")
CAPACITY = one_line(
    "",
    """
h = self.lin(x)
rows = int(1.25 * len(x) * 3 / 5) + int(0.5 * len(x)) + int(len(x) / 4 * 1.5)
return h[:rows].sum() + rows * h.mean()
""",
)
TRANSFORMER = model(
    "self.where = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 6))",
    """
    grid = F.affine_grid(self.where(x).view(-1, 2, 3), x.shape, align_corners=False)
    return F.grid_sample(x, grid, padding_mode="reflection", align_corners=False).square().mean()
    """,
    "(torch.randn(5, 1, 6, 6),)",
)
VARIANCE = one_line("", "h = self.lin(x)\nreturn h * h.var(0)")  # of one row it is nan
DEVIATION = one_line("", "h = self.lin(x)\nreturn (h - h.mean(0)) / h.std(0)")
TWO = "(torch.randn(6, 8), torch.randn(5, 8))"
UNEQUAL = model("self.lin = nn.Linear(8, 8)", "return self.lin(x), y", TWO, parameters="x, y")


def traced(folder: Path, source: str, dynamic: tuple[str, ...] | None) -> Traced:
    path = folder / "net.py"
    path.write_text(source, encoding="utf-8")
    loaded = load(path, None, None, "cpu")
    with loaded.importable():
        return trace(loaded.model, loaded.args, loaded.kwargs, path, dynamic)


def test_a_batch_that_takes_another_path_is_refused() -> None:
    planned = varying(BRANCH)
    assert str(planned.length) == "4 <= batch <= 6"
    for number in (6, 5, 4):
        assert_as_eager(planned, number)
    with pytest.raises(ValueError, match=r"\[3, 8\].*\[4 <= batch <= 6, 8\]"):
        planned.steps(3)


@pytest.mark.parametrize("text", ["str(len(x))", "f'{x.shape[0]}'", "repr(x.shape[0])"])
def test_the_text_of_a_length_is_the_examples(tmp_path: Path, text: str) -> None:
    """What is compared with it, or looked up by it, may be another one for another length."""
    forward = f"h = self.lin(x)\nassert h.sum().item() < 1e9\nreturn h * (1 + ({text} in '123'))"
    pinned = traced(tmp_path, one_line("", forward), None).pinned
    assert re.search(
        r"a batch of 6 alone.*; len\(x\), int\(\), float\(\), str\(\) and math make", pinned
    )


def test_a_multiple_of_a_length_made_a_number(tmp_path: Path) -> None:
    """Two crops: 12 rows of a batch of 6."""
    forward = "h = torch.cat((self.lin(x), x))\nreturn h * (1 + (str(len(h)) in '123'))"
    assert "write x.shape[0]" in traced(tmp_path, one_line("", forward), None).pinned


def test_a_length_that_a_guard_is_not_defined_for() -> None:
    """Rows but the first, taken modulo: of one row sympy raised a ZeroDivisionError."""
    planned = varying(
        one_line("", "h = self.lin(x)[1:]\nreturn h.flatten().view(h.shape[0], -1).sum(1)")
    )
    for number in (6, planned.length.minimum):
        assert_as_eager(planned, number)


def test_channels_that_lie_last_in_volumes_of_a_length_that_varies() -> None:
    """A fake convolution said that its result is contiguous, which it is for numbers alone."""
    init = "self.up = nn.ConvTranspose3d(8, 4, (1, 2, 2), (1, 2, 2))"
    volumes = "h = self.lin(x).view(x.shape[0], 1, 2, 2, 8).expand(-1, 3, -1, -1, -1)"
    source = model(
        f"self.lin = nn.Linear(8, 32)\n{init}",
        f"{volumes}\nreturn self.up(h.permute(0, 4, 1, 2, 3).contiguous("
        "memory_format=torch.channels_last_3d)).sigmoid().sum(1)",
        "(torch.randn(6, 8),)",
    )
    planned = varying(source)
    for number in (6, 3):
        assert_as_eager(planned, number)


def from_two(source: str) -> Varying:
    planned = varying(source)
    assert str(planned.length) == "2 <= batch <= 6"
    for number in (6, 5, 2):
        assert_as_eager(planned, number)
    return planned


@pytest.mark.parametrize("source", [SQUEEZE, VARIANCE, DEVIATION], ids=["squeeze", "var", "std"])
def test_one_row_that_takes_another_path_runs_as_eager(source: str) -> None:
    planned = from_two(source)
    with pytest.warns(UserWarning, match="right from 2 on; 1 runs by forward_eager"):
        assert_as_eager(planned, 1)


def test_one_row_that_eager_refuses() -> None:
    planned = from_two(BATCH_NORM)
    for steps in (planned.eager, planned.steps):
        with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
            steps(1)


def test_a_squeeze_of_another_dimension_sets_no_limit(tmp_path: Path) -> None:
    source = one_line("", "return self.lin(x).sum(1, keepdim=True).squeeze(-1)")
    assert [str(n) for n in traced(tmp_path, source, None).graph.lengths] == ["batch <= 6"]


def test_a_grid_that_forward_makes_varies() -> None:
    """A spatial transformer: torch's own gradient of `F.affine_grid` takes plain numbers only."""
    planned = varying(TRANSFORMER)
    assert str(planned.length) == "2 <= batch <= 5"
    for number in (5, 3, 2):
        assert_as_eager(planned, number)


def test_the_kernel_that_torch_picks_for_the_example_sets_no_limit() -> None:
    assert str(varying(RESNET).length) == "batch <= 20"  # torch takes another one from 16 on


PINNED = {
    "positions": (POSITIONS, "return h + self.places"),
    "loop": (LOOP, "for i, row in enumerate(h)"),
    "number": (NUMBER, "[x.shape[0]]"),
    "a layer of torch's": (NORM, "return self.norm(h)"),
}


@pytest.mark.parametrize(("source", "line"), PINNED.values(), ids=PINNED)
def test_a_pinned_batch_is_an_error_where_it_was_asked_for(
    tmp_path: Path, source: str, line: str
) -> None:
    number = next(i for i, text in enumerate(source.splitlines(), 1) if line in text)
    with pytest.raises(TraceError, match=rf"net.py:{number}: .* a batch of 6 alone.*\(x:0\)"):
        traced(tmp_path, source, ("x:0",))


@pytest.mark.parametrize(("source", "line"), PINNED.values(), ids=PINNED)
def test_a_pinned_batch_is_planned_as_it_is_where_it_was_not(
    tmp_path: Path, source: str, line: str
) -> None:
    found = traced(tmp_path, source, None)
    assert found.graph.lengths == ()
    assert "a batch of 6 alone" in found.pinned
    assert found.graph == traced(tmp_path, source, ()).graph


@pytest.mark.limit(
    "shapes that depend on values, where lengths vary",
    "refused with your line",
)
def test_shapes_that_depend_on_values_are_refused_as_ever(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="depends on"):
        traced(tmp_path, SELECTED, None)


def test_numbers_are_rounded_in_the_order_of_forward() -> None:
    """As a mixture of experts says how many rows each takes."""
    planned = varying(CAPACITY)
    assert "int((1.25 * float(batch) * 3.0) / 5.0)" in planned.text
    assert planned.length.minimum == 1
    for number in range(6, 0, -1):
        assert_as_eager(planned, number)


@pytest.mark.parametrize(
    "rows",
    ["int(0.7 * len(x) + 0.1 * len(x))", "int(1.1 * len(x) * 3 / 4)", "int(len(x) / 3 * 1.5)"],
)
def test_numbers_that_depend_on_the_order_have_their_line(tmp_path: Path, rows: str) -> None:
    """Another order of the same may stand elsewhere: torch takes both for one number."""
    forward = f"h = self.lin(x)\nn = {rows}\nreturn h[:n].sum()"
    pinned = traced(tmp_path, one_line("", forward), None).pinned
    assert re.match(r"net.py:17: a size follows from .*: compute it of whole numbers", pinned)


def test_without_a_common_batch_nothing_varies(tmp_path: Path) -> None:
    found = traced(tmp_path, UNEQUAL, None)
    assert found.graph.lengths == ()
    assert found.pinned.startswith("the inputs begin with 5, 6; name what varies")


def test_lengths_within_a_dict_are_named_in_quotes_that_a_shell_takes(tmp_path: Path) -> None:
    inputs = "({'pos': torch.randn(6, 8), 'batch': torch.zeros(5)},)"
    forward = "return self.lin(x['pos']).sum() + x['batch'].sum()"
    source = model("self.lin = nn.Linear(8, 8)", forward, inputs)
    pinned = traced(tmp_path, source, None).pinned
    assert pinned.endswith("""as --dynamic "x['pos']:0\"""")
    assert shlex.split(pinned)[-1] == "x['pos']:0"


def test_a_batch_behind_the_first_dimension_is_suggested(tmp_path: Path) -> None:
    source = model(
        "self.rnn = nn.LSTM(8, 8, 2)",
        "return self.rnn(x, (h, c))[0].sum()",
        "(torch.randn(6, 5, 8), torch.zeros(2, 5, 8), torch.zeros(2, 5, 8))",
        parameters="x, h, c",
    )
    assert traced(tmp_path, source, None).pinned.endswith(
        "as --dynamic x:1 --dynamic h:1 --dynamic c:1"
    )


def test_one_input_of_several_may_vary(tmp_path: Path) -> None:
    (length,) = traced(tmp_path, UNEQUAL, ("y:0",)).graph.lengths
    assert (length.name, length.maximum, length.dims) == ("batch", 5, (("y", 0),))


def test_lengths_of_several_dimensions(tmp_path: Path) -> None:
    found = traced(tmp_path, UNEQUAL, ("x:0", "y:0"))
    assert [str(length) for length in found.graph.lengths] == ["batch <= 6", "batch_2 <= 5"]
    assert found.dynamic == ("x:0", "y:0")


NORMED = """self.conv = nn.Conv1d(4, 8, 3, padding=1)
self.norm = nn.BatchNorm1d(8)"""


def test_two_lengths_that_batchnorm_asks_about_may_vary(tmp_path: Path) -> None:
    """It asks whether their product is 1, which no two lengths from 2 on have."""
    forward = "return self.norm(self.conv(x)).relu().sum()"
    source = model(NORMED, forward, "(torch.randn(6, 4, 12),)", parameters="x")
    found = traced(tmp_path, source, ("x:0", "x:2"))
    assert [n.minimum for n in found.graph.lengths] == [2, 2]


def test_two_lengths_that_decide_together_are_refused(tmp_path: Path) -> None:
    forward = "return (self.norm(self.conv(x)) * (2 if x.shape[0] < x.shape[2] else 1)).sum()"
    source = model(NORMED, forward, "(torch.randn(6, 4, 12),)", parameters="x")
    with pytest.raises(TraceError, match=r"compares two lengths that vary: batch and size_2; let"):
        traced(tmp_path, source, ("x:0", "x:2"))


@pytest.mark.parametrize("flat", [".flatten(0, 1)", ".reshape(-1, 8)", ".view(-1, 8)"])
def test_two_lengths_may_be_flattened_into_one(tmp_path: Path, flat: str) -> None:
    """As for the loss of a language model: rows and targets are as many, whatever the lengths."""
    source = model(
        "self.wte = nn.Embedding(40, 8)\nself.lin = nn.Linear(8, 8)",
        f"h = self.lin(self.wte(ids))\nreturn F.cross_entropy(h{flat}, targets.flatten())",
        "(torch.randint(40, (6, 5)), torch.randint(8, (6, 5)))",
        parameters="ids, targets",
    )
    found = traced(tmp_path, source, ("ids:0", "targets:0", "ids:1", "targets:1"))
    assert [str(n) for n in found.graph.lengths] == ["batch <= 6", "length <= 5"]


def test_a_shape_that_torch_does_not_know_has_its_line(tmp_path: Path) -> None:
    forward = "f = torch.fft.rfft(self.lin(x))\nreturn torch.fft.irfft(f, n=x.shape[0]).sum(1)"
    source = one_line("", forward)
    line = next(i for i, text in enumerate(source.splitlines(), 1) if "irfft" in text)
    with pytest.raises(TraceError, match=rf"net.py:{line}: .* other lengths: leave .* --dynamic"):
        traced(tmp_path, source, ("x:0",))
    assert traced(tmp_path, source, None).graph.lengths == ()


ODD = {
    "x": "write an input of forward and a dimension",
    "x:": "write an input of forward and a dimension",
    "x:-1": "write an input of forward and a dimension",
    "z:0": "forward has the tensors x, y",
    "x:2": r"x of the example has the shape \[6, 8\]",
}


@pytest.mark.parametrize(("text", "reason"), ODD.items())
def test_what_cannot_be_asked_for(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=f"--dynamic {text}: {reason}"):
        traced(tmp_path, UNEQUAL, (text,))


def test_a_length_of_one_cannot_be_smaller(tmp_path: Path) -> None:
    source = one_line("", "return self.lin(x)", "(torch.randn(1, 8),)")
    with pytest.raises(UsageError, match="has length 1"):
        traced(tmp_path, source, ("x:0",))
    assert traced(tmp_path, source, None).graph.lengths == ()


def test_a_batch_of_two_says_that_only_one_is_below_it(tmp_path: Path) -> None:
    """The line that torch names is of no help: 1 is a number of its own to it."""
    forward = "h = self.lin(x)\nreturn h - h.mean(0) if x.shape[0] > 1 else h"
    source = one_line("", forward).replace("randn(6", "randn(2")
    pinned = traced(tmp_path, source, None).pinned
    assert "a batch of 1 is the only one below the example's" in pinned
    assert "give an example of 3 or more" in pinned
