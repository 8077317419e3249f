"""A search beside another one: the same schedule, and an end where it is not wanted."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from solver_problems import gpt_like

from remat_gen.solver import ahead, auto, entrants
from remat_gen.solver.ahead import Ahead
from remat_gen.solver.search import Effort, Progress, silent
from remat_gen.solver.second_process import started_by
from remat_gen.solver.solve import Solution, Solver

Report = tuple[str, int, int]
WAIT_S = 60.0  # for what comes at once


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "cores", lambda: 2)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Collect the processes that are started."""
    processes: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def popen(*args: object, **options: object) -> subprocess.Popen[bytes]:
        process = real(*args, **options)  # type: ignore[call-overload]
        processes.append(process)
        return process  # type: ignore[no-any-return]

    monkeypatch.setattr(subprocess, "Popen", popen)
    return processes


@dataclass
class Marked:
    """A search that leaves a mark when it has begun, then does as it is told."""

    mark: Path
    then: str = "return"

    def __call__(self, progress: Progress) -> int:
        print("what a library prints")
        progress("improve", 1, 2)
        self.mark.touch()
        while self.then == "go on" and not self.mark.with_name("heard").exists():
            time.sleep(0.01)
        if self.then == "raise":
            raise ValueError("no such block")
        if self.then == "die":
            os._exit(3)
        progress("improve", 2, 2)
        return os.getpid()


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_another_process_finds_and_reports(tmp_path: Path) -> None:
    reports: list[Report] = []

    def hear(*report: str | int) -> None:
        reports.append(report)  # type: ignore[arg-type]
        (tmp_path / "heard").touch()

    with Ahead(Marked(tmp_path / "mark", "go on")) as running:
        found = running.wait(hear)
    assert found is not None and found != os.getpid()
    assert reports[0] == ("improve", 1, 2)


def test_a_search_that_is_not_wanted_ends(
    tmp_path: Path, begun: list[subprocess.Popen[bytes]]
) -> None:
    before = threading.active_count()
    with Ahead(Marked(tmp_path / "mark", "go on")):
        wait_for((tmp_path / "mark").exists)
        assert begun[0].poll() is None
    assert begun[0].poll() is not None
    assert threading.active_count() == before


def test_a_search_that_was_hardly_handed_over_ends(begun: list[subprocess.Popen[bytes]]) -> None:
    with Ahead(Large(bytes(1 << 24))):  # more than a pipe holds
        pass
    assert begun[0].poll() is not None


@dataclass
class Large:
    """A search that takes long to hand over."""

    nbytes: bytes

    def __call__(self, progress: Progress) -> int:
        return len(self.nbytes)


def test_a_large_search_and_its_like() -> None:
    with Ahead(Large(bytes(1 << 24))) as running:
        assert running.wait(silent) == 1 << 24


def test_an_interrupt_ends_it_too(tmp_path: Path, begun: list[subprocess.Popen[bytes]]) -> None:
    search = Marked(tmp_path / "mark", "go on")
    with pytest.raises(KeyboardInterrupt), Ahead(search):
        wait_for((tmp_path / "mark").exists)
        raise KeyboardInterrupt
    assert begun[0].poll() is not None


def test_an_interrupt_that_a_report_raises_comes_through(
    tmp_path: Path, begun: list[subprocess.Popen[bytes]]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Ahead(Marked(tmp_path / "mark", "go on")) as running:
        running.wait(interrupted)
    assert begun[0].poll() is not None


@pytest.mark.parametrize("then", ["raise", "die"])
def test_nothing_is_found_where_a_search_fails(tmp_path: Path, then: str) -> None:
    with Ahead(Marked(tmp_path / "mark", then)) as running:
        assert running.wait(silent) is None
    assert (tmp_path / "mark").exists()


def test_nothing_is_found_where_a_search_cannot_be_handed_over() -> None:
    with Ahead(lambda _: 1) as running:
        assert running.wait(silent) is None


def test_without_another_process_nothing_is_searched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError("no process can be started")

    monkeypatch.setattr(subprocess, "Popen", refused)
    with Ahead(Marked(tmp_path / "mark")) as running:
        assert running.wait(silent) is None


def test_one_core_has_no_second_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, begun: list[subprocess.Popen[bytes]]
) -> None:
    monkeypatch.setattr(ahead, "cores", lambda: 1)
    with Ahead(Marked(tmp_path / "mark")) as running:
        assert running.wait(silent) is None
    assert not begun


def test_without_another_thread_nothing_is_searched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, begun: list[subprocess.Popen[bytes]]
) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with Ahead(Marked(tmp_path / "mark")) as running:
        assert running.wait(silent) is None
    assert begun[0].poll() is not None


@pytest.mark.parametrize(
    "noise",
    ["one line\\n", "x" * 200_000, "I1\\n.", "no end of a line"],
    ids=["line", "long", "mark", "no end"],  # pytest puts them into the environment: no long ones
)
def test_what_is_printed_when_python_starts_is_not_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, noise: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"print('{noise}', end='', flush=True)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Ahead(Large(bytes(1 << 20))) as running:
        assert running.wait(silent) == 1 << 20


@pytest.mark.alone
def test_it_ends_though_others_hold_its_output(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, begun: list[subprocess.Popen[bytes]]
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import subprocess; subprocess.Popen(['sleep', '30'])"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    before = time.monotonic()
    with Ahead(Marked(tmp_path / "mark", "go on")):
        wait_for((tmp_path / "mark").exists)
    assert begun[0].poll() is not None
    assert time.monotonic() - before < 20


@pytest.mark.parametrize("program", ["/usr/bin/blender", "", None])
def test_what_python_is_embedded_in_is_not_started(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    begun: list[subprocess.Popen[bytes]],
    program: str | None,
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    with Ahead(Marked(tmp_path / "mark")) as running:
        assert running.wait(silent) is None
    assert not begun


def test_modules_in_the_current_folder_are_not_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("pickle", "sys", "threading", "z3"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a module of the user')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    with Ahead(Marked(tmp_path / "mark")) as running:
        assert running.wait(silent) is not None


def test_it_ends_when_the_first_process_does(tmp_path: Path) -> None:
    process = subprocess.Popen(
        started_by(sys.executable), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    pickle.dump(sys.path, process.stdin)
    pickle.dump(Marked(tmp_path / "mark", "go on"), process.stdin)
    process.stdin.flush()
    wait_for((tmp_path / "mark").exists)
    process.stdin.close()
    assert process.wait(WAIT_S) == 1
    process.stdout.close()


@pytest.mark.parametrize(
    ("quota", "found"), [("max 100000", 2), ("150000 100000", 1), ("400000 100000", 2), ("", 2)]
)
def test_containers_with_less_than_two_cores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quota: str, found: int
) -> None:
    monkeypatch.undo()  # what the fixture says of cores
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    file = tmp_path / "cpu.max"
    monkeypatch.setattr(ahead, "_QUOTA", file)
    if quota:
        file.write_text(quota + "\n")
    assert ahead.cores() == found


@pytest.mark.parametrize(("layers", "percent", "wanted"), [(2, 54, True), (3, 46, False)])
def test_the_same_schedule_as_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
    begun: list[subprocess.Popen[bytes]],
    layers: int,
    percent: int,
    wanted: bool,
) -> None:
    searched: list[object] = []
    build = entrants.build_front

    def watched(*args: object) -> object:
        searched.append(args)
        return build(*args)  # type: ignore[arg-type]

    def solved() -> Solution:
        solver = Solver(gpt_like(layers), "auto", effort=Effort.QUICK)
        return solver.solve(solver.plain.peak_bytes * percent // 100)

    monkeypatch.setattr(auto, "SMALL", 1)
    monkeypatch.setattr(entrants, "build_front", watched)
    beside = solved()
    assert len(begun) == 1
    assert not searched
    monkeypatch.setattr(ahead, "cores", lambda: 1)
    assert beside == solved()
    assert bool(searched) == wanted
    assert len(begun) == 1


def test_what_is_quickly_searched_begins_no_process(
    monkeypatch: pytest.MonkeyPatch, begun: list[subprocess.Popen[bytes]]
) -> None:
    solver = Solver(gpt_like(2), "auto", effort=Effort.QUICK)
    monkeypatch.setattr(auto, "SMALL", len(solver.problem.operations) + 1)
    solver.solve(solver.plain.peak_bytes * 54 // 100)
    assert not begun


def test_a_budget_for_all_begins_no_process(begun: list[subprocess.Popen[bytes]]) -> None:
    solver = Solver(gpt_like(8), "auto", effort=Effort.QUICK)
    assert len(solver.problem.operations) >= auto.SMALL
    solver.solve(solver.plain.peak_bytes)
    assert not begun


def test_the_next_budget_takes_what_was_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "SMALL", 1)
    solver = Solver(gpt_like(2), "auto", effort=Effort.QUICK)
    first = solver.solve(solver.plain.peak_bytes * 54 // 100)

    def refused(*_: object) -> None:
        raise AssertionError("searched again")

    monkeypatch.setattr(entrants, "build_front", refused)
    monkeypatch.setattr(ahead, "cores", lambda: 1)
    assert solver.solve(solver.plain.peak_bytes * 54 // 100) == first
