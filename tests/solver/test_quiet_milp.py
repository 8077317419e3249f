"""What HiGHS prints stays off standard output, where modules and JSON go."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from solver_problems import gpt_like

from remat_gen.solver.law.search_types import Effort
from remat_gen.solver.solve import Solver
from remat_gen.solver.stages import milp as quiet_milp
from remat_gen.solver.stages.milp import quiet_stdout


def test_what_a_library_writes_stays_off_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    with quiet_stdout():
        os.write(1, b"from C")
    os.write(1, b"after")
    assert capfd.readouterr().out == "after"


@pytest.mark.skipif(os.name == "nt", reason="the name of C's library")
def test_what_the_buffer_of_c_holds_does_not_come_later() -> None:
    program = (
        "import ctypes\n"
        "from remat_gen.solver.stages.milp import quiet_stdout\n"
        "libc = ctypes.CDLL(None)\n"
        "libc.printf(b'before ')\n"
        "with quiet_stdout():\n"
        "    libc.printf(b'from C')\n"
        "libc.printf(b'after')\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert run.stdout == b"before after"


@pytest.mark.parametrize("strategy", ["auto", "checkmate"])
def test_a_talkative_solver(
    strategy: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    calls, milp = [], quiet_milp.milp

    def talkative(*args: Any, **kwargs: Any) -> Any:
        calls.append(os.write(1, b"HighsMipSolverData"))
        return milp(*args, **kwargs)

    monkeypatch.setattr(quiet_milp, "milp", talkative)
    solver = Solver(gpt_like(1), strategy, effort=Effort.QUICK)
    solver.solve(solver.plain.peak_bytes * 9 // 10)
    assert calls
    assert not capfd.readouterr().out


@pytest.mark.skipif(os.name == "nt", reason="descriptors of other processes")
def test_standard_output_may_be_closed() -> None:
    program = (
        "import os\n"
        "from remat_gen.solver.stages.milp import quiet_stdout\n"
        "os.close(1)\n"
        "with quiet_stdout():\n"
        "    pass\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
