"""Inputs that are the same in each step: their numbers are read, planned for and compared."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from fixed_models import BATCHED, FEW, MANY
from pairs import Pair, make_pair_of, plan_file
from sources import model_source
from steps import assert_right

import remat_gen
from remat_gen.ir.errors import TraceError, UsageError
from remat_gen.show.summary import summary_json, summary_lines

EDGES = ("edge_index",)


def planned(text: str, *fix: str, dynamic: tuple[str, ...] | None = None) -> Pair:
    return make_pair_of(text, "lowest", "per-layer", fix=fix, dynamic=dynamic)


@pytest.mark.parametrize("text", [FEW, MANY], ids=["few edges", "more than a file has room for"])
def test_a_graph_networks_edges_are_read(text: str) -> None:
    pair = planned(text, *EDGES)
    assert_right(pair)
    assert "check_value(" not in pair.text
    assert pair.plan.fixed == EDGES
    assert len(pair.text.splitlines()) < 1000  # positions of edges are computed, not written out


def test_without_it_they_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(FEW, encoding="utf-8")
    words = r"model\.py:\d+: the model cannot be traced: .*; or give --fix edge_index, if"
    with pytest.raises(TraceError, match=words):
        plan_file(path, "90%", "auto")


@pytest.mark.limit(
    "another value of an input that `--fix` names",
    "an error with its name, the first index, both numbers, and the command that plans again",
)
@pytest.mark.parametrize("text", [FEW, MANY], ids=["few", "many"])
def test_another_number_is_named(text: str) -> None:
    _, model = planned(text, *EDGES).models()
    x, edges = planned(text, *EDGES).inputs()[0]
    model(x, edges)
    before = int(edges[1, 7])
    edges[1, 7] = before - 1
    words = rf"edge_index\[1, 7\] is {before - 1}, planned for {before}\..*--fix edge_index"
    with pytest.raises(ValueError, match=f"(?s){words}"):
        model(x, edges)
    edges[1, 7] = before
    model(x, edges.clone()).backward()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (FEW, r"edge_index\[0, 0\] is 0, planned for 11\."),
        (MANY, "edge_index has other numbers, sha256 [0-9a-f]{12}, planned for sha256"),
    ],
    ids=["few", "many"],
)
def test_the_first_step_compares(text: str, words: str) -> None:
    pair = make_pair_of(f"{text}\n# anew\n", "lowest", "per-layer", fix=EDGES)
    _, model = pair.models()
    x, edges = pair.inputs()[0]
    with pytest.raises(ValueError, match=words):
        model(x, edges.flip(1).index_fill(1, torch.tensor(0), 0))


def test_another_shape_is_named() -> None:
    pair = planned(FEW, *EDGES)
    _, model = pair.models()
    x, edges = pair.inputs()[0]
    words = r"edge_index is int64\[2, 29\] on cpu, planned for int64\[2, 30\] on cpu"
    with pytest.raises(ValueError, match=words):
        model(x, edges[:, :-1].contiguous())


def test_other_inputs_vary() -> None:
    pair = planned(BATCHED, *EDGES, dynamic=("x:0",))
    assert_right(pair)
    original, model = pair.models()
    x, edges = pair.inputs()[0]
    for batch in (5, 2):
        losses = []
        for each in (original, model):
            torch.manual_seed(1)
            losses.append(each(x[:batch].clone(), edges))
            losses[-1].backward()
        assert torch.equal(*losses)
    grads = [[p.grad for p in each.parameters()] for each in (original, model)]
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_no_batch_is_found_beside_them() -> None:
    """Fewer rows than the edges name are no step of eager's either."""
    square = FEW.replace("EDGES = 12, 30", "EDGES = 2, 30")
    assert planned(square, *EDGES).plan.dynamic == ()


NUMBERS = model_source(
    """
    for step in plan["steps"].tolist():
        x = x * step
    if plan["scale"] > 1:
        x = x * plan["scale"]
    return self.head(self.body(x))
    """,
    arguments="self, x: Tensor, plan: dict[str, Tensor]",
    inputs="(torch.randn(6, 8), {'steps': torch.tensor([0.5, 0.0]), 'scale': torch.tensor(2.0)})",
)


def test_inputs_in_containers_are_compared_bit_by_bit() -> None:
    pair = planned(NUMBERS, "plan['steps']", "plan['scale']")
    assert_right(pair)
    _, model = pair.models()
    x, plan = pair.inputs()[0]
    words = r"plan\['steps'\]\[1\] is -0\.0, planned for 0\.0\."
    with pytest.raises(ValueError, match=words):
        model(x, plan | {"steps": torch.tensor([0.5, -0.0])})
    with pytest.raises(ValueError, match=r"plan\['scale'\] is nan, planned for 2\.0\."):
        model(x, plan | {"scale": torch.tensor(torch.nan)})
    model(x, plan)


def test_a_nan_is_itself() -> None:
    """The sign of one is written nowhere: its hash is."""
    negative = "torch.tensor([1.0, -torch.nan])"
    text = NUMBERS.replace("torch.tensor([0.5, 0.0])", negative).replace("x * step", "x + 0 * 1")
    pair = planned(text, "plan['steps']", "plan['scale']")
    _, model = pair.models()
    x, plan = pair.inputs()[0]
    model(x, plan).sum().backward()
    with pytest.raises(ValueError, match=r"plan\['steps'\]\[1\] is nan, planned for nan\."):
        model(x, plan | {"steps": torch.tensor([1.0, torch.nan])})
    assert """"plan['scale']": 2.0""" in pair.text


def refused(folder: Path, text: str, *fix: str, **asked: object) -> str:
    path = folder / "model.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises((UsageError, TraceError)) as error:
        remat_gen.generate(path, budget="90%", fix=fix, **asked)
    return str(error.value)


def test_unknown_names_are_told_those_there_are(tmp_path: Path) -> None:
    words = "--fix edges: forward has the tensors x, edge_index"
    assert refused(tmp_path, FEW, "edges") == words
    assert "the tensors x, plan['steps'], plan['scale']" in refused(tmp_path, NUMBERS, "plan")


@pytest.mark.limit(
    "`--fix` of an input that requires grad, or that `forward` writes into", "refused by its name"
)
def test_what_changes_cannot_be_fixed(tmp_path: Path) -> None:
    trained = FEW.replace("torch.randn(NODES, 8)", "torch.randn(NODES, 8, requires_grad=True)")
    assert "--fix x: it requires grad" in refused(tmp_path, trained, "x")
    written = FEW.replace(
        "        for conv in self.convs[:-1]",
        "        x.mul_(2)\n        for conv in self.convs[:-1]",
    )
    assert "forward writes into x, which --fix says" in refused(tmp_path, written, "x", *EDGES)


@pytest.mark.parametrize(
    ("option", "asked"),
    [
        ("--batch", {"batch": 4}),
        ("--target", {"target": "h100"}),
        ("--units", {"units": ["convs.*"]}),
        ("--dynamic edge_index:1", {"dynamic": ["edge_index:1"]}),
    ],
)
def test_options_that_do_not_go_with_it(
    tmp_path: Path, option: str, asked: dict[str, object]
) -> None:
    words = refused(tmp_path, FEW, *EDGES, **asked)
    assert option in words and "--fix" in words and "exclude each other" in words


def test_a_module_with_fixed_inputs_is_reviewed(tmp_path: Path) -> None:
    """From a file and from a built model: checked, verified, told."""
    path = tmp_path / "model.py"
    path.write_text(FEW, encoding="utf-8")
    generated = plan_file(path, "95%", "auto", fix=EDGES)
    assert generated.output
    told = "fixed       edge_index: its numbers are planned for, and compared in each step"
    assert told in summary_lines(generated)
    assert summary_json(generated)["fixed"] == ["edge_index"]
    assert "--fix edge_index -o" in generated.plan.asked.command
    assert not remat_gen.check(generated.output).stale
    report = remat_gen.verify(generated.output)
    assert report.ok and report.bitwise
