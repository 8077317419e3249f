"""Generating onto a committed module keeps its schedule where that is about as good."""

from __future__ import annotations

import json
import re
from pathlib import Path

from cli_runs import Remat

from remat_gen.ir.plan import Plan, read_plan
from remat_gen.plan.output import plan_path

ASKED = ("small.py", "--budget", "75%")


def plan_of(module: Path) -> Plan:
    return read_plan(plan_path(module))


def edit(module: Path, old: str, new: str) -> None:
    source = module.with_name("small.py")
    assert old in source.read_text()
    source.write_text(source.read_text().replace(old, new))


def reruns(plan: Plan, layer: str) -> list[str]:
    """Return what runs again in a layer's blocks, without its name."""
    again = (name for block in plan.blocks for name in block.rematerialised)
    return sorted(name.removeprefix(layer) for name in again if name.startswith(f"{layer}."))


def test_one_more_layer_leaves_the_others_as_they_are(folder: Path, remat: Remat) -> None:
    """From modelled costs, which do not depend on the machine."""
    module, asked = folder / "small_remat.py", ("small.py", "--budget", "65%", "--target", "h200")
    assert remat(*asked).code == 0
    before = plan_of(module)
    edit(module, "range(2)", "range(3)")
    ended = remat(*asked, "--json")
    assert ended.code == 0, ended.err
    after = plan_of(module)
    assert after.predicted.peak_bytes <= after.asked.budget_bytes
    assert after.solver.strategy == "committed"
    assert 0 <= json.loads(ended.out)["slower_than_best"] <= 5e-3
    assert re.search(r"\nkept {8}the existing schedule: .* the best; --fresh", ended.err)
    for layer in ("layers.0", "layers.1"):
        assert reruns(before, layer) == reruns(after, layer)


def test_what_is_kept_is_exact(existing: Path, remat: Remat) -> None:
    edit(existing, "range(2)", "range(3)")
    assert remat(*ASKED).code == 0
    assert remat("verify", existing).code == 0
    assert remat("check", existing).code == 0


def test_again_is_the_same_bytes(existing: Path, remat: Remat) -> None:
    edit(existing, "range(2)", "range(3)")
    texts = []
    for _ in range(2):
        assert remat(*ASKED, "--quiet").code == 0
        texts.append(existing.read_bytes() + plan_path(existing).read_bytes())
    assert texts[0] == texts[1]


def test_costs_measured_again_are_no_reason_for_another_schedule(
    existing: Path, remat: Remat
) -> None:
    """Whatever the machine did meanwhile: kept, or else quicker than the tolerance."""
    before = plan_of(existing)
    ended = remat(*ASKED, "--reprofile", "--json")
    after = plan_of(existing)
    if json.loads(ended.out)["slower_than_best"] is not None:
        assert after.schedule == before.schedule


def test_fresh_keeps_nothing(existing: Path, remat: Remat) -> None:
    edit(existing, "range(2)", "range(3)")
    ended = remat(*ASKED, "--fresh", "--json")
    slower = json.loads(ended.out)["slower_than_best"]
    assert (slower is not None) == ("alike  " in ended.err)  # three layers may be planned alike
    assert "kept  " not in ended.err
    assert plan_of(existing).solver.strategy != "committed"
    assert "--fresh" not in existing.read_text()


def test_another_strategy_keeps_nothing(existing: Path, remat: Remat) -> None:
    ended = remat(*ASKED, "--strategy", "rockmate", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["slower_than_best"] is None
    assert plan_of(existing).solver.strategy == "rockmate"


def test_the_plan_of_another_model_is_ignored(existing: Path, remat: Remat) -> None:
    edit(existing, "x + self.down(F.gelu(self.up(self.norm(x))))", "torch.tanh(self.up(x))[:, :32]")
    ended = remat("small.py", "--budget", "95%", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["slower_than_best"] is None


def test_another_name_leaves_the_schedule_as_it_is(folder: Path, remat: Remat) -> None:
    module, asked = folder / "small_remat.py", ("small.py", "--budget", "65%", "--target", "h200")
    assert remat(*asked).code == 0
    edit(module, "range(2)", "range(3)")
    assert remat(*asked).code == 0
    before = plan_of(module)
    assert before.solver.strategy == "committed"
    edit(module, "self.up", "self.wide_up")
    assert remat(*asked).code == 0
    again = [
        [name.replace("wide_up", "up") for name in b.rematerialised] for b in plan_of(module).blocks
    ]
    assert again == [list(block.rematerialised) for block in before.blocks]
    assert plan_of(module).solver.strategy == "committed"
