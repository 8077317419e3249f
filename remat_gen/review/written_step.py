"""A step of the module that is about to be written, beside one of its original's.

What a trace takes otherwise than Python does (a comparison of lengths that `is True`) is an error
nowhere, and a wrong number in every step. It shows here: on the CPU, where there is memory for it,
both run a step on the model itself, with the example's inputs, with about half of their lengths and
with the least: there kernels may sum in another order, of which nothing is said.
"""

from __future__ import annotations

import contextlib
import dataclasses
import linecache
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from remat_gen.ask.request import Request, default_output
from remat_gen.capture.load.load import Loaded, import_file
from remat_gen.capture.load.records import in_classes_of
from remat_gen.capture.trace.trace import Traced
from remat_gen.capture.values.held import kept_as_it_is
from remat_gen.ir.errors import UnlikeStepError, said
from remat_gen.plan.original_step import filled_in, is_there, kept_original, need_to_run
from remat_gen.verification.compare import Comparison, Match, compare_steps
from remat_gen.verification.outcome import Outcome, State, run_steps
from remat_gen.verification.smaller_batch import SmallerStep, smaller_step
from remat_gen.verification.step import told_free

_NO_MEMORY = "can't allocate memory"  # torch's words, in a RuntimeError
_FAR = 1000  # times the tolerance: no sum in another order is off by that


@dataclass(frozen=True, slots=True)
class _Subject:
    """The model that both run on, and the module whose classes it becomes."""

    model: nn.Module
    name: str
    module: ModuleType
    state: State
    of_units: bool

    def compared(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Comparison]:
        """Return what a step of each leaves behind, compared; nothing where eager's own fails."""
        try:
            wanted = self._step(args, kwargs)
        except Exception:  # of the user's own, with fewer rows
            return []
        with kept_as_it_is(self.model), self._as_planned():
            file = {} if self.of_units else vars(self.module)
            found = self._step(*in_classes_of(file, (args, kwargs)))
        return [*compare_steps(wanted, found, [{}])]

    def _step(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Outcome]:
        with kept_as_it_is(self.model):
            return run_steps(self.model, self.state, args, kwargs, steps=1)

    @contextlib.contextmanager
    def _as_planned(self) -> Iterator[None]:
        classes = [(part, type(part)) for part in self.model.modules()]
        original = type(self.model)
        for name, value in vars(sys.modules.get(original.__module__, self.module)).items():
            if _is_of_fields(value) and hasattr(self.module, name):
                setattr(self.module, name, value)  # what is returned is of one class
        if self.of_units:
            self.module.plan_units(self.model)
        else:
            self.model.__class__ = getattr(self.module, self.name)
        try:
            with told_free(self.model, 0):
                yield
        finally:
            for part, kind in classes:
                part.__class__ = kind


def compare_written(request: Request, loaded: Loaded, traced: Traced, text: str, peak: int) -> str:
    """Compare a step of the module's `text` with the original's; say what there is to say, "" all.

    Raises:
        UnlikeStepError: it fails, or is off by more than sums in another order explain.
    """
    need = need_to_run(loaded, peak)
    if need is None or not is_there(need):
        return ""
    output = request.output or default_output(request.model_file)
    with kept_original(loaded, filled_in(traced)) as state, _imported(output, text) as module:
        of_units = bool(request.units)
        subject = _Subject(loaded.model, loaded.model_name, module, state, of_units)
        usual, least = _steps(loaded, traced)
        told = [_told(one, step.name) for step in usual for one in _unlike(subject, step)]
        for step in least:
            _unlike(subject, step)
    return f"is off in the last bits: {told[0]}" if told else ""


def _steps(loaded: Loaded, traced: Traced) -> tuple[list[SmallerStep], list[SmallerStep]]:
    """Return the example's step and one of about half of its lengths, and one of the least."""
    usual, least = [SmallerStep("", loaded.args, loaded.kwargs)], []
    if lengths := traced.graph.lengths:
        planned = [range(length.minimum, length.maximum + 1) for length in lengths]
        given = loaded.model, loaded.args, loaded.kwargs, traced.dynamic, planned
        usual.append(smaller_step(*given))
        least.append(smaller_step(*given, least=True))
    return usual, least


def _unlike(subject: _Subject, step: SmallerStep) -> list[Comparison]:
    """Return what is off in the last bits.

    Raises:
        UnlikeStepError: the planned step fails, or something is off by more.
    """
    try:
        found = subject.compared(step.args, step.kwargs)
    except Exception as error:
        words, at = f"{type(error).__name__}: {said(error)}", f" ({step.name})" if step.name else ""
        if isinstance(error, MemoryError) or _NO_MEMORY in words:  # eager's own step had enough
            return []
        first = words.splitlines()[0].partition(". To plan for this")[0]  # it is being planned
        raise UnlikeStepError(f"it fails{at}: {first}") from error
    unlike = [c for c in found if c.match is not Match.BITWISE and c.difference != 0]
    for one in unlike:
        if one.detail or (one.difference or 0) > _FAR * (one.tolerance or 0):
            raise UnlikeStepError(_told(one, step.name))
    return unlike


def _is_of_fields(value: object) -> bool:
    plain = isinstance(value, type) and not issubclass(value, nn.Module)
    return plain and (dataclasses.is_dataclass(value) or hasattr(value, "_fields"))


@contextlib.contextmanager
def _imported(output: Path, text: str) -> Iterator[ModuleType]:
    """Run a text as the file that it will be; TorchScript looks for its lines."""
    place = str(output.resolve())
    linecache.cache[place] = len(text), None, text.splitlines(keepends=True), place
    try:
        yield import_file(output, text)
    finally:
        linecache.cache.pop(place, None)


def _told(one: Comparison, at: str) -> str:
    off = f": {one.detail}" if one.detail else f" is off by {one.difference:.3g}"
    return f"{one.kind}: {one.name.partition(', step')[0]}{off}{f' ({at})' if at else ''}"
