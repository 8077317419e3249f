"""Prove that a forward of all layers is that of a few, with one layer between again and again.

Both are run on fake tensors and noted. A list's layers begin where their tensors are first read:
what lies between the beginning of the second cycle and that of what comes behind it is repeated,
each time with the tensors of the next, and then has to be what the forward of all does, operation
by operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import nn

from remat_gen.capture.load.arguments import Call
from remat_gen.capture.observe.outputs import run_on_fakes
from remat_gen.capture.observe.repeats import Reads
from remat_gen.capture.process.caches import Caches
from remat_gen.capture.process.quiet import quiet
from remat_gen.capture.repeated.noted_operations import Held, Made, Noted, Notes, Origin
from remat_gen.capture.repeated.repeated_layers import (
    Repeated,
    UnlikeError,
    left_out,
    repeated_layers,
)
from remat_gen.capture.values.side_effects import refused_side_effects


def lists_used_alike(model: nn.Module, call: Call, reads: Reads) -> tuple[Repeated, ...]:
    """Return the lists of layers of which a few tell all that forward does; () if it does more.

    With one layer at each end, or two where the cycles share what a gradient is summed up for: the
    last one begins the sum, the next one adds to no sum yet.
    """
    for ends in (1, 2):
        lists = repeated_layers(model, reads, ends)
        if not lists:
            return ()
        try:
            with left_out(model, lists):
                few = _notes(model, call, reads.caches)
            if ends == 2 or not any(_is_summed(few, repeated) for repeated in lists):
                whole = _notes(model, call, reads.caches)
                return lists if _repeated(few, lists) == whole else ()
        except UnlikeError:
            return ()
    return ()


def refuse_unlike(model: nn.Module, call: Call, lists: Sequence[Repeated], caches: Caches) -> None:
    """Refuse to let a few layers of lists stand for all where another call tells them apart."""
    with left_out(model, lists):
        few = _notes(model, call, caches)
    if _repeated(few, lists) != _notes(model, call, caches):
        raise UnlikeError


def _repeated(notes: list[Noted], lists: Sequence[Repeated]) -> list[Noted]:
    """Return the notes of all layers of all lists.

    Raises:
        UnlikeError: they cannot be told from those of a few.
    """
    for repeated in lists:
        notes = _with_all(notes, repeated)
    return notes


def _notes(model: nn.Module, call: Call, caches: Caches) -> list[Noted]:
    """Return what forward does.

    Raises:
        UnlikeError: it raises; the user's code may have use for layers that are left out.
    """
    notes = Notes(model)
    try:
        with quiet(), refused_side_effects(model), caches.emptied():
            notes.note_returned(run_on_fakes(model, call.args, call.kwargs, watch=notes).value)
    except Exception as error:
        raise UnlikeError from error
    return notes.found


def _is_summed(notes: list[Noted], repeated: Repeated) -> bool:
    """Tell whether the second cycle reads of neither cycle what requires grad."""
    one, two, last = _starts(notes, repeated)
    return any(
        requires_grad and not _is_of_cycles(origin, repeated, one)
        for note in notes[two:last]
        for origin, requires_grad in zip(note.origins, note.require_grad, strict=True)
    )


def _is_of_cycles(origin: Origin, repeated: Repeated, one: int) -> bool:
    if isinstance(origin, Made):
        return origin.operation >= one
    return isinstance(origin, Held) and repeated.of(origin.name) is not None


def _with_all(notes: list[Noted], repeated: Repeated) -> list[Noted]:
    """Return the notes of all layers of one list.

    Raises:
        UnlikeError: what comes behind them reads of the first cycle, or which one is not clear.
    """
    one, two, last = _starts(notes, repeated)
    period, rest = last - two, notes[last:]
    if not one < two < last or any(one <= made < two for note in rest for made in _reads(note)):
        raise UnlikeError
    again = [
        _later(note, repeated, times, times * period, since=one)
        for times in range(1, repeated.left_out + 1)
        for note in notes[two:last]
    ]
    left_out = repeated.left_out
    return [
        *notes[:last],
        *again,
        *(_later(note, repeated, left_out, left_out * period, since=two) for note in rest),
    ]


def _starts(notes: Sequence[Noted], repeated: Repeated) -> tuple[int, int, int]:
    """Return where both cycles begin, and what comes behind them.

    Raises:
        UnlikeError: one of them has no tensors.
    """
    layers = repeated.one.start, repeated.two.start, repeated.two.stop
    one, two, last = (_first_use(notes, repeated, layer) for layer in layers)
    return one, two, last


def _first_use(notes: Sequence[Noted], repeated: Repeated, layer: int) -> int:
    """Return the position of the first operation that reads a tensor of a layer."""
    for position, note in enumerate(notes):
        held = (origin.name for origin in note.origins if isinstance(origin, Held))
        if any(layer in repeated.layers_in(name) for name in held):
            return position
    raise UnlikeError


def _reads(note: Noted) -> list[int]:
    return [origin.operation for origin in note.origins if isinstance(origin, Made)]


def _later(note: Noted, repeated: Repeated, cycles: int, by: int, since: int) -> Noted:
    """Return an operation some cycles later: what is made from `since` on is as near as here."""

    def moved(origin: Origin) -> Origin:
        if isinstance(origin, Made) and origin.operation >= since:
            return replace(origin, operation=origin.operation + by)
        if isinstance(origin, Held):
            return Held(repeated.later(origin.name, cycles))
        return origin

    return replace(note, origins=tuple(map(moved, note.origins)))
