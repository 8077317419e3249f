"""Does the original repeat itself? If not, there is nothing to compare a planned model with.

A planned model has the Python state of when it was planned (a counter, a generator of NumPy's), and
in two steps it may agree to the bit all the same: the original is always run again, for three steps
more. Runs of one, two and two steps begin at the first, second and fourth: state that is back after
two, three or four steps is seen. Nothing else runs between them, as the models may share state.

On the CPU every bit counts. Where a GPU adds in any order, what three repeats are off by is noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

import torch

from remat_gen.capture.device.kinds import kind_of
from remat_gen.verification.compare import Comparison, Match, Noise, at_step
from remat_gen.verification.noise import compare_repeats, larger
from remat_gen.verification.outcome import Outcome

STEPS = 2  # the second one accumulates into `.grad`


@dataclass(frozen=True, slots=True)
class Repeats:
    """The steps of the last run, how far each thing moves, and what moves too far, if anything."""

    steps: list[Outcome]
    noise: list[Noise]
    unlike: Comparison | None

    @property
    def moving(self) -> int:
        """How many results are not the same to the bit in every run."""
        return len({key for step in self.noise for key, off in step.items() if off})

    def moves(self, comparison: Comparison) -> bool:
        """Whether what was compared is not the same to the bit in every run, after some step."""
        moving = {key for step in self.noise for key, off in step.items() if off}
        told = {(kind, at_step(name, n + 1)) for kind, name in moving for n in range(STEPS)}
        return (comparison.kind, comparison.name) in told

    @property
    def may_be_order(self) -> bool:
        """Whether sums in any order explain it: those of several threads on the CPU."""
        return self.unlike is not None and self.unlike.match is Match.TOLERANCE


def steps_of_runs(device: torch.device) -> tuple[int, ...]:
    """Return how many steps each run of the original has."""
    more = (STEPS, STEPS) if kind_of(device).adds_in_any_order else ()
    return (1, STEPS, STEPS, *more)


def repeats_of(runs: Iterator[list[Outcome]], device: torch.device) -> Repeats:
    """Compare each run with the next; two are held at a time."""
    none: Noise = {}
    steps, noise, unlike = next(runs), [none], list[Comparison]()
    for again in runs:
        moved, compared = compare_repeats(steps, again, device)
        noise = [larger(*pair) for pair in zip_longest(noise, moved, fillvalue=none)]
        unlike += compared
        steps = again
    wrong = [c for c in unlike if c.match is Match.DIFFERENT]
    if not kind_of(device).adds_in_any_order:
        wrong += [c for c in unlike if c.match is Match.TOLERANCE]
    return Repeats(steps, noise, wrong[0] if wrong else None)


def told(unlike: Comparison, device: torch.device) -> str:
    """Say what does not repeat itself, and what to do."""
    off = unlike.detail or f"off by {unlike.difference:.3g}"
    order = "; or call torch.use_deterministic_algorithms(True)" * kind_of(device).adds_in_any_order
    return (
        f"{unlike.kind}: {unlike.name}: {off} between two runs from the same state; keep what "
        f"a step changes in buffers, draw with torch, and plan again{order}"
    )
