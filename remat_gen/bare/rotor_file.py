"""Rotor's chain profiles as scheduling problems, in the three forms in which they are published.

{"fw": [times], "bw": [times], "cw": [bytes], "cbw": [bytes], "ftmp": [bytes], "btmp": [bytes]}
[(fw, bw, cw, cbw, ftmp, btmp), …, (None, bw, cw, cbw, None, btmp)]     its `Chain` as it is printed
a text of lines: the number of stages, then fw, bw, cw and cbw; # begins a comment

Stage i reads xᵢ, of cw[i] bytes, and makes xᵢ₊₁; what its backward reads, xᵢ₊₁ inside, has
cbw[i+1] bytes. Gradients are as large as what they are the gradients of. The entries behind the
stages' are the loss's. x₀ is there all the time, and counts.

Rotor's forward runs with a tape or without one. Here a stage has one forward, which makes both, and
a tape that is not wanted is freed behind it. So what fits here fits there; the reverse fails only
where a forward without its tape needs less than that stage's backward does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remat_gen.ir import coding
from remat_gen.ir.errors import GraphError
from remat_gen.solver.law.problem import Held, Operation, Problem, Value

_KEYS = ("fw", "bw", "cw", "cbw", "ftmp", "btmp")
_ATTRIBUTES = ("fweigth", "bweigth", "cweigth", "cbweigth", "fwd_tmp", "bwd_tmp")
_AS_LONG = ("fw", "ftmp")  # as there are stages; the others have an entry more


@dataclass(frozen=True, slots=True)
class ChainProfile:
    """Lists as rotor's `Chain` has them: `fw` and `ftmp` one per stage, the others one more."""

    fw: tuple[float, ...]
    bw: tuple[float, ...]
    cw: tuple[int, ...]
    cbw: tuple[int, ...]
    ftmp: tuple[int, ...]
    btmp: tuple[int, ...]


def is_rotors(text: str) -> bool:
    """Tell a chain profile from graphs, which are objects with other keys."""
    stripped = _stripped(text)
    if not stripped.startswith("{"):
        return re.match(r"\[\s*[\[(]\s*[^\[(\s]|\d+\s*\n", stripped) is not None
    return not {"fw", "fweigth"}.isdisjoint(coding.parse(text))


def parse_chain(text: str) -> ChainProfile:
    """Read a chain profile.

    Raises:
        GraphError: it is none; the message names the key and the stage.
    """
    first = _stripped(text)[:1]
    if first == "{":
        plain = _object(coding.parse(text))
    else:
        plain = _rows(text) if first == "[" else _lines(text)
    stages = len(plain["fw"]) if isinstance(plain.get("fw"), list) else 0
    for key in ("bw", "btmp"):  # the loss may be left out
        if isinstance(plain.get(key), list) and len(plain[key]) == stages:
            plain[key] = [*plain[key], 0]
    profile: ChainProfile = coding.read(ChainProfile, plain, "")
    _check(profile)
    return profile


def _stripped(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("#")).strip()


def _object(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the lists by our keys, which are the names of `Chain`'s arguments."""
    keys = dict(zip(_ATTRIBUTES, _KEYS, strict=True)) if "fweigth" in plain else {}
    found = {keys.get(key, key): value for key, value in plain.items()}
    if keys and found.pop("length", len(plain["fweigth"])) != len(plain["fweigth"]):
        raise GraphError("length: is not the number of entries of fweigth")
    return found


def _rows(text: str) -> dict[str, Any]:
    try:
        rows = ast.literal_eval(_stripped(text).replace("null", "None"))
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise GraphError(f"is no chain profile: {error}") from error
    for i, row in enumerate(rows):
        if not isinstance(row, list | tuple) or len(row) != len(_KEYS):
            raise GraphError(f"row {i}: expected ({', '.join(_KEYS)}), found {str(row)[:60]!r}")
    found = {key: [row[k] for row in rows] for k, key in enumerate(_KEYS)}
    for key in _AS_LONG:
        if found[key] and found[key][-1] is None:
            found[key].pop()
    return found


def _lines(text: str) -> dict[str, Any]:
    lines = [line.split() for line in _stripped(text).splitlines()]
    lines = [line for line in lines if line and not line[0].startswith("#")]
    if len(lines) != 5 or len(lines[0]) != 1:
        raise GraphError("is no chain profile: expected five lines: stages, fw, bw, cw, cbw")
    read = [coding.parse(f"[{', '.join(line)}]") for line in lines]
    found = dict(zip(_KEYS, read[1:], strict=False))
    stages = len(found["fw"])
    if read[0] != [stages]:
        raise GraphError(f"fw: has {stages} entries for {lines[0][0]} stages")
    return {**found, "ftmp": [0] * stages, "btmp": [0] * (stages + 1)}


def _check(profile: ChainProfile) -> None:
    stages = len(profile.fw)
    if not stages:
        raise GraphError("fw: holds no stage")
    for key in _KEYS:
        entries, most = getattr(profile, key), stages + (key not in _AS_LONG)
        if len(entries) != most:
            raise GraphError(f"{key}: has {len(entries)} entries, not {most} for {stages} stages")
        for i, entry in enumerate(entries):
            if entry < 0:
                raise GraphError(f"{key}[{i}]: must be at least 0, is {entry}")
    for i in range(1, stages + 1):
        if profile.cbw[i] < profile.cw[i]:
            raise GraphError(f"cbw[{i}]: holds what a stage makes, cw[{i}], and has less bytes")


def problem_of(profile: ChainProfile) -> Problem:
    """Return the problem: values x₀ … xₙ, then tapes 1 … n, then gradients 0 … n."""
    stages = len(profile.fw)
    x, tape, gradient = 0, stages, 2 * stages + 1  # where value i of a kind stands
    values = [Value(f"x{i}", n, Held.FREE if i else Held.STEP) for i, n in enumerate(profile.cw)]
    whole = zip(profile.cbw, profile.cw, strict=True)
    values += [Value(f"tape {i}", n - m) for i, (n, m) in enumerate(whole) if i]
    values += [Value(f"gradient {i}", n) for i, n in enumerate(profile.cw)]
    operations = [Operation("input", 0.0, 0, (), (x,), backward=False, rerunnable=False)]
    for i in range(stages):
        made = (x + i + 1, tape + i + 1)
        cost = profile.fw[i], profile.ftmp[i]
        operations.append(Operation(f"forward {i}", *cost, (x + i,), made, backward=False))
    read: Sequence[int] = (x + stages,)
    for i in reversed(range(stages + 1)):
        name = f"backward {i}" if i < stages else "loss"
        cost = profile.bw[i], profile.btmp[i]
        operations.append(
            Operation(name, *cost, tuple(read), (gradient + i,), backward=True, rerunnable=False)
        )
        read = (gradient + i, x + i, tape + i, x + i - 1)
    return Problem(tuple(operations), tuple(values))
