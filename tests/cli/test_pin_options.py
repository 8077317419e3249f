"""`--keep` and `--recompute`: which values they name, what a schedule does then, what is refused.

The small model's values: norm, up, gelu, down of `layers.0` and `layers.1`, the head, the loss.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cli_runs import Remat

from remat_gen.ask.pin_patterns import make_pins, matches
from remat_gen.ir.plan import Plan, plan_text, read_plan

BUDGET = ("--budget", "100%")


def plan_of(folder: Path) -> Plan:
    return read_plan(folder / "small_remat.plan.json")


def retained(plan: Plan) -> set[str]:
    return {name for block in plan.blocks for name in block.retained}


def rerun(plan: Plan) -> set[str]:
    return {name for block in plan.blocks for name in block.rematerialised}


@pytest.mark.parametrize("strategy", ("auto", "rotor", "per-layer", "none", "chen-sqrt"))
def test_recomputed_values_are_made_again(folder: Path, remat: Remat, strategy: str) -> None:
    options = (*BUDGET, "--strategy", strategy, "--recompute", "gelu")
    ended = remat("small.py", *options)
    assert ended.code == 0, ended.err
    assert "pins        recompute gelu (2 values)" in ended.err
    plan = plan_of(folder)
    assert {"layers.0.gelu", "layers.1.gelu"} <= rerun(plan)
    assert not {"layers.0.gelu", "layers.1.gelu"} & retained(plan)
    assert re.search("gelu = .*# re-run", (folder / "small_remat.py").read_text())
    assert remat("verify", "small_remat.py").code == 0


def test_kept_values_are_not(folder: Path, remat: Remat) -> None:
    tight = ("--budget", "80%", "--strategy", "per-layer")
    assert remat("small.py", *tight).code == 0
    assert "layers.0.up" in rerun(plan_of(folder))
    assert remat("small.py", *tight, "--keep", "layers.0.up").code == 0
    plan = plan_of(folder)
    assert "layers.0.up" in retained(plan)
    assert "layers.0.up" not in rerun(plan)
    assert "layers.1.up" in rerun(plan)
    assert remat("verify", "small_remat.py").code == 0


def test_the_plan_records_them_and_check_holds_it_to_them(folder: Path, remat: Remat) -> None:
    options = (*BUDGET, "--recompute", "up", "--recompute", "gelu", "--keep", "norm")
    assert remat("small.py", *options).code == 0
    plan = plan_of(folder)
    assert (plan.keep, plan.recompute) == (("norm",), ("gelu", "up"))
    assert "--keep norm --recompute gelu --recompute up" in plan.asked.command
    assert remat("check", "small_remat.py").code == 0
    first = (folder / "small_remat.py").read_bytes()
    again = (*BUDGET, "--keep", "norm", "--recompute", "gelu", "--recompute", "up")
    assert remat("small.py", *again).code == 0
    assert (folder / "small_remat.py").read_bytes() == first


def test_a_plan_that_breaks_its_pins_is_stale(existing: Path, remat: Remat) -> None:
    path = existing.with_name("small_remat.plan.json")
    text = path.read_text()
    plan = read_plan(path)
    assert plan_text(plan) == text  # an old plan: no pins, the same bytes
    kept = min(n for n in retained(plan) if n.startswith("layers."))  # depends on what was measured
    path.write_text(text.replace('"schedule": [', f'"recompute": ["{kept}"],\n "schedule": [', 1))
    ended = remat("check", str(existing))
    assert ended.code == 1
    assert "to be recomputed, but kept for backward" in " ".join((ended.out, ended.err))


def test_json_has_the_values_of_each_pattern(folder: Path, remat: Remat) -> None:
    ended = remat(
        "small.py", *BUDGET, "--recompute", "layers.1.*", "--keep", "layers.0.up", "--json"
    )
    assert ended.code == 0, ended.err
    said = json.loads(ended.out)
    assert said["keep"] == {"layers.0.up": ["layers.0.up"]}
    assert "layers.1.gelu" in said["recompute"]["layers.1.*"]
    assert all(name.startswith("layers.1.") for name in said["recompute"]["layers.1.*"])


REFUSED = {
    "no such value": (
        ("--keep", "gelus"),
        "--keep gelus: forward makes no value of this name; near are layers.*.gelu",
    ),
    "a module": (
        ("--keep", "layers.1"),
        "--keep layers.1: forward makes no value of this name; layers.1 is a module, with layers",
    ),
    "nothing like it": (
        ("--keep", "zzzz"),
        "--keep zzzz: forward makes no value of this name; it makes norm, ",
    ),
    "of backward": (("--keep", "d_gelu"), "is no value of forward; only those can be pinned"),
    "an output": (
        ("--recompute", "cross_entropy"),
        "is an output of the step, which its caller holds",
    ),
    "both": (
        ("--keep", "gelu", "--recompute", "layers.*"),
        "layers.0.gelu cannot be kept and recomputed: --keep gelu contradicts --recompute layers.*",
    ),
    "of one operation": (
        ("--keep", "norm_mean", "--recompute", "norm_rstd"),
        "which one operation makes, cannot be kept and recomputed",
    ),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(folder: Path, remat: Remat, options: tuple[str, ...], message: str) -> None:
    ended = remat("small.py", *BUDGET, *options)
    assert ended.code == 2
    assert message in ended.err
    assert not (folder / "small_remat.py").exists()


def test_pins_that_no_budget_bears_are_blamed(folder: Path, remat: Remat) -> None:
    ended = remat("small.py", "--budget", "75%", "--keep", "*")
    assert ended.code == 3
    assert "with these pins: keep * (" in ended.err
    assert "without them one does" in ended.err
    ended = remat("small.py", "--budget", "5%", "--keep", "*")
    assert ended.code == 3
    assert "nor does any without the pins" in ended.err


SPELLINGS = (
    "probs",
    "h.0.attn.attn_drop.probs",
    "h.0.probs",
    "attn.probs",
    "h.*.probs",
    "h.0.attn.*",
    "self.probs",
    "h[0].attn.*",
)


@pytest.mark.parametrize("pattern", SPELLINGS)
def test_spellings_of_a_name(pattern: str) -> None:
    assert matches(pattern, "h.0.attn.attn_drop.probs")
    assert not matches(pattern, "h.0.mlp.gelu")
    assert not matches(pattern, "wte")


def test_patterns_are_sorted_and_counted_once() -> None:
    assert make_pins(["b", "a", "b"], None) == make_pins(["a", "b"], [])
