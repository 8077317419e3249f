"""A planned forward as its template takes it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import nn


@dataclass(frozen=True, slots=True)
class ProgramLines:
    """What one program of the planned forward runs and returns; `name` is that of its function.

    `condition` says in Python which steps it is for, "" all. `stored` are lines that put on the
    model what forward keeps there, `containers` those that make the dicts and lists for it.
    """

    table: tuple[str, ...]
    calls: tuple[str, ...]
    watched: str
    stored: tuple[str, ...]
    result: str
    imports: dict[str, set[str]]
    name: str = ""
    condition: str = ""
    containers: tuple[str, ...] = ()


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
    stored: tuple[str, ...]  # lines that put on the model what forward keeps there
    result: str
    autocast: str
    imports: dict[str, set[str]]
    rungs: tuple[ProgramLines, ...] = ()
    fixed: str = ""  # a dict of the inputs whose numbers are compared
    apart: str = ""  # the call that refuses inputs that are one
    recorded: str = ""  # what a rung is begun with: the model and inputs that forward writes
    flagged: tuple[str, ...] = ()  # lines by which buffers are as an evaluation finds them
    settles: bool = False  # where forward makes buffers in its first step
    containers: tuple[str, ...] = ()  # lines that make dicts and lists for it
    method: str = "forward"
    base: str = ""  # the call that refuses another forward of the class that this one derives from

    @property
    def helped(self) -> tuple[str, ...]:
        """Return what calls helpers beside the blocks."""
        return self.expected, self.apart, self.base, *self.stored


def derived_from(forward: ForwardText, base: str, kind: type[nn.Module]) -> ForwardText:
    """Let a forward compare that of the class `base`, which was planned as `kind`."""
    return replace(forward, base=f'refuse_patched({base}, "{kind.forward.__qualname__}")')
