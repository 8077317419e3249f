"""All strategies by name."""

from __future__ import annotations

from typing import TypeAlias

from remat_gen.solver.blocks.judged_runs import SearchFunction
from remat_gen.solver.contest.auto import Auto
from remat_gen.solver.contest.entrants import FrontEntrant, SearchEntrant
from remat_gen.solver.contest.subject import Subject
from remat_gen.solver.law.search_types import Effort, Progress, silent
from remat_gen.solver.published import checkmate, chen, griewank, ogc

Entrant: TypeAlias = Auto | FrontEntrant | SearchEntrant
"""A strategy on one subject."""

AUTO = "auto"
FRONTS = ("rockmate", "rotor", "per-layer", "none")
PUBLISHED: dict[str, SearchFunction] = {
    "checkmate": checkmate.search,
    "checkmate-lp": checkmate.lp_search,
    "ogc": ogc.search,
    "chen-sqrt": chen.sqrt_search,
    "chen-greedy": chen.greedy_search,
    "griewank": griewank.search,
}
STRATEGIES = (AUTO, *FRONTS, *PUBLISHED)


def entrant_for(
    name: str, subject: Subject, effort: Effort, progress: Progress = silent
) -> Entrant:
    """Return a strategy on a subject; `name` is one of STRATEGIES."""
    if name == AUTO:
        return Auto(subject, effort, progress)
    if name in FRONTS:
        return FrontEntrant(subject, name, progress, effort)
    staged = not name.startswith("checkmate")  # programs over stages see the whole graph
    return SearchEntrant(subject, name, PUBLISHED[name], effort, staged)
