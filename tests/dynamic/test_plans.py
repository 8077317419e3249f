"""The whole path: what the plan records, the command, the note, the same bytes again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from emitting_parts import emit_again
from varying_models import OPEN_ENDED, one_line

import remat_gen
from remat_gen.ask.budget import parse_budget
from remat_gen.ask.generate_options import GenerateOptions
from remat_gen.ask.pin_patterns import make_pins
from remat_gen.ask.request import Request, Strategy, make_dynamic
from remat_gen.capture.profile.roofline import NOMINAL_CPU, roofline_us
from remat_gen.ir.costs import Cost, Costs
from remat_gen.ir.errors import UsageError
from remat_gen.ir.graph import Graph
from remat_gen.plan.pipeline import Generated, generate
from remat_gen.review.checking import check_file
from remat_gen.review.generated_module import Existing
from remat_gen.show.summary import summary_json, summary_lines
from remat_gen.terminal.progress import Progress

PINNED = one_line("self.p = nn.Parameter(torch.zeros(6, 8))", "return self.lin(x) + self.p")


def modelled(graph: Graph, *_: object) -> Costs:
    times = {o.name: roofline_us(graph, o, NOMINAL_CPU) for o in graph.operations}
    return Costs("cpu", {name: Cost(round(t, 3), 0, True) for name, t in times.items()})


def generated(folder: Path, source: str, dynamic: tuple[str, ...] | None) -> Generated:
    path = folder / "net.py"
    path.write_text(source, encoding="utf-8")
    request = Request(
        model_file=path,
        limit=parse_budget("1MB"),
        output=folder / "net_remat.py",
        device="cpu",
        strategy=Strategy.PER_LAYER,
        dynamic=dynamic,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("remat_gen.capture.profile.profile.profile", modelled)
        return generate(request, Progress())


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Generated:
    return generated(tmp_path_factory.mktemp("dynamic"), OPEN_ENDED, ("x:0",))


def test_the_plan_records_the_dimensions(planned: Generated) -> None:
    assert planned.plan.dynamic == ("x:0",)
    assert planned.plan.inputs == {"x": "float32[batch <= 6, 8]"}


def test_the_command_asks_for_them_again(planned: Generated) -> None:
    assert "--dynamic x:0" in planned.plan.asked.command
    assert f"#     {planned.plan.asked.command}\n" in planned.text


def test_the_module_is_written_again_from_its_plan(planned: Generated) -> None:
    assert planned.output
    assert emit_again(Existing.find(planned.output)) == planned.text


def test_check_finds_it_up_to_date(planned: Generated) -> None:
    assert planned.output
    assert not check_file(planned.output).stale


def test_the_summary_says_what_varies(planned: Generated) -> None:
    assert "inputs      batch <= 6 (x:0)" in summary_lines(planned)
    assert summary_json(planned)["dynamic"] == ["x:0"]


def test_a_batch_that_is_found_is_recorded_too(tmp_path: Path, planned: Generated) -> None:
    found = generated(tmp_path, OPEN_ENDED, None)
    assert found.plan.dynamic == ("x:0",)
    assert found.plan.graph_sha256 == planned.plan.graph_sha256
    assert found.output
    assert emit_again(Existing.find(found.output)) == found.text


def test_a_static_plan_says_nothing_of_it(tmp_path: Path) -> None:
    fixed = generated(tmp_path, OPEN_ENDED, ())
    assert fixed.plan.dynamic == ()
    assert '"dynamic"' not in (tmp_path / "net_remat.plan.json").read_text()
    assert not any(line.startswith("inputs") for line in summary_lines(fixed))
    assert "batch" not in fixed.text.partition("class PlannedBlock")[2]


def test_the_summary_says_what_pins_the_batch(tmp_path: Path) -> None:
    fixed = generated(tmp_path, PINNED, None)
    (line,) = (line for line in summary_lines(fixed) if line.startswith("inputs"))
    assert "as in the example only: net.py:" in line
    assert fixed.plan.dynamic == ()


@pytest.mark.parametrize(
    ("given", "fix", "words"),
    [
        ("torch.randn(6, 8), torch.randn(8)", (), "the inputs begin with 6, 8; name .* x:0"),
        ("torch.randn(6, 8), torch.randn(1, 8)", (), "the inputs begin with 1, 6; .* x:0"),
        ("torch.randn(1, 8), torch.randn(1, 8)", (), "the example's batch is 1, .* a larger one"),
        ("torch.randn(6, 8), torch.ones(6, 8)", ("y",), "a fixed input says; .*: --dynamic x:0$"),
    ],
)
def test_it_says_why_no_batch_was_found(
    tmp_path: Path, given: str, fix: tuple[str, ...], words: str
) -> None:
    source = one_line("", "return self.lin(x).square().sum() * y.sum()", f"({given})")
    path = tmp_path / "net.py"
    path.write_text(source.replace("forward(self, x)", "forward(self, x, y)"), encoding="utf-8")
    made = remat_gen.generate(path, budget="100%", device="cpu", fix=fix)
    (line,) = (line for line in summary_lines(made) if line.startswith("inputs"))
    assert re.search(f"as in the example only: .*{words}", line)
    assert made.plan.dynamic == ()


def test_lists_may_have_commas() -> None:
    text = ["b:0, a:1", "a:1", "x['c, d']:0"]
    options = GenerateOptions(budget="1MB", dynamic=text, fix=text, keep=text, recompute=text)
    request = options.request(Path("net.py"), None)
    given = ("b:0", "a:1", "x['c, d']:0")
    assert request.dynamic == request.fix == given
    assert request.pins == make_pins(given, given)
    units = GenerateOptions(budget="1MB", units=["h.*,ln"]).request(Path("net.py"), None).units
    assert units == ("h.*", "ln")


def test_both_options_exclude_each_other() -> None:
    assert make_dynamic(["x:0"], static=False) == ("x:0",)
    assert make_dynamic(None, static=True) == ()
    with pytest.raises(UsageError, match="--dynamic and --static"):
        make_dynamic(["x:0"], static=True)
