"""`--keep` and `--recompute`: patterns to values, by the names that stand in the generated file.

A value is called `h.0.attn.attn_drop.probs` in the plan and `probs` in the module. A pattern (as in
`fnmatch`, upper and lower case differ) is matched against the name alone, and behind any stretch of
the module path: `probs`, `h.*.probs`, `attn.probs`, `h.0.attn.*`. Where nothing is called so, the
user's own variables are tried: two values called `x` may be `x` and `x_drop` in the plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from remat_gen.ask.choice import near_names
from remat_gen.ir.errors import UsageError
from remat_gen.ir.graph import Graph, Kind
from remat_gen.solver.law.pins import pinned, recomputable
from remat_gen.solver.law.problem import Problem

_INDEX = re.compile(r"(?<=\w)\[(\d+)\]")
_NAMED = 8  # names that it lists where none is near


@dataclass(frozen=True, slots=True)
class Pins:
    """Patterns of values that stay for backward, and of values that backward makes again."""

    keep: tuple[str, ...] = ()
    recompute: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Tell whether anything is pinned."""
        return bool(self.keep or self.recompute)


@dataclass(frozen=True, slots=True)
class Pinned:
    """The values, by the pattern that names them; `problem` is the one that all schedules obey."""

    pins: Pins
    unpinned: Problem
    problem: Problem
    keep: dict[str, tuple[str, ...]]
    recompute: dict[str, tuple[str, ...]]

    def __str__(self) -> str:
        named = (("keep", self.keep), ("recompute", self.recompute))
        parts = [
            f"{verb} {pattern} ({len(values)} value{'s' * (len(values) != 1)})"
            for verb, found in named
            for pattern, values in found.items()
        ]
        return ", ".join(parts)


def make_pins(keep: Sequence[str] | None, recompute: Sequence[str] | None) -> Pins:
    """Return the patterns that were given, each once, sorted: their order means nothing."""
    return Pins(tuple(sorted(set(keep or ()))), tuple(sorted(set(recompute or ()))))


def pin(problem: Problem, graph: Graph, pins: Pins) -> Pinned:
    """Return the problem in which the values that patterns name are kept and recomputed.

    Raises:
        UsageError: a pattern names nothing, or only what cannot be recomputed; or a value is to be
            kept and recomputed.
    """
    index = {value.name: v for v, value in enumerate(problem.values)}
    possible = {problem.values[v].name for v in recomputable(problem)}
    keep = {pattern: _named("--keep", pattern, graph) for pattern in pins.keep}
    recompute = {}
    for pattern in pins.recompute:
        named = _named("--recompute", pattern, graph)
        recompute[pattern] = tuple(name for name in named if name in possible)
        if not recompute[pattern]:
            raise UsageError(_impossible(pattern, named[0], graph))
    _refuse_both(problem, keep, recompute)
    kept, gone = ({index[n] for names in d.values() for n in names} for d in (keep, recompute))
    return Pinned(pins, problem, pinned(problem, kept, gone), keep, recompute)


def matches(pattern: str, name: str) -> bool:
    """Tell whether a pattern names a value by its name, behind any stretch of its path.

    `self.probs` and `h[0].attn` as they stand in the generated file are `probs` and `h.0.attn`.
    """
    wanted = _INDEX.sub(r".\1", pattern).removeprefix("self.")
    return any(fnmatchcase(spelling, wanted) for spelling in _spellings(name))


def _spellings(name: str) -> Iterator[str]:
    *path, last = name.split(".")
    yield last
    for start in range(len(path)):
        for stop in range(start + 1, len(path) + 1):
            yield ".".join((*path[start:stop], last))


def _named(option: str, pattern: str, graph: Graph) -> tuple[str, ...]:
    """Return the storages of forward that a pattern names.

    Raises:
        UsageError: there is none; the message has near names.
    """
    made = [name for name, s in graph.storages.items() if s.kind is Kind.ACTIVATION]
    found = [name for name in made if matches(pattern, name)]
    found = found or [name for name in made if matches(pattern, _with_hint(graph, name))]
    if found:
        return tuple(found)
    others = [name for name, s in graph.storages.items() if s.kind is not Kind.ACTIVATION]
    if any(matches(pattern, name) for name in others):
        raise UsageError(f"{option} {pattern}: is no value of forward; only those can be pinned")
    hint = near_names(pattern, made) or f"it makes {_some(made)}"
    raise UsageError(f"{option} {pattern}: forward makes no value of this name; {hint}")


def _some(names: Iterable[str]) -> str:
    """Return the first of the values' own names."""
    first, *more = dict.fromkeys(name.rpartition(".")[2] for name in names)
    return ", ".join((first, *more[: _NAMED - 1])) + " …" * (len(more) >= _NAMED)


def _with_hint(graph: Graph, name: str) -> str:
    """Return a storage's name with the user's own word at its end."""
    path = name.rpartition(".")[0]
    hint = graph.tensors[name].hint if name in graph.tensors else ""
    return f"{path}.{hint}".strip(".")


def _impossible(pattern: str, name: str, graph: Graph) -> str:
    outputs = {graph.tensors[o.tensor].storage for o in graph.outputs if o.tensor}
    why = (
        "is an output of the step, which its caller holds"
        if name in outputs
        else "cannot be made again: a second run would give another value, or change a buffer"
    )
    return f"--recompute {pattern}: {name} {why}"


def _refuse_both(
    problem: Problem, keep: dict[str, tuple[str, ...]], recompute: dict[str, tuple[str, ...]]
) -> None:
    """Refuse a value, or two of one operation, that is to be both kept and recomputed."""
    maker = {problem.values[v].name: o.name for o in problem.operations for v in o.outputs}
    kept = {maker[name]: (pattern, name) for pattern, names in keep.items() for name in names}
    for pattern, names in recompute.items():
        for name in names:
            if maker[name] in kept:
                other, same = kept[maker[name]]
                what = name if same == name else f"{same} and {name}, which one operation makes,"
                raise UsageError(
                    f"{what} cannot be kept and recomputed: --keep {other} contradicts "
                    f"--recompute {pattern}"
                )
