"""One more layer in examples/gpt.py changes the table, that layer's lines and what counts blocks.

With `auto` the schedule of the committed plan is there to be kept; `per-layer` needs none.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from emitting import Choose, Emitted, assert_bitwise, emit, model_costs
from test_stability import changed, without

from remat_gen.capture.load.load import load
from remat_gen.capture.lower.signature import signature
from remat_gen.capture.trace.trace import Traced, trace_loaded
from remat_gen.ir.costs import Cost, Costs
from remat_gen.ir.plan import read_plan
from remat_gen.plan.output import plan_path
from remat_gen.plan.plan_names import committed_runs, planned_schedule
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.replay import replay
from remat_gen.solver.law.schedule import Schedule
from remat_gen.solver.solve import Solver
from remat_gen.solver.stable.committed_schedule import Committed

EXAMPLE = Path(__file__).parents[2] / "examples" / "gpt.py"
GPT = EXAMPLE.read_text(encoding="utf-8")
LARGER = GPT.replace("LAYERS = 4", "LAYERS = 5")
ALLOWED = 20
GONE = 3

# The distance to the last block, to which the tied weight's gradient reaches, the model's hash, and
# which layers a class is for, and which of its blocks a condition.
COUNTED = re.compile(
    r"\bafter_\d+\b|step\[self\.at \+ \d+\]|ModuleList\[\d+\]|LAYERS = \d|\bh\.[\d*](?=: )"
    r"|(?<=self\.at )(?:== \d+|in \([\d, ]+\))"
)


def per_layer(problem: Problem) -> Schedule:
    """Keep the input of every layer, as torch.utils.checkpoint does: at 60 % of eager's peak."""
    solver = Solver(problem, "per-layer")
    return solver.solve(solver.plain.peak_bytes * 6 // 10).schedule


def auto(percent: int, committed: Committed | None = None) -> Choose:
    """Return the search for the best, beside which a committed schedule may be kept."""

    def choose(problem: Problem) -> Schedule:
        solver = Solver(problem, "auto", committed=committed)
        return solver.solve(solver.plain.peak_bytes * percent // 100).schedule

    return choose


@cache
def measured() -> tuple[Costs, dict[str, Cost]]:
    """Return the costs of the committed plan, and the same by signature."""
    costs = read_plan(plan_path(EXAMPLE.with_name("gpt_remat.py"))).measured()
    graph = trace_loaded(load(EXAMPLE, None, None, "cpu")).graph
    return costs, {signature(graph, o): costs.operations[o.name] for o in graph.operations}


def plan_costs(traced: Traced) -> Costs:
    """Return the committed plan's costs for the same work, wherever it stands; bytes for others."""
    costs, known = measured()
    others = model_costs(traced).operations
    found = {
        o.name: known.get(signature(traced.graph, o), others[o.name])
        for o in traced.graph.operations
    }
    return replace(costs, operations=found)


def written(emitted: Emitted) -> Committed:
    """Return the schedule as the plan file has it."""
    return committed_runs(planned_schedule(emitted.problem, emitted.schedule))


def both(folder: Path, old: str, new: str, percent: int) -> tuple[Emitted, Emitted]:
    """Plan a model, and then a changed one onto its plan."""
    first = emit(folder, old, auto(percent), costs=plan_costs)
    return first, emit(folder, new, auto(percent, written(first)), costs=plan_costs)


@pytest.fixture(scope="module", params=["per-layer", "auto"])
def texts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("gpt")
    if request.param == "auto":
        old, new = both(folder, GPT, LARGER, 60)
        return old.text, new.text
    return emit(folder, GPT, per_layer).text, emit(folder, LARGER, per_layer).text


def test_few_lines_change(texts: tuple[str, str]) -> None:
    lines = changed(*texts)
    assert 0 < len(lines) <= ALLOWED, "\n".join(lines)
    assert [line for line in lines if re.search(r"h\.(0-)?4|range\(5\)", line)]


def test_nothing_else_changes(texts: tuple[str, str]) -> None:
    """Outside of the model's class only numbers that count blocks differ."""
    old, new = (COUNTED.sub("", without(text, "GPT")) for text in texts)
    assert old == new


def test_other_layers_lines_stay(texts: tuple[str, str]) -> None:
    old, new = texts
    kept = [line for line in old.splitlines() if re.search(r'# h\.[0-3]\.|"h\.[0-3]"', line)]
    assert kept or ("range(4)" in old and "range(5)" in new), "in a loop"
    assert [line for line in kept if line not in new.splitlines()] == []


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Emitted, Emitted]:
    """Return a model whose layers are listed, and one with another kind of layer in the middle."""
    folder = tmp_path_factory.mktemp("listed")
    one = GPT.replace("HEADS = 4", "HEADS = (4, 4, 4, 4)").replace(
        "Layer(width, HEADS) for _ in range(layers)", "Layer(width, heads) for heads in HEADS"
    )
    one = one.replace("F.gelu(self.up(x))", "self.act(self.up(x))").replace(
        "self.mlp = Mlp(width)",
        "self.mlp = Mlp(width)\n        self.mlp.act = F.relu if heads == 8 else F.gelu",
    )
    return both(folder, one, one.replace("(4, 4, 4, 4)", "(4, 4, 8, 4, 4)"), 60)


def test_a_layer_in_the_middle_adds_its_own_lines(listed: tuple[Emitted, Emitted]) -> None:
    """Every line of the blocks that were there is there, but for what counts blocks and layers."""
    old, new = (emitted.text for emitted in listed)
    lines = re.sub(r"h\.\d", "h", COUNTED.sub("", without(new, "GPT"))).splitlines()
    wanted = re.sub(r"h\.\d", "h", COUNTED.sub("", without(old, "GPT"))).splitlines()
    matcher = difflib.SequenceMatcher(None, wanted, lines, autojunk=False)
    gone = [
        wanted[a:b] for tag, a, b, _, _ in matcher.get_opcodes() if tag in ("replace", "delete")
    ]
    assert sum(map(len, gone)) <= GONE, gone


def test_a_layer_in_the_middle_stays_in_the_budget_and_exact(
    listed: tuple[Emitted, Emitted],
) -> None:
    _, new = listed
    plain = Solver(new.problem).plain.peak_bytes
    assert replay(new.problem, new.schedule).peak_bytes <= plain * 60 // 100
    assert_bitwise(new)
