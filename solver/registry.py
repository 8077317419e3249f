"""All strategies by name."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from remat_gen.solver.auto import Auto
from remat_gen.solver.chain import Progress
from remat_gen.solver.entrants import Entrant, FrontEntrant
from remat_gen.solver.search import Effort
from remat_gen.solver.search_entrant import Search, SearchEntrant
from remat_gen.solver.subject import Subject


@dataclass(frozen=True, slots=True)
class _Published:
    """A strategy of its own file, imported when it is asked for: scipy's solvers load slowly."""

    module: str
    staged: bool = True
    quick: bool = True

    def search(self) -> Search:
        """Return its search."""
        found: Search = import_module(f"remat_gen.solver.strategies.{self.module}").search
        return found


AUTO = "auto"
FRONTS = ("rockmate", "rotor", "per-layer", "none")
PUBLISHED = {
    "checkmate": _Published("checkmate", staged=False, quick=False),
    "ogc": _Published("ogc"),
}
CHEAP = ("ogc",)
SMALL = {Effort.QUICK: 60, Effort.NORMAL: 100, Effort.THOROUGH: 100}
"""Operations up to which auto searches for the optimum."""

STRATEGIES = (AUTO, *FRONTS, *PUBLISHED)


def entrant_for(
    name: str, subject: Subject, effort: Effort, progress: Progress | None = None
) -> Entrant:
    """Return a strategy on a subject; `name` is one of STRATEGIES."""
    if name == AUTO:
        return _auto(subject, effort, progress)
    if name in FRONTS:
        return FrontEntrant(subject, name, progress)
    return _published(name, subject, effort)


def _auto(subject: Subject, effort: Effort, progress: Progress | None) -> Auto:
    cheap = [_published(name, subject, effort) for name in CHEAP]
    small = len(subject.problem.operations) <= SMALL[effort]
    thorough = [_published("checkmate", subject, Effort.QUICK)] if small else []
    return Auto(subject, cheap, thorough, FrontEntrant(subject, "rockmate", progress))


def _published(name: str, subject: Subject, effort: Effort) -> SearchEntrant:
    found = PUBLISHED[name]
    return SearchEntrant(subject, name, found.search(), effort, found.staged, found.quick)
