"""All strategies by name."""

from __future__ import annotations

from remat_gen.solver.auto import Auto
from remat_gen.solver.chain import Progress
from remat_gen.solver.entrants import Entrant, FrontEntrant
from remat_gen.solver.search import Effort
from remat_gen.solver.subject import Subject

FRONTS = ("rockmate", "rotor", "per-layer", "none")
AUTO = "auto"
STRATEGIES = (AUTO, *FRONTS)


def entrant_for(
    name: str, subject: Subject, effort: Effort, progress: Progress | None = None
) -> Entrant:
    """Return a strategy on a subject; `name` is one of STRATEGIES."""
    if name == AUTO:
        return Auto(subject, effort, progress)
    return FrontEntrant(subject, name, progress)
