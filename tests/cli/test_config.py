"""Targets in pyproject.toml: what they say and must not, and the commands over all of them."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest
from cli_runs import Remat

from remat_gen.ask.config import KEYS, read_targets
from remat_gen.ask.pin_patterns import Pins
from remat_gen.ask.request import DeviceMemory, Strategy
from remat_gen.cli.command_generate import generate
from remat_gen.ir.errors import UsageError

TARGET = '[tool.remat-gen.targets.small]\nsource = "small.py"\nbudget = "75%"\n'
QUICK = 'strategy = "per-layer"\n'  # where the schedule is not looked at


def targets(folder: Path, text: str) -> None:
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")


def test_a_target_is_a_request(tmp_path: Path) -> None:
    text = (
        '[tool.remat-gen.targets.big]\nsource = "models/big.py"\noutput = "out/big.py"\n'
        'device-memory = "24GB"\noptimizer = "sgd"\nmodel = "Big"\nstrategy = "rotor"\n'
    )
    targets(tmp_path, TARGET + text)
    small, big = read_targets(tmp_path)
    assert small.name == "small"
    assert small.output == tmp_path / "small_remat.py"
    assert small.request.command() == "remat-gen small.py --budget 75% -o small_remat.py"
    assert big.output == tmp_path / "out" / "big.py"
    assert isinstance(big.request.limit, DeviceMemory)
    assert (big.request.model, big.request.strategy) == ("Big", Strategy.ROTOR)


def test_the_nearest_file_with_targets_counts(tmp_path: Path) -> None:
    inner = tmp_path / "models" / "deep"
    inner.mkdir(parents=True)
    targets(tmp_path, TARGET)
    (inner / "pyproject.toml").write_text('[project]\nname = "x"\n')
    (found,) = read_targets(inner)
    assert found.request.model_file == tmp_path / "small.py"


def test_every_option_of_generate_is_a_key() -> None:
    """A target can say whatever the command line can; what a run is told stays an option."""
    names = set(inspect.signature(generate).parameters)
    of_a_run = {"force", "reprofile", "fresh", "as_json", "quiet", "debug"}
    keys = {key.replace("-", "_") for key in KEYS}
    assert names - of_a_run == keys - {"source"} | {"model_file"}


def test_what_varies_and_what_is_pinned(tmp_path: Path) -> None:
    more = 'dynamic = ["x:0", "labels:0"]\nkeep = ["up", "gelu"]\nrecompute = ["norm"]\n'
    targets(tmp_path, TARGET + more)
    (target,) = read_targets(tmp_path)
    assert target.request.dynamic == ("x:0", "labels:0")
    assert target.request.pins == Pins(("gelu", "up"), ("norm",))
    assert "--keep gelu --keep up --recompute norm" in target.request.command()
    targets(tmp_path, TARGET + "static = true\n")
    (target,) = read_targets(tmp_path)
    assert target.request.dynamic == ()


REFUSED = {
    "no table": ("[project]\n", r"no pyproject\.toml here or above has targets"),
    "no TOML": ("[tool", r"pyproject\.toml: is no TOML"),
    "no targets": (
        "[tool.remat-gen]\n",
        r"has no targets; write \[tool\.remat-gen\.targets\.NAME\]",
    ),
    "misspelt key": (TARGET + 'bugdet = "1GB"\n', "unknown key 'bugdet'; did you mean 'budget'"),
    "key of a target": (
        '[tool.remat-gen]\nbudget = "1GB"\n',
        r"'budget': it is one of a target's, which is a table \[tool.remat-gen.targets.NAME\]",
    ),
    "unknown key": (TARGET + 'colour = "red"\n', "unknown key 'colour'; known are source, output"),
    "unknown table": ("[tool.remat-gen]\ntarget = 1\n", "did you mean 'targets'"),
    "no source": ('[tool.remat-gen.targets.a]\nbudget = "1GB"\n', r"targets\.a has no source"),
    "no budget": ('[tool.remat-gen.targets.a]\nsource = "a.py"\n', r"targets\.a: give --budget"),
    "bad budget": (TARGET.replace("75%", "abc"), r"targets\.small: .*abc"),
    "a number": (TARGET.replace('"75%"', "75"), r"small\.budget is 75; write a text"),
    "strategy": (TARGET + 'strategy = "rotr"\n', "is none of .*; did you mean 'rotor'"),
    "a text for a list": (TARGET + 'keep = "up"\n', r"keep is .up.; write a list of texts: keep ="),
    "numbers in a list": (TARGET + "dynamic = [0]\n", r"dynamic is \[0\]; write a list of texts"),
    "a text for a flag": (TARGET + 'static = "yes"\n', r"static is .yes.; write true or false"),
    "a number for a flag": (TARGET + "static = 1\n", r"static is 1; write true or false"),
    "dynamic and static": (
        TARGET + 'static = true\ndynamic = ["x:0"]\n',
        "targets.small: --dynamic and --static exclude each other",
    ),
    "misspelt list": (TARGET + 'recompue = ["up"]\n', "did you mean 'recompute'"),
    "two that write the same": (
        TARGET + TARGET.replace("targets.small", "targets.other"),
        "targets.other writes what small writes; give it an output",
    ),
    "no table of tools": ("tool = 3\n", "tool is 3; write a table"),
    "no table for a target": ("[tool.remat-gen.targets]\na = 1\n", "is 1; write a table"),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(tmp_path: Path, text: str, message: str) -> None:
    targets(tmp_path, text)
    with pytest.raises(UsageError, match=message):
        read_targets(tmp_path)


def test_generate_and_check_do_all_targets(folder: Path, remat: Remat) -> None:
    other = (folder / "small.py").read_text().replace("range(2)", "range(3)")
    (folder / "other.py").write_text(other)
    small = TARGET + QUICK
    targets(folder, small + small.replace("small", "other"))
    assert remat().code == 0
    assert (folder / "small_remat.py").exists()
    ended = remat("check", "--json")
    assert ended.code == 0
    assert [row["file"] for row in json.loads(ended.out)] == ["small_remat.py", "other_remat.py"]
    (folder / "other.py").write_text(other + "\n")
    assert remat("check").code == 1


def test_options_belong_to_a_file(folder: Path, remat: Remat) -> None:
    targets(folder, TARGET)
    for option in (("--budget", "50%"), ("--keep", "up"), ("--strategy", "rotor"), ("--static",)):
        ended = remat(*option)
        assert ended.code == 2
        assert "name the file" in ended.err


def test_check_sees_that_a_target_asks_for_something_else(folder: Path, remat: Remat) -> None:
    targets(folder, TARGET + QUICK)
    assert remat("-q").code == 0
    assert remat("check").code == 0
    targets(folder, TARGET.replace("75%", "80%") + QUICK)
    ended = remat("check")
    assert ended.code == 1
    assert "stale: pyproject.toml asks for another plan; run: remat-gen small.py" in ended.out
    assert "--budget 80%" in ended.out
    assert remat("check", "small_remat.py").code == 0, "asked about the file alone"


def test_targets_behind_one_that_fails_are_written(folder: Path, remat: Remat) -> None:
    low = TARGET.replace("small", "low").replace("75%", "1%").replace("low.py", "small.py")
    targets(folder, low + QUICK + 'output = "low_remat.py"\n' + TARGET + QUICK)
    ended = remat("--json", "-q")
    assert ended.code == 3
    assert "error: target low: " in ended.err
    failed, written = json.loads(ended.out)
    assert (failed["target"], written["target"]) == ("low", "small")
    assert "no schedule" in failed["error"]
    assert (folder / "small_remat.py").exists()
