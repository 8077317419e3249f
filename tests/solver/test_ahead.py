"""A search beside another one: the same schedule, and an end where it is not wanted."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import pytest
from solver_problems import gpt_like

from remat_gen.solver import ahead, auto
from remat_gen.solver.ahead import Ahead, Leash, NotWantedError
from remat_gen.solver.search import Effort
from remat_gen.solver.solve import Solution, Solver

Report = tuple[str, int, int]
WAIT_S = 30.0  # for what comes at once


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "cores", lambda: 2)


def endless(leash: Leash, running: threading.Event) -> Callable[[], None]:
    """Return a search that only ever reports."""

    def search() -> None:
        while True:
            leash("improve", 1, 2)
            running.set()

    return search


def threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("remat-gen")]


def test_a_search_that_is_not_wanted_ends() -> None:
    reports: list[Report] = []
    leash, running = Leash(lambda *report: reports.append(report)), threading.Event()
    with Ahead(endless(leash, running), leash):
        assert running.wait(WAIT_S)
        assert threads()
        assert not gc.isenabled()
    assert not threads()
    assert gc.isenabled()
    assert reports == []
    leash("chain", 1, 1)  # as good as new
    assert reports == [("chain", 1, 1)]


def test_an_interrupt_ends_it_too() -> None:
    leash, running = Leash(lambda *_: None), threading.Event()
    with pytest.raises(KeyboardInterrupt), Ahead(endless(leash, running), leash):
        assert running.wait(WAIT_S)
        raise KeyboardInterrupt
    assert not threads()
    assert gc.isenabled()


def test_an_interrupt_while_it_ends_comes_when_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    came: list[object] = []

    def interrupted(futures: list[Future[object]]) -> object:
        came.append(futures)
        if len(came) == 1:
            raise KeyboardInterrupt
        return wait(futures)

    monkeypatch.setattr(ahead, "wait_for", interrupted)
    release, running = threading.Event(), threading.Event()
    leash = Leash(lambda *_: None)

    def search() -> None:
        running.set()
        assert release.wait(WAIT_S)
        leash("improve", 1, 1)

    with pytest.raises(KeyboardInterrupt), Ahead(search, leash):
        assert running.wait(WAIT_S)
        threading.Timer(0.2, release.set).start()
    assert len(came) == 2
    assert not threads()
    assert gc.isenabled()
    assert leash.wanted and not leash.silent


def test_without_another_thread_nothing_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> Future[object]:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refused)
    leash = Leash(lambda *_: None)
    with Ahead(lambda: None, leash) as running:
        running.wait()
        assert gc.isenabled()
        assert not leash.silent
    assert gc.isenabled()


def test_the_collector_rests_until_the_last_search_has_ended() -> None:
    first, second = Leash(lambda *_: None), Leash(lambda *_: None)
    other = Ahead(endless(second, threading.Event()), second)
    with Ahead(endless(first, threading.Event()), first):
        other.__enter__()
    assert not gc.isenabled()
    other.__exit__(None, None, None)
    assert gc.isenabled()


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


def test_what_is_waited_for_is_heard_of_and_raises() -> None:
    waited, reports = threading.Event(), list[Report]()
    leash = Leash(lambda *report: reports.append(report))

    def search() -> None:
        leash("solve block", 1, 2)
        assert waited.wait(WAIT_S)
        leash("solve block", 2, 2)
        raise ValueError("no such block")

    running = Ahead(search, leash)
    with pytest.raises(ValueError, match="no such block"), running:
        threading.Timer(0.2, waited.set).start()
        running.wait()
    assert reports in ([("solve block", 2, 2)], [("solve block", 1, 2), ("solve block", 2, 2)])


def test_an_interrupt_that_a_report_raises_comes_through() -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    leash, waited = Leash(interrupted), threading.Event()

    def search() -> None:
        assert waited.wait(WAIT_S)
        leash("improve", 1, 1)

    running = Ahead(search, leash)
    with pytest.raises(KeyboardInterrupt), running:
        threading.Timer(0.2, waited.set).start()
        running.wait()
    assert not threads()


def test_one_core_has_no_second_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "cores", lambda: 1)
    calls: list[str] = []
    with Ahead(lambda: calls.append("searched"), Leash(lambda *_: None)) as running:
        running.wait()
        assert gc.isenabled()
    assert calls == []


@pytest.mark.parametrize(("layers", "percent", "wanted"), [(2, 54, True), (3, 46, False)])
def test_the_same_schedule_as_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch, layers: int, percent: int, wanted: bool
) -> None:
    begun: list[Ahead] = []
    waited: list[Ahead] = []

    class Watched(Ahead):
        def __enter__(self) -> Watched:
            begun.append(self)
            return super().__enter__()

        def wait(self) -> None:
            waited.append(self)
            super().wait()

    def solved() -> Solution:
        solver = Solver(gpt_like(layers), "auto", effort=Effort.QUICK)
        return solver.solve(solver.plain.peak_bytes * percent // 100)

    monkeypatch.setattr(auto, "Ahead", Watched)
    beside = solved()
    assert begun
    assert bool(waited) == wanted
    monkeypatch.setattr(ahead, "cores", lambda: 1)
    assert beside == solved()


def test_the_leash_ends_a_search_at_once() -> None:
    leash = Leash(lambda *_: None, wanted=False)
    with pytest.raises(NotWantedError):
        leash("chain", 1, 2)
