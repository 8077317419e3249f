"""Which local variables the result of a running call will be assigned to, by the bytecode."""

from __future__ import annotations

import dis
import functools
import itertools
from collections.abc import Iterable
from itertools import pairwise
from types import CodeType, FrameType

_RETURNED = ("return",)  # no variable is called so
_LONGEST = 32  # instructions that are looked at: a call, and what unpacks its result


def assigned(frames: Iterable[FrameType]) -> tuple[str, ...]:
    """Return what the innermost frame's call is assigned to, () where it is part of something else.

    Functions may return it from one to the next. Several variables: the result is unpacked.
    """
    for frame in frames:
        ends = _ends(frame.f_code).get(frame.f_lasti, ())
        if ends != _RETURNED:
            return ends
    return ()


@functools.lru_cache(maxsize=1000)
def _ends(code: CodeType) -> dict[int, tuple[str, ...]]:
    """Return where results go, by the place in the code: to local variables, or to the caller.

    A frame that waits for a Python function stands in the room that its call has for caches.
    """
    steps = list(dis.get_instructions(code))
    found: dict[int, tuple[str, ...]] = {}
    for i, (step, following) in enumerate(pairwise(steps)):
        end = _end(steps[i : i + _LONGEST])
        found.update(dict.fromkeys(range(step.offset, following.offset, 2), end))
    return found


def _end(steps: list[dis.Instruction]) -> tuple[str, ...]:
    """Return where the result of the first of some instructions goes."""
    unpacking = next((n for n in (0, 1) if steps[n].opname == "UNPACK_SEQUENCE"), None)
    if unpacking is None:
        returned = steps[1].opname == "RETURN_VALUE"
        return _RETURNED if returned else _stored(steps[1])[:1]
    count = steps[unpacking].arg or 1
    after = steps[unpacking + 1 : unpacking + 1 + count]
    return tuple(itertools.chain.from_iterable(map(_stored, after)))[:count]


def _stored(step: dis.Instruction) -> tuple[str, ...]:
    """Return the variables that an instruction writes; newer Pythons write two at once."""
    if not step.opname.startswith("STORE_FAST"):
        return ()
    names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
    return names if step.opname == "STORE_FAST_STORE_FAST" else names[:1]
