"""Arguments that are objects with fields: what forward reads of them is compared, and no more."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from pairs import Pair, make_pair_of
from sources import model_source

from remat_gen.capture.load.records import in_classes_of
from remat_gen.ir.errors import RematError

PRELUDE = """
import copy
import dataclasses
from types import SimpleNamespace


@dataclass
class Batch:
    x: Tensor
    scale: float = 2.0
    mask: Tensor | None = None
    ids: Any = None

    @property
    def halved(self): return self.x / 2


@dataclass(frozen=True, slots=True)
class Frozen:
    x: Tensor
    scale: float = 2.0


class Plain:
    rate = 0.5
    def twice(self): return 2.0

    def __init__(self, x, scale=2.0):
        if x.ndim != 2: raise ValueError("rows, please")
        self.x, self.scale, self.spare = x, scale, [1, 2]


class Kind:
    all = []
    def __init_subclass__(cls): Kind.all.append(cls)


class First(Kind):
    def __init__(self, x): self.x, self.scale = x, 2.0


class WithMean:
    mean = torch.ones(3)
    def __init__(self, x): self.x, self.scale = x, 2.0


class Fields:
    def __init__(self): self.mask, self.x, self.scale = None, torch.randn(6, 8), 2.0


class Looked:
    def __init__(self, **held): self._held = held
    def __getattr__(self, name):
        if name == "_held": raise AttributeError(name)
        return self._held[name]


class Attributes(dict):
    def __getattr__(self, name):
        try: return self[name]
        except KeyError: raise AttributeError(name) from None
"""
READS = "return (self.head(self.body(batch.x)) * batch.scale).square().mean()"
MADE = {
    "a dataclass": "Batch(torch.randn(6, 8))",
    "one that is frozen, with slots": "Frozen(torch.randn(6, 8))",
    "an object of a class": "Plain(torch.randn(6, 8))",
    "a namespace": "SimpleNamespace(x=torch.randn(6, 8), scale=2.0)",
    "what looks its attributes up": "Looked(x=torch.randn(6, 8), scale=2.0)",
    "a dict with attributes": "Attributes(x=torch.randn(6, 8), scale=2.0)",
}


def planned(inputs: str, forward: str = READS, arguments: str = "self, batch") -> Pair:
    return make_pair_of(
        model_source(forward, prelude=PRELUDE, arguments=arguments, inputs=f"({inputs},)"),
    )


def given(model: torch.nn.Module, batch: Any) -> Any:
    """Return an argument as the model's file makes it."""
    return in_classes_of(vars(sys.modules[type(model).__module__]), batch)


def planned_step(pair: Pair, batch: Any) -> None:
    _, model = pair.models()
    model(given(model, batch))


def step(model: torch.nn.Module, batch: Any) -> list[torch.Tensor]:
    torch.manual_seed(0)
    loss = model(given(model, batch))
    loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_steps_are_bitwise(made: str) -> None:
    pair = planned(made)
    assert pair.reruns > 0
    (batch,), _ = pair.inputs()
    original, again = (step(model, batch) for model in pair.models())
    assert all(map(torch.equal, original, again))


@pytest.mark.parametrize("made", [*MADE.values()][:4], ids=[*MADE][:4])
def test_a_smaller_batch(made: str) -> None:
    pair = planned(made)
    torch.manual_seed(1)
    fewer = eval(made.replace("6, 8", "3, 8"), vars(pair.original))
    original, again = (step(model, fewer) for model in pair.models())
    assert all(map(torch.equal, original, again))


CHANGES = {
    "another number": (
        {"scale": 3.0},
        r"batch is Batch \{'x': .*'scale': 3\.0\}, planned for Batch",
    ),
    "another dtype": ({"x": torch.zeros(6, 8).double()}, r"'x': float64\[6, 8\] on cpu"),
    "none": ({"x": None}, r"'x': None"),
}


@pytest.mark.parametrize(("change", "words"), CHANGES.values(), ids=CHANGES)
def test_what_changed_is_named(change: dict[str, Any], words: str) -> None:
    pair = planned(MADE["a dataclass"])
    (batch,), _ = pair.inputs()
    vars(batch).update(change)
    with pytest.raises(ValueError, match=words):
        planned_step(pair, batch)


def test_fields_that_forward_does_not_read_are_not_compared() -> None:
    pair = planned(MADE["a dataclass"])
    (batch,), _ = pair.inputs()
    batch.ids, batch.mask, batch.later = ["a", object()], torch.zeros(3), "more"
    original, again = (step(model, batch) for model in pair.models())
    assert all(map(torch.equal, original, again))


def test_a_question_counts_as_read() -> None:
    pair = planned(
        MADE["a dataclass"],
        "y = self.head(self.body(batch.halved))\n"
        "return (y if batch.mask is None else y * batch.mask).square().mean()",
    )
    (batch,), _ = pair.inputs()
    assert all(map(torch.equal, *(step(model, batch) for model in pair.models())))
    batch.mask = torch.zeros(6, 4)
    with pytest.raises(ValueError, match=r"'mask': float32\[6, 4\] on cpu"):
        planned_step(pair, batch)


ASKED = {
    "by hasattr": ("hasattr(batch, 'late')", "late", None),
    "by getattr": ("getattr(batch, 'late', None) is not None", "late", 1.0),
    "of the class": ("batch.rate > 1", "rate", 2.0),
}


@pytest.mark.parametrize(("asks", "name", "value"), ASKED.values(), ids=ASKED)
def test_what_is_not_there_counts_as_read(asks: str, name: str, value: object) -> None:
    pair = planned(MADE["an object of a class"], f"{READS} * (3.0 if {asks} else 1.0)")
    (batch,), _ = pair.inputs()
    assert all(map(torch.equal, *(step(model, batch) for model in pair.models())))
    setattr(batch, name, value)
    with pytest.raises(ValueError, match=f"'{name}': {value}.*'{name}': (not set|0.5)"):
        planned_step(pair, batch)


def test_all_fields_count_where_forward_asks_for_all() -> None:
    forward = (
        "return sum(self.head(self.body(v)).sum() for v in vars(batch).values() if v is not 2.0)"
    )
    pair = planned("SimpleNamespace(x=torch.randn(6, 8))", forward)
    (batch,), _ = pair.inputs()
    assert all(map(torch.equal, *(step(model, batch) for model in pair.models())))
    batch.y = torch.zeros(6, 8)
    with pytest.raises(ValueError, match=r"'y': float32"):
        planned_step(pair, batch)


def test_objects_within_containers() -> None:
    forward = "return sum(self.head(self.body(b.x)).mean() * b.scale for b in batches['all'])"
    made = "{'all': [Batch(torch.randn(6, 8)), Plain(torch.randn(6, 8), 3.0)]}"
    pair = planned(made, forward, "self, batches")
    (batches,), _ = pair.inputs()
    assert all(map(torch.equal, *(step(model, batches) for model in pair.models())))
    batches["all"][1].scale = 4.0
    with pytest.raises(ValueError, match=r"Plain \{'x': .*, 'scale': 4\.0"):
        planned_step(pair, batches)


def test_objects_with_a_field_that_is_none_before_others() -> None:
    forward = "return sum(self.head(self.body(b.x)).mean() * b.scale for b in batches)"
    pair = planned("[Fields(), Fields()]", forward, "self, batches")
    (batches,), _ = pair.inputs()
    assert all(map(torch.equal, *(step(model, batches) for model in pair.models())))


def test_equality_asks_for_fields() -> None:
    """`__eq__` of a dataclass compares classes first: a stand-in's is another."""
    forward = f"{READS} * (10.0 if batch == Frozen(batch.x, 3.0) else 1.0)"
    pair = planned("Frozen(torch.ones(1))", forward.replace("batch.x)) *", "torch.ones(6, 8))) *"))
    with pytest.raises(ValueError, match=r"'scale': 3\.0"):
        pair.models()[1](pair.planned.Frozen(torch.ones(1), 3.0))


def test_a_registry_does_not_hear_of_a_stand_in() -> None:
    forward = f"{READS} * len(Kind.all)"
    pair = planned("First(torch.randn(6, 8))", forward)
    (batch,), _ = pair.inputs()
    assert all(map(torch.equal, *(step(model, batch) for model in pair.models())))


def test_a_tensor_of_the_class_is_refused() -> None:
    """Its numbers are the plan's: a row would compare its layout alone."""
    with pytest.raises(RematError, match=r"batch\.mean, a tensor of its class: make it a field"):
        planned("WithMean(torch.randn(6, 8))", f"{READS} + batch.mean.sum()")


@pytest.mark.untold(
    "Of an object that is an argument: attributes of its class that forward asks the class for "
    "(`type(batch).rate`), or that objects in containers have; a method of its class that is "
    "replaced; and whether two arguments are one object."
)
@pytest.mark.parametrize(
    ("forward", "made", "change"),
    [
        (f"{READS} * type(batch).rate", "Plain(torch.ones(6, 8))", "rate"),
        (
            READS.replace("batch.", "batch[0].") + " * batch[0].rate",
            "[Plain(torch.ones(6, 8))]",
            "rate",
        ),
        (f"{READS} * batch.twice()", "Plain(torch.ones(6, 8))", "twice"),
    ],
    ids=["of the class", "in a list", "a method"],
)
def test_what_no_error_tells(
    forward: str, made: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = planned(made, forward)
    (batch,), _ = pair.inputs()
    models = pair.models()
    before = [step(model, batch)[0] for model in models]
    for file in (pair.original, pair.planned):
        monkeypatch.setattr(file.Plain, change, 9.0 if change == "rate" else lambda _: 9.0)
    after = [step(model, batch)[0] for model in models]
    assert before[0] == before[1] == after[1] != after[0]


def test_whether_two_arguments_are_one_object_is_not_told() -> None:
    """It stands with the others in docs/limits.md."""
    forward = f"{READS} * (9.0 if batch is other else 1.0)"
    pair = make_pair_of(
        model_source(
            forward,
            prelude=PRELUDE,
            arguments="self, batch, other",
            inputs="(Plain(torch.randn(6, 8)), Plain(torch.randn(6, 8)))",
        )
    )
    found = []
    for model in pair.models():
        batch = given(model, pair.inputs()[0][0])
        torch.manual_seed(0)
        found.append(float(model(batch, batch).detach()))
    assert found[0] == pytest.approx(9 * found[1])


def test_a_namespace_that_is_compared() -> None:
    """C looks at its fields itself."""
    made = "SimpleNamespace(x=1, scale=2.0)"
    forward = (
        f"y = self.head(self.body(x)).sum() * batch.x\nreturn y * (1 if batch == {made} else 9)"
    )
    source = model_source(
        forward, prelude=PRELUDE, arguments="self, x, batch", inputs=f"(torch.randn(6, 8), {made})"
    )
    pair = make_pair_of(source)
    (x, batch), _ = pair.inputs()
    batch.scale = 3.0
    with pytest.raises(ValueError, match=r"'scale': 3\.0"):
        pair.models()[1](x, batch)


def test_one_that_is_returned() -> None:
    """What is None there is none, too."""
    forward = "y = self.head(self.body(batch.x))\nreturn Batch(y, 1.0, y.square().mean(), None)"
    pair = planned(MADE["a dataclass"], forward)
    (batch,), _ = pair.inputs()
    found = []
    for model in pair.models():
        torch.manual_seed(0)
        found.append(model(given(model, batch)))
    assert torch.equal(found[0].x, found[1].x)
    assert torch.equal(found[0].mask, found[1].mask)
    assert (found[1].scale, found[1].ids) == (1.0, None)
    assert type(found[1]) is pair.planned.Batch


def test_a_mapping_that_is_no_dict() -> None:
    """As what tokenizers return; it may be what `example_inputs` returns, too."""
    source = model_source(
        "return UserDict({'y': self.head(self.body(x)), 'of': given['z']})",
        prelude="from collections import UserDict",
        arguments="self, x, given",
        inputs="UserDict({'x': torch.randn(6, 8), 'given': UserDict({'z': torch.randn(6)})})",
    )
    pair, found = make_pair_of(source), []
    given = pair.original.example_inputs()
    for model in pair.models():
        torch.manual_seed(0)
        found.append(model(**given))
    assert torch.equal(found[0]["y"], found[1]["y"])
    assert found[0]["of"] is found[1]["of"]
    assert type(found[1]) is type(given)


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        ("batch.x = self.body(batch.x)\n" + READS, r"batch, a Batch, .*copy\.copy\(batch\)"),
        ("batch.h = self.body(batch.x)\nreturn self.head(batch.h).sum()", "changes its argument"),
        ("y = Batch(self.body(batch.x))\ny.more = 1\nreturn y", "a Batch with more: declare it"),
    ],
)
def test_refusals(forward: str, words: str) -> None:
    with pytest.raises(RematError, match=words):
        planned(MADE["a dataclass"], forward)


def test_a_class_that_the_file_has_is_the_one_it_asks_for() -> None:
    """In an evaluation `isinstance(batch, Batch)` would say no of the original file's."""
    pair = planned(MADE["a dataclass"])
    (batch,), _ = pair.inputs()
    with pytest.raises(
        ValueError, match=r"batch is semantics_original_\d+\.Batch .*planned for Batch"
    ):
        pair.models()[1](batch)


def test_what_leads_back_to_itself_is_refused() -> None:
    made = "loop(SimpleNamespace(x=torch.randn(6, 8), scale=2.0))"
    source = model_source(
        READS,
        prelude=PRELUDE + "\ndef loop(batch):\n    batch.own = [batch]\n    return batch\n",
        arguments="self, batch",
        inputs=f"({made},)",
    )
    with pytest.raises(RematError, match="an input holds itself"):
        make_pair_of(source)


def test_members_of_enums_are_no_records() -> None:
    source = model_source(
        "return self.head(self.body(x)) * mode.value",
        prelude="import enum\n\nclass Mode(enum.Enum):\n    A = 2.0",
        arguments="self, x, mode=Mode.A",
    )
    pair = make_pair_of(source)
    assert "by_fields" not in pair.text
    outputs = []
    for model in pair.models():
        torch.manual_seed(0)
        outputs.append(model(*pair.inputs()[0]))
    assert torch.equal(*outputs)


def test_a_copy_may_be_changed() -> None:
    pair = planned(
        MADE["a dataclass"], "batch = copy.copy(batch)\nbatch.x = self.body(batch.x)\n" + READS
    )
    (batch,), _ = pair.inputs()
    assert all(map(torch.equal, *(step(model, batch) for model in pair.models())))


def test_an_input_that_requires_grad() -> None:
    pair = planned("Batch(torch.randn(6, 8, requires_grad=True))")
    found = []
    for model in pair.models():
        (batch,), _ = pair.inputs()
        step(model, batch)
        found.append(batch.x.grad)
    assert torch.equal(*found)
