"""The programs of one file: a schedule for every step, and others for some of them."""

from __future__ import annotations

from dataclasses import dataclass

from remat_gen.ir.rung import Rung
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Program:
    """A schedule, and its problem at the longest steps of its `rung`; None admits every step."""

    problem: Problem
    schedule: Schedule
    rung: Rung | None = None
