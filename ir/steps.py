"""The steps of a plan's schedule as lines of text: `run OPERATION`, `free VALUE VALUE …`.

Values go to the host and come back by `send VALUE …` and `fetch VALUE …`.

Names hold no spaces. Whether there is such an operation or value is for the reader of a graph to
say: plans are read, too, for what became of their model.
"""

from __future__ import annotations

from collections.abc import Iterable

RUN, FREE, SEND, FETCH = "run", "free", "send", "fetch"


def step_line(verb: str, names: Iterable[str]) -> str:
    """Write a step: `RUN` and one operation, or another verb and values."""
    return " ".join((verb, *names))


def read_step(line: str) -> tuple[str, tuple[str, ...]]:
    """Return the verb of a step and what it names."""
    verb, *names = line.split(" ")
    return verb, tuple(names)


def runs_in(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the operations that steps run, in order; those that run again stand there again."""
    steps = map(read_step, lines)
    return tuple(name for verb, names in steps if verb == RUN for name in names)
