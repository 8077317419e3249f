"""Strategy `checkmate`: the least time where operations run first in the given order.

Source: Paras Jain, Ajay Jain, Aniruddha Nrusimha, Amir Gholami, Pieter Abbeel, Kurt Keutzer, Ion
Stoica and Joseph E. Gonzalez, "Checkmate: Breaking the Memory Wall with Optimal Tensor
Rematerialization", MLSys 2020 (arXiv:1910.02653), with its "frontier-advancing stages": each ends
with the first run of the next operation. Between two of them re-runs stand in any order here, in
the paper in the given one. The program over stages is ours (`stages`), which counts memory where it
is tight alone, and is solved by HiGHS within limits of work, never of time.
"""

from __future__ import annotations

from dataclasses import replace

from remat_gen.solver.blocks.judged_runs import IncumbentSchedule
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.search_types import Effort, Found
from remat_gen.solver.stages import exact_search

CLASS = "schedules in stages of the given order"


def search(incumbent: IncumbentSchedule, effort: Effort) -> Found:
    """Return the quickest schedule in stages within the budget, and a bound on those."""
    problem, hear = in_given_order(incumbent.problem), incumbent.on_better
    found = exact_search.search(problem, incumbent.budget_bytes, effort, on_better=hear)
    return replace(found, bound_for=CLASS)


def in_given_order(problem: Problem) -> Problem:
    """Return the problem whose operations run first in the order in which they stand."""
    operations = tuple(replace(operation, ordered=True) for operation in problem.operations)
    return replace(problem, operations=operations)
