"""An interrupted run leaves the old files whole and nothing else behind."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from cli_runs import Remat
from signalled import signalled

from remat_gen.ir.header import split_header
from remat_gen.ir.plan import read_plan
from remat_gen.solver.contest.auto import Auto
from remat_gen.solver.contest.contest import Contest
from remat_gen.solver.contest.entrants import ExactEntrant, FrontEntrant
from remat_gen.solver.law.search_types import INTERRUPTED, Effort, silent
from remat_gen.terminal.interrupt import Interruptible
from remat_gen.terminal.progress import Progress

# The command line with a search that sleeps before it begins.
_PROGRAM = """
import sys, time
from remat_gen.cli.app import main
from remat_gen.solver.contest.auto import Auto

def slow(self, contest):
    print("SOLVING", file=sys.stderr, flush=True)
    time.sleep(60)

Auto.enter = slow
sys.exit(main())
"""


# The program where importing a module takes long.
_IMPORTS = """
import runpy, sys, time

class Slow:
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            print("IMPORTING", file=sys.stderr, flush=True)
            exec("time.sleep({seconds})")

sys.meta_path.insert(0, Slow)
runpy.run_module("remat_gen", run_name="__main__")
"""


def _contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.alone
def test_sigint_before_any_schedule_is_found(existing: Path) -> None:
    before = _contents(existing.parent)
    code, rest = signalled(_PROGRAM, existing.parent, "SOLVING", signal.SIGINT)
    assert code == 130
    assert "remat-gen: interrupted; nothing was written" in rest
    assert _contents(existing.parent) == before


@pytest.mark.alone
@pytest.mark.parametrize(
    ("module", "seconds"), [("typer", 60), ("remat_gen.cli.command_generate", 60), ("torch", 1)]
)
def test_sigint_while_modules_are_imported(module: str, seconds: int, folder: Path) -> None:
    """Torch is imported to its end, since its C code would break."""
    program = _IMPORTS.format(module=module, seconds=seconds)
    code, rest = signalled(program, folder, "IMPORTING", signal.SIGINT)
    assert code == 130
    assert rest.splitlines()[-1] == "remat-gen: interrupted; nothing was written"
    assert "Traceback" not in rest


class _Finalised:
    def __del__(self) -> None:
        _sigint()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_sigint_that_a_finaliser_swallows_comes_back(
    existing: Path, remat: Remat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends the search at the next report of progress; here there is a schedule by then."""

    def enter(self: ExactEntrant, contest: Contest) -> None:
        FrontEntrant(self.subject, "rotor", silent, Effort.NORMAL).enter(contest)
        assert contest.best is not None
        _Finalised()

    monkeypatch.setattr(ExactEntrant, "enter", enter)
    ended = remat("small.py", "--budget", "80%")
    assert ended.code == 0
    assert INTERRUPTED in ended.err.splitlines()
    assert INTERRUPTED in read_plan(existing.with_suffix(".plan.json")).solver.notes


def _after(monkeypatch: pytest.MonkeyPatch, what: Callable[[], object]) -> None:
    """Let the search end with `what`, after it has offered all its schedules."""
    real = Auto.enter

    def enter(self: Auto, contest: Contest) -> None:
        real(self, contest)
        what()

    monkeypatch.setattr(Auto, "enter", enter)


def _sigint() -> None:
    signal.raise_signal(signal.SIGINT)


def _sigint_twice() -> None:
    with contextlib.suppress(KeyboardInterrupt):
        _sigint()
    _sigint()


def test_sigint_keeps_the_best_schedule(
    existing: Path, remat: Remat, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert remat("small.py", "--budget", "80%", "--fresh").code == 0
    uninterrupted = existing.read_text()
    _after(monkeypatch, _sigint)
    ended = remat("small.py", "--budget", "80%", "--fresh")
    assert ended.code == 0
    assert INTERRUPTED in ended.err.splitlines()
    plan = read_plan(existing.with_suffix(".plan.json"))
    assert plan.solver.notes[-1] == INTERRUPTED
    assert plan.predicted.peak_bytes <= plan.asked.budget_bytes
    assert split_header(existing.read_text())[1] == split_header(uninterrupted)[1]


def test_a_second_sigint_ends_it(
    existing: Path, remat: Remat, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _contents(existing.parent)
    _after(monkeypatch, _sigint_twice)
    ended = remat("small.py", "--budget", "80%")
    assert ended.code == 130
    assert "interrupted; nothing was written" in ended.err
    assert _contents(existing.parent) == before


def test_sigint_after_the_solve_ends_it(
    existing: Path, remat: Remat, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _contents(existing.parent)
    monkeypatch.setattr("remat_gen.plan.emission.describe", lambda *_: _sigint())
    assert remat("small.py", "--budget", "80%").code == 130
    assert _contents(existing.parent) == before


@pytest.mark.parametrize(("signals", "code"), [(_sigint, 0), (_sigint_twice, 130)])
def test_sigint_while_a_bare_graph_is_solved(
    signals: Callable[[], None],
    code: int,
    tmp_path: Path,
    remat: Remat,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = [{"name": "a", "time": 1, "bytes": 1, "backward": False, "inputs": []}]
    (tmp_path / "graph.json").write_text(json.dumps({"nodes": nodes}))
    _after(monkeypatch, signals)
    ended = remat("solve", tmp_path / "graph.json", "--budget", "1", "--json")
    assert ended.code == code
    if code == 0:
        result = json.loads(ended.out)
        assert result["interrupted"] and result["schedule"] == [["run", "a"], ["free", "a"]]
        assert f"remat-gen: {INTERRUPTED}" in ended.err.splitlines()


def test_a_swallowed_interrupt_comes_back() -> None:
    with Interruptible(Progress()) as progress:
        step = progress.stage("solve")
        step("block", 1, 2)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            step("block", 2, 2)
        with pytest.raises(KeyboardInterrupt):
            progress.stage("write")


def test_a_pardoned_interrupt_does_not_come_back() -> None:
    with Interruptible(Progress()) as progress:
        with pytest.raises(KeyboardInterrupt):
            _sigint()
        progress.pardon()
        progress.stage("emit")
        with pytest.raises(KeyboardInterrupt):
            _sigint()
        with pytest.raises(KeyboardInterrupt):
            progress.pardon()


def test_what_fails_after_an_interrupt_failed_by_it() -> None:
    with pytest.raises(KeyboardInterrupt), Interruptible(Progress()):
        with contextlib.suppress(KeyboardInterrupt):
            _sigint()
        raise AttributeError("half a library")


def test_a_second_sigint_ends_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "twice_interrupted.py").write_text(
        "import signal\nsignal.raise_signal(2)\nONCE = True\nsignal.raise_signal(2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt) as raised, Interruptible(Progress()):
        import_module("twice_interrupted")
    assert any("ONCE" in entry.frame.f_globals for entry in raised.traceback)


def test_the_signal_is_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interruptible(Progress()):
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_are_left_alone() -> None:
    stages = []

    def work() -> None:
        with Interruptible(Progress()) as progress:
            stages.append(progress.stage("solve"))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert stages
