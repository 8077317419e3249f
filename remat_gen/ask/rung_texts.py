"""Read the rungs that a user writes: `length<=384, batch<=4 and length<=768`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from remat_gen.ask.budget import parse_size
from remat_gen.ir.errors import UsageError
from remat_gen.ir.rung import Rung
from remat_gen.ir.size import Length

_LIMIT = re.compile(r"\s*([A-Za-z_]\w*)\s*<=\s*(\d+)\s*")
AUTO = "auto"  # they are chosen
_FREE = re.compile(r"\s*free\s*>=\s*(.*\S)\s*")
MOST = 4  # of them: each is a program of its own to read


def make_rungs(text: str | None) -> tuple[Rung, ...]:
    """Return the rungs in the order in which a step asks them; none where they are chosen.

    Raises:
        UsageError: one is not written as it should be, or no step would come to it.
    """
    if text is None or text.strip() == AUTO:
        return ()
    rungs = tuple(map(_rung, text.split(",")))
    if len(rungs) > MOST:
        raise UsageError(f"--rungs has {len(rungs)} conditions; at most {MOST} are planned for")
    for i, rung in enumerate(rungs):
        above = next((other for other in rungs[:i] if rung.within(other)), None)
        if above:
            raise UsageError(f"--rungs: no step comes to {rung}, since {above} is asked first")
    return rungs


def _rung(text: str) -> Rung:
    limits: dict[str, int] = {}
    free = 0
    for part in re.split(r"\band\b", text):
        if (amount := _FREE.fullmatch(part)) and not free:
            free = parse_size(amount[1], "--rungs free>=")
            continue
        found = _LIMIT.fullmatch(part)
        if not found or found[1] in limits:
            raise UsageError(
                f"--rungs {text.strip()!r}: write a length and its limit: 'length<=768'; several "
                "so: 'length<=384, length<=768'"
            )
        limits[found[1]] = int(found[2])
    return Rung(limits, free)


def refuse_unknown_lengths(rungs: Iterable[Rung], lengths: tuple[Length, ...], why: str) -> None:
    """Refuse rungs of lengths that do not vary, or that admit all or none of the steps.

    `why` says why nothing varies, where that is so.
    """
    known = {length.name: length for length in lengths}
    for rung in rungs:
        for name, limit in rung.limits.items():
            if name not in known:
                listed = ", ".join(map(str, lengths)) or f"nothing ({why})"
                raise UsageError(
                    f"--rungs {rung}: {name} does not vary, but {listed}; --dynamic x:1 lets "
                    "dimension 1 of x vary"
                )
            low, high = known[name].minimum, known[name].maximum
            if not low <= limit < high:
                raise UsageError(
                    f"--rungs {rung}: the plan is for {known[name]}; the limit of a rung is at "
                    f"least {low} and below {high}"
                )
