"""Problems with more workspace, so that what fits them fits at other sizes, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.replay import replay
from remat_gen.solver.law.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The same operations and values at other sizes; `where` says which: "a batch of 1".

    Operations that need no more room here than at the example's sizes have a workspace of 0.
    """

    where: str
    problem: Problem


def roomy(problem: Problem, elsewhere: tuple[Elsewhere, ...]) -> Problem:
    """Return a problem whose operations have the room that they need at any sizes.

    It is as if all else that is resident were no smaller there.
    """
    more = {}
    for p in range(len(problem.operations)):
        needed = max((other.problem.room_bytes(p) for other in elsewhere), default=0)
        more[p] = needed - problem.room_bytes(p)
    return with_more(problem, more)


def with_more(problem: Problem, more: Mapping[int, int]) -> Problem:
    """Return a problem with more workspace; what is of one signature stays alike."""
    by_signature: dict[str, int] = {}
    for p, nbytes in more.items():
        text = problem.operations[p].signature
        by_signature[text] = max(0, nbytes, by_signature.get(text, 0))
    operations = tuple(
        replace(o, workspace_bytes=o.workspace_bytes + by_signature.get(o.signature, 0))
        for o in problem.operations
    )
    return replace(problem, operations=operations)


def lacking(
    problem: Problem, elsewhere: tuple[Elsewhere, ...], schedule: Schedule, budget_bytes: int
) -> dict[int, int]:
    """Return how much more workspace would have kept a schedule's operations within a budget.

    What else is resident shrinks here and elsewhere in proportion; that is a guess.
    """
    more: dict[int, int] = {}
    here = replay(problem, schedule).timeline
    for other in elsewhere:
        for at, there in zip(here, replay(other.problem, schedule).timeline, strict=True):
            p, excess = at.operation, there.nbytes - budget_bytes
            if excess > 0:
                room = problem.room_bytes(p)
                rest, rest_there = at.nbytes - room, there.nbytes - other.problem.room_bytes(p)
                allowed = rest - excess * rest // max(1, rest_there)
                more[p] = max(more.get(p, 0), budget_bytes - room - allowed)
    return more
