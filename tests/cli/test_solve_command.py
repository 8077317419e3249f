"""`remat-gen solve`: JSON in and out, without torch, and an error for everything else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_runs import Remat
from graph_files import chain_nodes, node

from remat_gen.solver.solve import STRATEGIES

KEYS = ("status", "time", "time_ratio", "peak_bytes", "lower_bound", "min_budget", "schedule")


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """Return the file of a chain of 4: 9 nodes, a plain peak of 6."""
    path = tmp_path / "chain.json"
    path.write_text(json.dumps({"nodes": chain_nodes(4)}))
    return path


def _play(nodes: list[dict[str, Any]], schedule: list[list[str]]) -> tuple[int, float]:
    """Return peak and time of a schedule, with nothing of the solver's."""
    by_name = {node["name"]: node for node in nodes}
    there: set[str] = set()
    peak, time = 0, 0.0
    for verb, name in schedule:
        if verb == "free":
            there.remove(name)
            continue
        assert verb == "run" and there.issuperset(by_name[name]["inputs"])
        there.add(name)
        peak = max(peak, sum(by_name[n]["bytes"] for n in there))
        time += by_name[name]["time"]
    assert {name for verb, name in schedule if verb == "run"} == set(by_name)
    return peak, time


@pytest.mark.parametrize("time", [5e-324, 1e-310])
def test_times_may_be_as_small_as_numbers_are(time: float, tmp_path: Path, remat: Remat) -> None:
    nodes = [{**each, "time": time} for each in chain_nodes(4)]
    (tmp_path / "tiny.json").write_text(json.dumps({"nodes": nodes}))
    ended = remat("solve", tmp_path / "tiny.json", "--budget", "5", "--json")
    assert ended.code == 0, ended.err
    result = json.loads(ended.out)
    assert _play(nodes, result["schedule"]) == (result["peak_bytes"], result["time"])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_json_says_what_was_found(strategy: str, chain: Path, remat: Remat) -> None:
    nodes = chain_nodes(4)
    for budget in ("100%", "5"):
        ended = remat("solve", chain, "--budget", budget, "--strategy", strategy, "--json")
        result = json.loads(ended.out)
        assert tuple(result)[: len(KEYS)] == KEYS
        if ended.code == 3:
            assert result["status"] == "infeasible" and result["min_budget"] > 5
            assert all(result[key] is None for key in KEYS if key not in ("status", "min_budget"))
            continue
        assert ended.code == 0, ended.err
        assert _play(nodes, result["schedule"]) == (result["peak_bytes"], result["time"])
        assert result["peak_bytes"] <= result["budget_bytes"]
        assert result["time_ratio"] == result["time"] / 9
        assert 9 <= result["lower_bound"] <= result["time"]
        assert result["min_budget"] is None  # looked for only where nothing fits
        assert (result["status"] == "optimal") == (result["lower_bound"] == result["time"])


def test_a_percentage_is_of_the_plain_peak(chain: Path, remat: Remat) -> None:
    whole = json.loads(remat("solve", chain, "--budget", "100%", "--json").out)
    assert whole["budget_bytes"] == whole["plain_peak_bytes"] == 6
    assert (whole["status"], whole["time_ratio"]) == ("optimal", 1.0)
    part = json.loads(remat("solve", chain, "--budget", "70%", "--json").out)
    assert part["budget_bytes"] == 4


def test_sizes_are_read_as_generate_reads_them(tmp_path: Path, remat: Remat) -> None:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps({"nodes": [node("a", nbytes=10**9)]}))
    assert remat("solve", path, "--budget", "1GB").code == 0
    assert remat("solve", path, "--budget", "1GiB").code == 0
    assert remat("solve", path, "--budget", "999MB").code == 3


def test_people_get_a_table(chain: Path, remat: Remat) -> None:
    ended = remat("solve", chain, "--budget", "5")
    assert ended.code == 0
    lines = dict(line.split(None, 1) for line in ended.out.splitlines())
    assert lines["budget"].startswith("5 B, 83.3% of the plain peak")
    assert lines["peak"].startswith("5 B planned, 6 B plain")
    assert "10 planned, 9 plain: × 1.1111, 1 node runs again" in lines["time"]
    assert "bound" in lines and "solver" in lines
    assert lines["run"].startswith("again  f")
    assert remat("solve", chain, "--budget", "5", "--quiet").out == ""


@pytest.mark.parametrize("strategy", ["auto", "rockmate", "none"])
def test_an_infeasible_budget_names_the_smallest(strategy: str, chain: Path, remat: Remat) -> None:
    ended = remat("solve", chain, "--budget", "2", "--strategy", strategy)
    assert ended.code == 3
    assert ended.out == ""
    smallest = json.loads(
        remat("solve", chain, "--budget", "2", "--strategy", strategy, "--json").out
    )["min_budget"]
    assert f"feasible for {strategy} is {smallest} bytes" in ended.err
    assert "set by node" in ended.err
    for budget, code in ((smallest, 0), (smallest - 1, 3)):
        assert remat("solve", chain, "--budget", budget, "--strategy", strategy).code == code


def test_hostile_names_are_shown_and_given_back(tmp_path: Path, remat: Remat) -> None:
    name = "f[bold]\n\ud800é"
    nodes = [node(name), node("b"), node("c", name, "b"), node("d", "b"), node("e", "c", "d")]
    path = tmp_path / "graph.json"
    path.write_text(json.dumps({"nodes": nodes}))
    ended = remat("solve", path, "--budget", "100%", "--json")
    assert ["run", name] in json.loads(ended.out)["schedule"]
    assert remat("solve", path, "--budget", "100%").code == 0
    assert remat("solve", path, "--budget", "1").code == 3


@pytest.mark.parametrize("budget", ["abc", "0", "-3", "201%", "nan", ""])
def test_bad_budgets_are_refused(budget: str, chain: Path, remat: Remat) -> None:
    ended = remat("solve", chain, f"--budget={budget}")
    assert ended.code == 2
    assert "--budget" in ended.err and ("6GB" in ended.err or "70%" in ended.err)


def test_options_that_are_none(chain: Path, remat: Remat) -> None:
    for options in (["--strategy", "best"], ["--effort", "much"], ["--budgets", "3"], []):
        ended = remat("solve", chain, *options)
        assert ended.code == 2 and "error:" in ended.err


def test_torch_is_not_imported(chain: Path, tmp_path: Path) -> None:
    """A torch that cannot be imported is in the way: whoever tries fails."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "torch.py").write_text("raise ImportError('torch was imported')")
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "broken")}
    check = [sys.executable, "-c", "import torch"]
    assert subprocess.run(check, env=environment, capture_output=True).returncode == 1
    command = [sys.executable, "-m", "remat_gen.cli.app", "solve", str(chain), "--budget"]
    for budget, code in (("5", 0), ("1", 3)):
        ended = subprocess.run([*command, budget], env=environment, capture_output=True, text=True)
        assert ended.returncode == code, ended.stderr


@pytest.mark.parametrize("seed", ["1", "2"])
def test_the_hash_seed_changes_nothing(seed: str, chain: Path, remat: Remat) -> None:
    here = remat("solve", chain, "--budget", "4", "--json").out
    command = [sys.executable, "-m", "remat_gen.cli.app", "solve", str(chain), "--budget", "4"]
    environment = os.environ | {"PYTHONHASHSEED": seed}
    ended = subprocess.run(
        [*command, "--json"], env=environment, capture_output=True, text=True, check=True
    )
    assert ended.stdout == here
