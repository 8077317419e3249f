"""Plain values that forward puts on modules, in steps of other lengths: `rows = 2 * batch`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from remat_gen.capture.fx.symbolic_sizes import Sizes
from remat_gen.capture.load.arguments import Call
from remat_gen.capture.load.shorter_call import at_lengths
from remat_gen.capture.observe.outputs import run_on_fakes
from remat_gen.capture.process.quiet import quiet
from remat_gen.capture.trace.lengths_as_numbers import lengths_as_numbers
from remat_gen.capture.trace.ranges import settled
from remat_gen.capture.trace.symbolic import fakes_in_place
from remat_gen.capture.values.held import GONE, kept_as_it_is
from remat_gen.capture.values.recorded import Looks
from remat_gen.capture.values.written import first_reads
from remat_gen.ir.size import Length, Shape, evaluate_all


@dataclass(frozen=True, slots=True)
class PlainValues:
    """What a step puts on modules that is no tensor, by path: `put` in the example's."""

    model: nn.Module
    call: Call
    put: Mapping[str, Any]
    looks: Looks | None

    def varying(self, lengths: tuple[Length, ...]) -> tuple[list[str], set[str]]:
        """Return where shorter steps put something else, and which paths they read.

        Reads before they put it there, that is: as the step before has left it. Where forward does
        not run, which the trace tells, it is taken to put nothing there.
        """
        with first_reads(self.model, self.put) as read:
            others = self._shorter(lengths)
        return [
            p for p in self.put if any(at.get(p, GONE) != self.put[p] for _, at in others)
        ], read

    def by_lengths(self, lengths: tuple[Length, ...]) -> tuple[dict[str, Any], list[str]]:
        """Return what steps put there, by the lengths of their inputs; the paths it cannot say."""
        if not (self.put and lengths):
            return dict(self.put), []
        written, others = self._written(lengths), self._shorter(lengths)
        said = {
            path: value
            for path, value in written.items()
            if all(evaluate_all(value, numbers) == at.get(path, GONE) for numbers, at in others)
        }
        return said, [path for path in self.put if path not in said]

    def _written(self, lengths: tuple[Length, ...]) -> dict[str, Any]:
        """Return what the example puts there, in terms of lengths where torch can say so."""
        try:
            with (
                quiet(),
                lengths_as_numbers(self.model),
                fakes_in_place(self.model, self.call, lengths) as fakes,
            ):
                args, kwargs = fakes.arguments
                put = self._run(replace(self.call, args=args, kwargs=kwargs))
            needed = settled(lengths, fakes.shapes, fakes.symbols, squeezes=False)
            sizes = Sizes(fakes.symbols, {length.name: length for length in lengths})
            said = {path: _sized(put[path], sizes) for path in self.put if path in put}
        except Exception:  # no expression, or Python made a number of it: the others tell
            return dict(self.put)
        decided = any(n.minimum > length.minimum for n, length in zip(needed, lengths, strict=True))
        return dict(self.put) if decided else said

    def _shorter(
        self, lengths: tuple[Length, ...]
    ) -> list[tuple[dict[str, int], Mapping[str, Any]]]:
        """Return what steps of other lengths put there, beside those: one less, and half."""
        less = {n: max(n.maximum - 1, 1) for n in lengths}
        half = {n: max(n.maximum // 2, n.minimum) for n in lengths}
        found = []
        for numbers in (less, half):
            try:
                with quiet():
                    put = self._run(at_lengths(self.call, numbers))
            except Exception:  # the user's own
                put = {}
            found.append(({length.name: n for length, n in numbers.items()}, put))
        return found

    def _run(self, call: Call) -> Mapping[str, Any]:
        with kept_as_it_is(self.model) as held:
            put = run_on_fakes(self.model, call.args, call.kwargs, self.looks).put
            return {**put, **held.literals()}


def _sized(value: Any, sizes: Sizes) -> Any:
    if type(value) in (tuple, torch.Size):
        kind = tuple if type(value) is tuple else Shape
        return kind(_sized(item, sizes) for item in value)
    return sizes.size(value) if isinstance(value, torch.SymInt | torch.SymFloat) else value
