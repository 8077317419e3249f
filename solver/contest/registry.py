"""All strategies by name."""

from __future__ import annotations

from typing import TypeAlias

from remat_gen.solver.blocks.judged_runs import SearchFunction
from remat_gen.solver.contest.auto import FINE, Auto
from remat_gen.solver.contest.front_entrant import FrontEntrant
from remat_gen.solver.contest.repairs import Repairs
from remat_gen.solver.contest.search_entrant import ExactEntrant, SearchEntrant
from remat_gen.solver.contest.stages_entrant import StagesEntrant
from remat_gen.solver.contest.subject import Subject
from remat_gen.solver.law.search_types import Effort, Progress, silent
from remat_gen.solver.published import checkmate, checkmate_lp, chen, griewank, ogc
from remat_gen.solver.stages.exact_search import GLANCE, LIMITS, Limits
from remat_gen.solver.stages.stage_program import Answers

Entrant: TypeAlias = Auto | FrontEntrant | SearchEntrant
"""A strategy on one subject."""


AUTO = "auto"
FRONTS = ("rockmate", "rotor", "per-layer", "none")
PUBLISHED: dict[str, SearchFunction] = {
    "checkmate": checkmate.search,
    "checkmate-lp": checkmate_lp.search,
    "ogc": ogc.search,
    "chen-sqrt": chen.sqrt_search,
    "chen-greedy": chen.greedy_search,
    "griewank": griewank.search,
}
BY_PROGRAMS = ("checkmate", "checkmate-lp")
"""Those of them that search the whole graph, by integer or linear programs."""
STRATEGIES = (AUTO, *FRONTS, *PUBLISHED)
SHORT_SEARCH = 10_000
LONG_SEARCH = {Effort.QUICK: 0, Effort.NORMAL: 120, Effort.THOROUGH: 400}
"""Operations up to which auto searches a bare graph for the optimum again, for longer.

Steps in training, where chain programs and their improvement find as much in less time, only where
they are `FINE`, or at `THOROUGH`.
"""
NEAR = {Effort.QUICK: 5e-3, Effort.NORMAL: 2e-3, Effort.THOROUGH: 0.0}
"""What part of a step's time is not worth rockmate's: measured costs are not as exact."""
CLOSE = {Effort.QUICK: 5e-2, Effort.NORMAL: 2e-2, Effort.THOROUGH: 0.0}
"""What part of a step's time no chain program has won back, beside plans of stages, improved."""
SKETCHED = range(100, 6001)
"""Operations for which auto plans by a few stages."""


def entrant_for(
    name: str, subject: Subject, effort: Effort, progress: Progress = silent
) -> Entrant:
    """Return a strategy on a subject; `name` is one of STRATEGIES."""
    if name == AUTO:
        return _auto(subject, effort, progress)
    if name in FRONTS:
        return FrontEntrant(subject, name, progress, effort)
    return SearchEntrant(subject, name, PUBLISHED[name], effort, name not in BY_PROGRAMS)


def _auto(subject: Subject, effort: Effort, progress: Progress) -> Auto:
    size, near = len(subject.problem.operations), NEAR[effort]
    rotor = FrontEntrant(subject, "rotor", progress, effort)
    repairs = Repairs(subject, near)
    answers: Answers = {}

    def exact(limits: Limits, most: int, near: float = 0.0) -> ExactEntrant | None:
        return ExactEntrant(subject, limits, answers, near) if size <= most else None

    return Auto(
        subject,
        short=exact(LIMITS[Effort.QUICK], SHORT_SEARCH, near),
        stages=StagesEntrant(subject, repairs, effort, near) if size in SKETCHED else None,
        improve=repairs if subject.chain is not None else None,
        rotor=rotor,
        rockmate=FrontEntrant(subject, "rockmate", progress, effort, rotor),
        long=exact(LIMITS[effort], _searched_long(subject, effort)),
        below=exact(LIMITS[Effort.QUICK] if size <= FINE else GLANCE, SHORT_SEARCH),
        near=near,
        close=CLOSE[effort],
        progress=progress,
    )


def _searched_long(subject: Subject, effort: Effort) -> int:
    """Return the operations up to which the exact search goes on for longer."""
    shortly = subject.chain is not None and effort is not Effort.THOROUGH
    return min(LONG_SEARCH[effort], FINE) if shortly else LONG_SEARCH[effort]
