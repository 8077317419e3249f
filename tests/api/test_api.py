"""The commands as functions, for a file and for a model that was built already."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from traced_once import traced_once as traced_once

import remat_gen
from remat_gen.cli.app import main
from remat_gen.ir.errors import UsageError
from remat_gen.ir.plan import read_plan
from remat_gen.trade_off.sweep_text import sweep_json

NET = '''
"""A network whose class needs arguments: only a built one can be planned."""

import torch.nn.functional as F
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.width = width
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        for layer in self.layers:
            x = self.drop(F.gelu(layer(x)))
        return (x * scale).square().mean()
'''
FILE = (
    NET
    + """

def build_model() -> nn.Module:
    return Net(16, 3)


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(64, 16),)
""".replace("torch.randn", "__import__('torch').randn")
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder whose files can be imported, the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "net_file.py").write_text(FILE, encoding="utf-8")
    (tmp_path / "net_live.py").write_text(NET, encoding="utf-8")
    yield tmp_path
    for name in ("net_live", "net_live_remat", "net_file", "net_file_remat"):
        sys.modules.pop(name, None)


def test_a_file_is_planned_verified_checked_and_compared(folder: Path) -> None:
    path = folder / "net_file.py"
    planned = remat_gen.generate(path, budget="80%", strategy="rotor")
    assert planned.output == folder / "net_file_remat.py"
    assert planned.plan == read_plan(folder / "net_file_remat.plan.json")
    assert planned.output.read_text() == planned.text
    assert planned.plan.predicted.peak_bytes <= planned.plan.asked.budget_bytes
    report = remat_gen.verify(planned.output)
    assert report.ok and report.bitwise
    assert not remat_gen.check(planned.output).stale
    other = remat_gen.generate(path, budget="100%", output=folder / "free.py")
    assert not remat_gen.diff(planned.output, other.output or "").empty
    assert remat_gen.diff(planned.output, planned.output).empty


def test_a_file_by_the_function_is_the_file_by_the_command(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    remat_gen.generate("net_file.py", budget="80%", keep=["gelu"], dynamic=["x:0"])
    first = (folder / "net_file_remat.py").read_bytes()
    options = ("--budget", "80%", "--keep", "gelu", "--dynamic", "x:0")
    assert main(["net_file.py", *options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["costs_reused"]
    assert (folder / "net_file_remat.py").read_bytes() == first


def test_a_file_that_was_imported_before_is_planned_as_any(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a notebook: the file's globals stood in the tables by a name of planning's own."""
    text = FILE.replace("class Net", "SCALE = 1.5\n\n\nclass Net").replace("* scale", "* SCALE")
    (folder / "net_file.py").write_text(text, encoding="utf-8")
    importlib.import_module("net_file")
    monkeypatch.delitem(sys.modules, "net_file_remat", raising=False)
    planned = remat_gen.generate("net_file.py", budget="80%", strategy="rotor")
    assert '":SCALE": 1.5' in planned.text
    file = importlib.import_module("net_file_remat")
    model, inputs = file.build_model(), file.example_inputs()
    model(*inputs)
    file.SCALE = 3.0
    with pytest.raises(ValueError, match=r"SCALE is 3\.0, planned for 1\.5"):
        model(*inputs)


def test_a_built_model_is_planned_from_its_class_s_file(folder: Path) -> None:
    model = importlib.import_module("net_live").Net(16, 4)
    inputs = (torch.randn(64, 16),), {"scale": 2.0}
    planned = remat_gen.generate(model, inputs, budget="75%", strategy="rotor", recompute=["gelu"])
    assert planned.output == folder / "net_live_remat.py"
    call = "remat_gen.generate(Net(…), inputs, budget='75%', strategy='rotor', recompute=['gelu']"
    assert planned.plan.asked.command.startswith(call)
    assert f"#     {call}" in planned.text
    assert remat_gen.verify(planned.output, model, inputs).bitwise
    assert not remat_gen.check(planned.output, model, inputs).stale
    assert losses(importlib.import_module("net_live_remat").Net, 4) == losses(type(model), 4)


def losses(kind: Any, depth: int) -> list[float]:
    """Return the losses of three steps of training."""
    torch.manual_seed(1)
    model = kind(16, depth)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(64, 16), scale=2.0)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def test_a_built_model_is_needed_to_check_what_was_made_of_one(folder: Path) -> None:
    net = importlib.import_module("net_live").Net
    planned = remat_gen.generate(net(16, 2), torch.randn(64, 16), budget="100%")
    assert planned.output is not None
    with pytest.raises(UsageError, match=r"a built Net.*remat_gen\.check\(path, model, inputs\)"):
        remat_gen.check(planned.output)
    deeper = remat_gen.check(planned.output, net(16, 3), torch.randn(64, 16))
    assert deeper.causes == ("the model is traced to other operations than the plan's",)


def test_a_class_of_a_notebook_s_cell(folder: Path) -> None:
    """Run a cell: its class is in `__main__`, which has no file there."""
    cell = NET + (
        "import torch, remat_gen\n"
        "try:\n    remat_gen.generate(Net(4, 1), torch.randn(2, 4), budget='100%')\n"
        "except remat_gen.RematError as error:\n    print(error)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-"], input=cell, capture_output=True, text=True, env=environment
    )
    assert "class Net is defined in no file, but in a notebook's cell" in done.stdout, done.stderr
    assert "%%writefile model.py" in done.stdout


class Local(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def test_refused(folder: Path) -> None:
    class Inner(Local):
        pass

    x = torch.randn(2, 4)
    for call, message in (
        (lambda: remat_gen.generate(Inner(), x, budget="1GB"), "not defined at the top level"),
        (lambda: remat_gen.generate(nn.Linear(4, 4), x, budget="1GB"), "comes from a library"),
        (lambda: remat_gen.generate(Local(), "x", budget="1GB"), "give what the model is called"),
        (lambda: remat_gen.generate(Local(), x, budget="1GB"), "requires a gradient"),
        (lambda: remat_gen.generate("net_file.py", x, budget="1GB"), "a file makes its own"),
        (lambda: remat_gen.generate(3, budget="1GB"), "give a path or a torch.nn.Module, not int"),
        (lambda: remat_gen.generate("net_file.py"), "give --budget"),
        (
            lambda: remat_gen.generate("net_file.py", budget="1GB", strategy="rotr"),
            "did you mean 'rotor'",
        ),
        (lambda: remat_gen.sweep("net_file.py", strategies=["rotr"]), "rotr: unknown; known are"),
        (lambda: remat_gen.sweep("net_file.py", effort="lazy"), "none of quick, normal"),
        (lambda: remat_gen.sweep(nn.Linear(4, 4), x), "comes from a library"),
        (lambda: remat_gen.sweep("net_file.py", x), "a file makes its own"),
    ):
        with pytest.raises(remat_gen.RematError, match=message):
            call()


def test_a_budget_that_is_too_small_tells_the_smallest(folder: Path) -> None:
    with pytest.raises(remat_gen.InfeasibleBudgetError) as caught:
        remat_gen.generate("net_file.py", budget=1000)
    again = remat_gen.generate("net_file.py", budget=caught.value.smallest_bytes)
    assert again.plan.predicted.peak_bytes == caught.value.smallest_bytes


def test_a_sweep_by_the_function_is_the_sweep_by_the_command(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    remat_gen.generate("net_file.py", budget="100%")  # its costs are used again
    found = remat_gen.sweep("net_file.py", strategies=["rotor", "none"], points=3)
    options = ("--strategies", "rotor,none", "--points", "3", "--json")
    capsys.readouterr()
    assert main(["sweep", "net_file.py", *options]) == 0
    assert sweep_json(found) == json.loads(capsys.readouterr().out)
    assert [curve.strategy for curve in found.curves] == ["rotor", "none"]


def test_a_built_model_is_swept(folder: Path) -> None:
    model = importlib.import_module("net_live").Net(16, 4)
    inputs = (torch.randn(64, 16),), {"scale": 2.0}
    found = remat_gen.sweep(model, inputs, strategies=["rotor"], points=2)
    planned = remat_gen.generate(model, inputs, budget="100%")
    assert found.title == "net_live.py"
    assert found.eager_peak_bytes == planned.plan.predicted.eager_peak_bytes
    (curve,) = found.curves
    assert curve.points[-1].time_us == found.eager_time_us
    assert curve.points[0].peak_bytes < found.eager_peak_bytes


def test_public_names_are_there_and_no_others() -> None:
    assert {"generate", "check", "verify", "diff", "sweep"} <= set(dir(remat_gen))
    modules = {path.stem for path in Path(remat_gen.__file__).parent.glob("*.py")}
    assert not modules & set(remat_gen.__all__)  # importing one would hide the function
    with pytest.raises(AttributeError, match="no attribute 'plan_it'"):
        _ = remat_gen.plan_it  # type: ignore[attr-defined]
    code = "import remat_gen, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_plan_shows_itself_in_a_notebook(folder: Path) -> None:
    planned = remat_gen.generate(folder / "net_file.py", budget="80%")
    html = planned._repr_html_()
    assert html.count("<table>") == 2
    assert "net_file_remat.py" in html
    assert all(block.name in html for block in planned.plan.blocks)


def test_one_pattern_is_not_its_letters(folder: Path) -> None:
    planned = remat_gen.generate(folder / "net_file.py", budget="100%", keep="gelu", dynamic="x:0")
    assert planned.plan.keep == ("gelu",)
    assert planned.plan.dynamic == ("x:0",)


def test_verify_leaves_the_callers_model_as_it_is(folder: Path) -> None:
    """Its parameters were those of the steps that were compared, and it had gradients."""
    model, x = importlib.import_module("net_live").Net(16, 3), torch.randn(64, 16)
    model.eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    generated = remat_gen.generate(model, x, budget="100%")
    assert remat_gen.verify(str(generated.output), model, x).ok
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_threads_take_turns(folder: Path) -> None:
    """Two at once refused each other's random numbers, and left torch patched."""
    model, x = importlib.import_module("net_live").Net(16, 3), torch.randn(64, 16)
    found: list[object] = []

    def plan(name: str) -> None:
        try:
            found.append(remat_gen.generate(model, x, budget="100%", output=name).output)
        except Exception as error:
            found.append(error)

    threads = [threading.Thread(target=plan, args=(f"one_{i}.py",)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, found)) == ["one_0.py", "one_1.py"]


def test_a_planned_model_and_one_of_another_class(folder: Path) -> None:
    model, x = importlib.import_module("net_live").Net(16, 3), torch.randn(64, 16)
    output = remat_gen.generate(model, x, budget="100%").output
    planned = importlib.import_module("net_live_remat").Net(16, 3)
    with pytest.raises(UsageError, match="Net is planned already"):
        remat_gen.check(str(output), planned, x)
    (folder / "other.py").write_text(NET.replace("class Net", "class Other"), encoding="utf-8")
    other = importlib.import_module("other").Other(16, 3)
    with pytest.raises(UsageError, match="generated from a Net, not from a Other"):
        remat_gen.verify(str(output), other, x)
