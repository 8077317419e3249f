"""The garbage collector looks less often while a model is traced, and as before afterwards."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tracing import LINEAR, source, traced

from remat_gen.capture.process.garbage import fewer_collections
from remat_gen.capture.trace.failed_frames import drop_frames
from remat_gen.ir.errors import TraceError


def test_thresholds_are_put_back_after_an_error() -> None:
    before = gc.get_threshold()
    with pytest.raises(ZeroDivisionError), fewer_collections():
        assert gc.get_threshold()[0] > before[0]
        raise ZeroDivisionError
    assert gc.get_threshold() == before


def test_a_model_is_traced_so(tmp_path: Path) -> None:
    before = gc.get_threshold()
    traced(tmp_path, source(LINEAR, "return self.lin(x).sum()"))
    assert gc.get_threshold() == before
    with pytest.raises(TraceError):
        traced(tmp_path, source(LINEAR, "self.n = 1\nreturn x"))
    assert gc.get_threshold() == before


def _fail_with_a_guard() -> None:
    """Leave a guard in a circle that only the garbage collector finds."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.FuncTorchBatched)
    with torch._C._ExcludeDispatchKeyGuard(keys):
        guard = torch._C._ForceDispatchKeyGuard(
            torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
        )
        guard.__enter__()
        held: list[object] = [guard]
        held.append(held)
    raise ValueError


def test_guards_of_a_failed_trace_are_let_go_of_at_once() -> None:
    """What `torch.func` leaves would turn `vmap` off when it is collected, at any time."""
    excluded = torch._C._dispatch_tls_is_dispatch_key_excluded
    assert not excluded("FuncTorchBatched")
    with pytest.raises(ValueError) as failed, fewer_collections():
        _fail_with_a_guard()
    drop_frames(failed.value)
    del failed
    gc.collect()
    assert not excluded("FuncTorchBatched")


def test_libraries_are_left_alone_by_programs_only(tmp_path: Path) -> None:
    script = """
import gc, sys
from remat_gen.capture.process import garbage
garbage.libraries_are_loaded()
assert not gc.get_freeze_count()
garbage.leave_libraries_alone()
sys.modules["triton"] = gc  # as with CUDA's builds: it tells what it has not been rid of
garbage.libraries_are_loaded()
assert not gc.get_freeze_count()
del sys.modules["triton"]
garbage.libraries_are_loaded()
frozen = gc.get_freeze_count()
assert frozen
later = [[]]
garbage.libraries_are_loaded()
assert gc.get_freeze_count() == frozen
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_what_a_models_file_holds_is_closed_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        source(LINEAR, "return self.lin(x).sum()")
        + """
LOG = open("module.log", "w")
LOG.write("held by the module")
class Held: pass
held = Held()
held.itself, held.log = held, open("cycle.log", "w")
held.log.write("held in a cycle")
"""
    )
    for command in ("net.py --budget 100% -o out.py", "verify out.py"):
        words = [sys.executable, "-m", "remat_gen", *command.split()]
        subprocess.run(words, check=True, cwd=tmp_path, capture_output=True)
        assert (tmp_path / "module.log").read_text() == "held by the module"
        assert (tmp_path / "cycle.log").read_text() == "held in a cycle"
        (tmp_path / "module.log").unlink()
        (tmp_path / "cycle.log").unlink()
