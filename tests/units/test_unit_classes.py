"""The classes of units: of one name, derived from each other, of a file or imported."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import planned_units
import pytest
import torch
from planned_units import pair_of

import remat_gen
from remat_gen.verification.step import training_step

BLOCK = """
import torch
from torch import nn


class {name}({base}):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        return x + self.down(torch.{function}(self.up(x)))
"""
NET = """

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = nn.ModuleList([{layers}])

    def forward(self, x):
        for layer in self.h:
            x = layer(x)
        return x.square().mean()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(8, 16),)
"""
INHERITS = "\n\nclass Other(Base):\n    pass\n"
CALLS_UP = (
    "\n\nclass Other(Base):\n    def forward(self, x):\n        return super().forward(x) / 2\n"
)
BASE = BLOCK.format(name="Base", base="nn.Module", function="relu")


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Two modules with a class of the same name each."""
    for name, function in (("first_blocks", "relu"), ("second_blocks", "tanh")):
        text = BLOCK.format(name="Block", base="nn.Module", function=function)
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("first_blocks", "second_blocks"):
        sys.modules.pop(name, None)


def is_as_eager(original: ModuleType, planned: ModuleType) -> bool:
    """Tell whether a step and an evaluation are eager's, to the bit."""
    found = []
    for model in (planned_units.build(original), planned_units.build(planned)):
        torch.manual_seed(1)
        x = torch.randn(8, 16)
        training_step(model, (x,), {})
        with torch.no_grad():
            results = [model(x), model.eval()(x)]
        found.append([*results, *(p.grad for p in model.parameters())])
    return all(map(torch.equal, *found))


def plan(folder: Path, text: str) -> tuple[ModuleType, ModuleType]:
    """Plan all layers of a file; return it and what was generated."""
    source = folder / "net.py"
    source.write_text(text, encoding="utf-8")
    made = remat_gen.generate(source, budget="100%", units=["h.*"], device="cpu")
    pair = pair_of(source, made)
    return pair.original, pair.planned


def test_classes_of_one_name_keep_their_own_forward(libraries: Path) -> None:
    layers = "first_blocks.Block(), second_blocks.Block(), first_blocks.Block()"
    head = "import first_blocks\nimport second_blocks\nimport torch\nfrom torch import nn\n"
    assert is_as_eager(*plan(libraries, head + NET.format(layers=layers)))


@pytest.mark.parametrize("layers", ["Base(), Other(), Base(), Other()", "Other(), Base()"])
def test_a_class_without_a_forward_of_its_own_has_that_of_its_base(
    tmp_path: Path, layers: str
) -> None:
    assert is_as_eager(*plan(tmp_path, BASE + INHERITS + NET.format(layers=layers)))


def test_a_forward_that_calls_a_planned_one_is_refused(tmp_path: Path) -> None:
    words = r"Other\.forward calls the forward of Base, .*: name the units of one of both"
    with pytest.raises(remat_gen.RematError, match=words):
        plan(tmp_path, BASE + CALLS_UP + NET.format(layers="Base(), Other()"))


def test_a_forward_that_calls_one_that_stays_eager_is_planned(tmp_path: Path) -> None:
    assert is_as_eager(*plan(tmp_path, BASE + CALLS_UP + NET.format(layers="Other(), Other()")))


KINDS = NET.format(layers="Base(), Base(), Base()")
INIT = """

def init(module):
    if type(module) is Base:
        nn.init.ones_(module.up.weight)


def build_model():
    return Net().apply(init)
"""


def test_units_of_several_kinds_stay_of_the_class_that_people_ask_for(tmp_path: Path) -> None:
    """The first one's input requires no grad; they were of a derived class that no `init` knew."""
    text = BASE + KINDS.replace("\n\ndef build_model():\n    return Net()\n", INIT)
    original, planned = plan(tmp_path, text)
    first, *others = planned_units.build(planned).h
    assert {type(unit) for unit in (first, *others)} == {planned.Base}
    assert first._planned_forward != others[0]._planned_forward
    assert all(unit.up.weight.eq(1).all() for unit in (first, *others))
    assert is_as_eager(original, planned)


def test_a_forward_put_in_place_of_a_units_goes_for_all(tmp_path: Path) -> None:
    original, planned = plan(tmp_path, BASE + KINDS)
    for module in (original, planned):
        module.Base.forward = lambda self, x: x + self.down(self.up(x).sin())
    assert is_as_eager(original, planned)


def test_a_forward_put_in_place_of_a_library_class_is_told(libraries: Path) -> None:
    head = "import first_blocks\nimport torch\nfrom torch import nn\n"
    layers = "first_blocks.Block(), first_blocks.Block()"
    original, planned = plan(libraries, head + NET.format(layers=layers))
    assert is_as_eager(original, planned)

    def quicker(self: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        return x

    sys.modules["first_blocks"].Block.forward = quicker
    with pytest.raises(
        ValueError, match=r"Block\.forward is .*quicker, planned for Block\.forward"
    ):
        is_as_eager(original, planned)


def test_a_class_that_the_file_imports_keeps_its_name(libraries: Path) -> None:
    """Groups of parameters and wrapping policies go by it; pickle by the qualified one."""
    head = "from first_blocks import Block\nimport torch\nfrom torch import nn\n"
    original, planned = plan(libraries, head + NET.format(layers="Block(), Block()"))
    names = [
        [type(m).__name__ for m in planned_units.build(module).modules()]
        for module in (original, planned)
    ]
    assert names[0] == names[1]
    assert is_as_eager(original, planned)
    model = planned_units.build(planned)
    assert type(pickle.loads(pickle.dumps(model)).h[0]) is type(model.h[0])


def test_verify_sees_what_only_a_fresh_model_shows(libraries: Path) -> None:
    """A library's class is derived from: an `init` that asks for just that class misses its units.

    The comparison of steps gives both models the same numbers.
    """
    head = "import first_blocks\nimport torch\nfrom torch import nn\n"
    net = NET.format(layers="first_blocks.Block(), first_blocks.Block()")
    init = INIT.replace("is Base", "is first_blocks.Block")
    text = head + net.replace("\n\ndef build_model():\n    return Net()\n", init)
    plan(libraries, text)
    report = remat_gen.verify(libraries / "net_remat.py")
    wrong = [(row.what, row.detail) for row in report.rows() if row.ok is False]
    named = "h.0.up.weight: is not as the original builds it"
    assert [what for what, _ in wrong] == ["fresh model"] and named in wrong[0][1]


def test_units_that_a_builder_puts_in_later_are_planned(tmp_path: Path) -> None:
    """Those were told nothing, and raised in each first step."""
    later = (
        "\n\ndef build_model():\n    model = Net()\n    model.h[1] = Base()\n"
        "    model.h.append(Base())\n    return model\n"
    )
    text = BASE + KINDS.replace("\n\ndef build_model():\n    return Net()\n", later)
    original, planned = plan(tmp_path, text)
    assert is_as_eager(original, planned)
    assert all("_planned_path" in vars(unit) for unit in planned.build_model().h)


def test_an_init_of_one_line_is_given_its_units(tmp_path: Path) -> None:
    text = (BASE + NET.format(layers="Base(), Base()")).replace(
        "    def __init__(self):\n        super().__init__()\n        self.h",
        "    def __init__(self): super().__init__(); self.h",
    )
    assert is_as_eager(*plan(tmp_path, text))


ASIDE = NET.replace("self.h = nn", "self.aside = self.spare = Base()\n        self.h = nn").replace(
    "return x.square", "return self.aside(x).square"
)


@pytest.mark.parametrize("units", ["h.*", "auto"])
def test_modules_of_a_units_class_may_be_none(tmp_path: Path, units: str) -> None:
    """Their forward stays the class's own: it was replaced, and raised in the first step."""
    path = tmp_path / "net.py"
    path.write_text(BASE + ASIDE.format(layers="Base(), Base(), Base()"), encoding="utf-8")
    made = remat_gen.generate(path, budget="90%", units=[units])
    assert made.output is not None
    assert remat_gen.verify(made.output).ok


def test_a_module_is_a_unit_by_any_of_its_paths(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    text = BASE + ASIDE.format(layers="Base(), self.aside, Base()")
    path.write_text(text, encoding="utf-8")
    pair = pair_of(path, remat_gen.generate(path, budget="90%", units=["h.*"]))
    assert planned_units.same_bits(pair)
    _, model = pair.models()
    assert model.h[1] is model.aside
    assert "_planned_program" in vars(model.aside)


def test_a_layer_more_is_told_by_check(tmp_path: Path) -> None:
    """The plan's levels are those of other calls: it ended in an error of ours."""
    path = tmp_path / "net.py"
    path.write_text(BASE + NET.format(layers="Base(), Base()"), encoding="utf-8")
    made = remat_gen.generate(path, budget="90%", units=["h.*"])
    assert made.output is not None
    path.write_text(BASE + NET.format(layers="Base(), Base(), Base()"), encoding="utf-8")
    causes = remat_gen.check(made.output).causes
    assert any("traced to other operations" in cause for cause in causes)


def test_costs_are_measured_once(tmp_path: Path) -> None:
    """As those of a whole plan: the same command would give another plan each time."""
    path = tmp_path / "net.py"
    path.write_text(BASE + NET.format(layers="Base(), Base()"), encoding="utf-8")
    first, again = (remat_gen.generate(path, budget="90%", units=["h.*"]) for _ in range(2))
    assert not first.costs_reused
    assert again.costs_reused
    assert again.plan.costs == first.plan.costs
