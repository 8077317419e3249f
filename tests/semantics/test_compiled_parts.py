"""A module whose parts are compiled: what is kept, its peak, its numbers, its text.

All parts are compiled that can be, whether that is quicker or not.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import pytest
import torch
from pairs import MODELS, modelled_costs
from steps import bytes_kept
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from remat_gen.ask.budget import parse_budget
from remat_gen.ask.request import Request
from remat_gen.capture.load.load import load
from remat_gen.capture.profile.timing import Effort
from remat_gen.ir.plan import Compiled
from remat_gen.plan.emission import module_text
from remat_gen.plan.pipeline import Generated, generate
from remat_gen.review.checking import check_file
from remat_gen.review.retrace import retrace_file
from remat_gen.review.verifying import verify_file
from remat_gen.solver.compiled.parts import Part
from remat_gen.terminal.progress import Progress
from remat_gen.verification.compare import Match
from remat_gen.verification.report import Report

pytestmark = pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "g++")) is None, reason="needs a C++ compiler"
)


@dataclass(frozen=True, slots=True)
class Made:
    """The generated module, what a verification of it says, and the models of both kinds."""

    generated: Generated
    report: Report
    model: nn.Module
    apart: nn.Module
    graphs: int  # that were compiled in the first step

    @property
    def path(self) -> Path:
        assert self.generated.output is not None
        return self.generated.output

    @property
    def compiled(self) -> Compiled:
        assert self.generated.plan.compiled is not None
        return self.generated.plan.compiled


def _all_that_can_be(
    pieces: tuple[Part, ...], _apart: object, compiled_us: Callable[[Part], float | None]
) -> tuple[Part, ...]:
    return tuple(piece for piece in pieces if compiled_us(piece) is not None)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """Plan and compile once: each function takes a second."""
    folder = tmp_path_factory.mktemp("compiled")
    shutil.copy(MODELS / "fusing.py", folder / "model.py")
    request = Request(
        folder / "model.py", parse_budget("60%"), folder / "remat.py", device="cpu", compiled=True
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("remat_gen.capture.profile.profile.profile", modelled_costs)
        patch.setattr("remat_gen.plan.fusion._GAIN", float("inf"))
        patch.setattr(
            "remat_gen.plan.fusion.pieces_of", lambda _problem, _schedule, part, _own: (part,)
        )
        patch.setattr("remat_gen.plan.fusion.cheapest", _all_that_can_be)
        patch.setattr(
            "remat_gen.plan.compiling.marginal_costs", lambda _graph, costs, _functions: costs
        )
        patch.setattr("remat_gen.plan.compiling._Compiler.gathered", lambda _self, planned: planned)
        patch.setattr("remat_gen.compile.race._EFFORT", Effort(fewest=1, most=1))
        patch.setattr("remat_gen.compile.race._ROUNDS", 1)
        generated = generate(request, Progress())
        apart = load(_apart(folder / "remat.py"), "build_model", None, "cpu").model
        model = load(folder / "remat.py", "build_model", None, "cpu").model
        with mock.patch("torch._inductor.compile", wraps=torch._inductor.compile) as compiles:
            _step(model, _input())
        report = verify_file(folder / "remat.py")
        yield Made(generated, report, model, apart, compiles.call_count)


def _apart(path: Path) -> Path:
    """Write the same schedule without compiled parts beside a module."""
    found = retrace_file(path)
    plan = replace(found.existing.plan, compiled=None)
    with found.loaded.importable():
        text = module_text(found.loaded, found.traced, found.problem, found.schedule, plan, path)
    path.with_name("apart.py").write_text(text)
    return path.with_name("apart.py")


def _input(batch: int = 16) -> Tensor:
    return torch.randn(batch, 32, 64, generator=torch.Generator().manual_seed(3))


def _step(model: nn.Module, x: Tensor, seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    loss: Tensor = model.train()(x)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def test_numbers_masks_buffers_peak_and_a_smaller_batch(made: Made) -> None:
    """Gradients differ by roundings; what was drawn, and what is kept, does not."""
    assert made.report.ok, list(made.report.rows())
    by_kind = {c.kind: c.match for c in made.report.comparisons}
    assert by_kind["random state"] is by_kind["buffers"] is Match.BITWISE


def test_the_peak_is_as_predicted(made: Made) -> None:
    measured, plan = made.report.planned_peak, made.generated.plan
    assert measured is not None
    assert measured.peak_bytes <= plan.asked.budget_bytes
    off = abs(measured.peak_bytes - plan.predicted.peak_bytes)
    assert off <= max(64 * 1024, plan.predicted.peak_bytes // 100)


def test_many_operations_run_in_few_functions(made: Made) -> None:
    assert made.compiled.operations > made.compiled.parts > 0
    written = made.generated.text.count("@compiled\n")
    assert 0 < written < made.compiled.parts  # what both layers do is written once
    assert made.graphs == written  # each was compiled, though forward itself is not


def test_the_same_is_kept_for_backward(made: Made) -> None:
    assert _bytes_kept(made.model) == _bytes_kept(made.apart) > 0


def test_an_outer_compile_keeps_no_more(made: Made) -> None:
    outer = torch.compile(made.model, backend="aot_eager")
    assert _bytes_kept(outer) == _bytes_kept(made.model)


def _bytes_kept(model: nn.Module) -> int:
    return bytes_kept(model.train()(_input()))


def test_two_forwards_before_two_backwards(made: Made) -> None:
    one, other = _input(), _input(9)
    expected = []
    for x, seed in ((one, 1), (other, 2)):
        made.model.zero_grad()
        _step(made.model, x, seed)
        expected.append([p.grad.clone() for p in made.model.parameters() if p.grad is not None])
    losses = []
    for x, seed in ((one, 1), (other, 2)):
        torch.manual_seed(seed)
        losses.append(made.model(x))
    for loss, grads in zip(losses, expected, strict=True):
        made.model.zero_grad()
        loss.backward()
        pairs = zip(made.model.parameters(), grads, strict=True)
        assert all(p.grad is not None and torch.equal(p.grad, g) for p, g in pairs)


def test_a_smaller_batch_within_a_mode_that_hears_of_operators(made: Made) -> None:
    """Dynamo compiles nothing there, and skipped those functions in the whole process then."""
    model = load(made.path, "build_model", None, "cpu").model
    _step(model, _input())
    with FlopCounterMode(display=False):
        counted = _step(model, _input(7))
    assert torch.equal(counted, _step(model, _input(7)))
    assert torch.isfinite(_step(model, _input(5)))


def test_check_writes_the_same_bytes_and_compiles_nothing(made: Made) -> None:
    with mock.patch("torch._inductor.compile", side_effect=AssertionError):
        assert not check_file(made.path).stale


def test_a_plan_that_lacks_a_cost_is_stale(made: Made, tmp_path: Path) -> None:
    for name in ("model.py", "remat.py", "remat.plan.json"):
        shutil.copy(made.path.with_name(name), tmp_path)
    plan = (tmp_path / "remat.plan.json").read_text()
    key = next(iter(made.compiled.costs))
    (tmp_path / "remat.plan.json").write_text(plan.replace(key, "0" * 12))
    assert any(
        "no cost of the compiled part" in c for c in check_file(tmp_path / "remat.py").causes
    )


def test_a_part_that_cannot_be_compiled_says_what_to_do(made: Made) -> None:
    model = load(made.path, "build_model", None, "cpu").model
    with (
        mock.patch("torch._inductor.compile", side_effect=RuntimeError("no g++")),
        pytest.raises(RuntimeError, match=r"needs a working C\+\+ compiler") as caught,
    ):
        _step(model, _input())
    assert "remat-gen model.py --budget 60% --device cpu -o remat.py" in str(caught.value)
    assert torch.isfinite(model.eval()(_input()))
