"""Full disks, files that cannot be written, files that change, other runs: old files stay whole."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from remat_gen.cli.app import main
from remat_gen.ir.errors import UsageError
from remat_gen.plan import output
from remat_gen.plan.output import one_at_a_time, write_all

Happen = Callable[[str, Callable[[], object]], None]
Contents = Callable[[], dict[str, bytes]]
RUN = ["small.py", "--budget", "80%"]


def _full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as `write` does: without a name


@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_full_disk(
    fails_at: int,
    contents: Contents,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before, real, calls = contents(), os.fsync, []

    def fsync(file: int) -> None:
        calls.append(file)
        _full() if len(calls) == fails_at else real(file)

    monkeypatch.setattr(output.os, "fsync", fsync)
    assert main(RUN) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("remat-gen: error: small_remat.")
    assert "No space left on device" in error and "free some space" in error
    assert contents() == before


_LIMITED = """
import resource, signal, sys
from remat_gen.cli.app import main

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
import remat_gen.plan.pipeline as pipeline
real = pipeline.write_all

def limited(texts):
    resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))
    real(texts)

pipeline.write_all = limited
sys.exit(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
def test_a_disk_that_takes_only_the_beginning(folder: Path, contents: Contents) -> None:
    before = contents()
    assert len(before["small_remat.py"]) > 8000
    ended = subprocess.run(
        [sys.executable, "-c", _LIMITED, *RUN], cwd=folder, capture_output=True, text=True
    )
    assert ended.returncode == 2
    assert "cannot be written: File too large" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert contents() == before


def test_a_folder_that_becomes_read_only_meanwhile(
    folder: Path, contents: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, content: bytes) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    before = contents()
    monkeypatch.setattr(output, "_write_through", refused)
    with pytest.raises(UsageError, match=r"small_remat\.py: cannot be written: Permission denied"):
        write_all({folder / "small_remat.py": "new"})
    assert contents() == before


@pytest.mark.parametrize("stage", ["trace", "solve", "write"])
def test_a_model_that_changes_during_the_run(
    stage: str, folder: Path, at: Happen, contents: Contents, capsys: pytest.CaptureFixture[str]
) -> None:
    model = folder / "small.py"
    before = contents()
    at(stage, lambda: model.write_text(model.read_text() + "\nANSWER = 42\n"))
    assert main(RUN) == 2
    assert "small.py: changed while it was being planned; nothing was written" in (
        capsys.readouterr().err
    )
    after = contents()
    assert after.pop("small.py") != before.pop("small.py")
    assert after == before


def test_a_module_that_is_edited_during_the_run_is_kept(
    folder: Path, at: Happen, contents: Contents, capsys: pytest.CaptureFixture[str]
) -> None:
    module = folder / "small_remat.py"
    at("solve", lambda: module.write_text(module.read_text() + "\nANSWER = 42\n"))
    assert main(RUN) == 2
    assert "edited by hand" in capsys.readouterr().err
    assert contents()["small_remat.py"].endswith(b"ANSWER = 42\n")


def test_two_runs_leave_a_module_and_its_plan_that_belong_together(tmp_path: Path) -> None:
    """Each run renames two files; between the two, the other one must wait."""
    files = [tmp_path / "a.plan.json", tmp_path / "a.py"]
    real, inside = os.replace, []

    def slow(source: object, target: object) -> None:
        inside.append(threading.get_ident())
        real(source, target)  # type: ignore[arg-type]
        time.sleep(0.02)

    def write(text: str) -> None:
        with one_at_a_time(files[1]):
            write_all({file: text for file in files})

    output.os.replace = slow  # type: ignore[assignment]
    try:
        threads = [threading.Thread(target=write, args=(text,)) for text in "xyz"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        output.os.replace = real
    assert inside[0::2] == inside[1::2] and len(set(inside)) == 3
    assert len({file.read_text() for file in files}) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"a.plan.json", "a.py"}


@pytest.mark.alone
def test_two_processes_write_the_same_output(folder: Path, contents: Contents) -> None:
    names = contents().keys()
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", "remat_gen", "small.py", "--budget", budget, "--quiet"],
            cwd=folder,
        )
        for budget in ("80%", "90%")
    ]
    assert [run.wait(timeout=120) for run in runs] == [0, 0]
    assert contents().keys() == names
    assert main(["check", "small_remat.py", "--quiet"]) == 0
