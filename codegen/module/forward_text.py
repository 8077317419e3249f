"""A planned forward as its template takes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProgramLines:
    """What one program of the planned forward runs and returns; `name` is that of its function.

    `condition` says in Python which steps it is for, "" all.
    """

    table: tuple[str, ...]
    calls: tuple[str, ...]
    watched: str
    result: str
    imports: dict[str, set[str]]
    name: str = ""
    condition: str = ""


@dataclass(frozen=True, slots=True)
class ForwardText:
    """The planned forward for the template; `rungs` are all its programs where it has several."""

    parameters: str
    returns: str
    passed: str
    known: str
    expected: str
    read_lengths: str
    lengths: tuple[str, ...]
    ones: tuple[str, ...]
    kept: str
    table: tuple[str, ...]
    step: str
    calls: tuple[str, ...]
    watched: str
    result: str
    autocast: str
    imports: dict[str, set[str]]
    rungs: tuple[ProgramLines, ...] = ()
    fixed: str = ""  # a dict of the inputs whose numbers are compared
    apart: str = ""  # the call that refuses inputs that are one
    recorded: str = ""  # what a rung is begun with: the model and inputs that forward writes
    settles: bool = False  # where forward makes buffers in its first step
