"""Measure what each operation of a graph costs on the training device.

One operation at a time, on synthetic inputs, never the whole step: what does not fit as a whole
can still be measured. Operations with equal signatures are measured once, as a step would come to
them (`in_step`). Times are those of the example's lengths, workspace is measured at smaller ones
too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import torch

from remat_gen.capture.device.kind import Time
from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.process.generators import kept_generators
from remat_gen.capture.profile.at_lengths import AtLengths, at_all_lengths, more_room
from remat_gen.capture.profile.calls import bind, resolve
from remat_gen.capture.profile.in_step import (
    Place,
    Turns,
    copies_needed,
    newest_inputs,
    time_again,
    time_warm,
)
from remat_gen.capture.profile.roofline import measured_rates, product_dtype, roofline_us
from remat_gen.capture.profile.synthesize import Fill, Synthesizer, fills_for
from remat_gen.capture.profile.timing import round_time_us
from remat_gen.capture.profile.workspace import Prepare, inside_bytes
from remat_gen.ir.costs import Cost, Costs, Smaller
from remat_gen.ir.errors import ProfileError, TraceError
from remat_gen.ir.graph import Graph, Operation

# Called with the operation's target, how many are done, and how many there are.
Progress: TypeAlias = Callable[[str, int, int], None]

# Backwards that read a workspace which only their forward can fill: other bytes in it crash them.
_OPAQUE = frozenset(
    """aten.mkldnn_rnn_layer_backward.default aten._cudnn_rnn_backward.default
    aten.miopen_rnn_backward.default""".split()
)

# What torch raises where an operation does not fit, or refuses the synthetic values.
_REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, MemoryError)


@dataclass(frozen=True, slots=True)
class _Runnable:
    """An operation that ran on inputs of `fill`."""

    operation: Operation
    fill: Fill
    time: Time


def profile(
    graph: Graph,
    device: torch.device,
    examples: Mapping[str, torch.Tensor],
    progress: Progress | None = None,
) -> Costs:
    """Return the time and workspace of every operation.

    `examples` has the user's tensors for the step's inputs, by tensor name; they are read, never
    written. The global random streams are left as they were. An operation that cannot be run
    alone (no memory, or it refuses synthetic inputs) gets a roofline estimate, marked `modelled`.

    Raises:
        ProfileError: an operation made a GPU fail.
        TraceError: a kernel lays its result out otherwise than the trace says.
        UsageError: a GPU's memory cannot be measured.
    """
    kind = kind_of(device)
    kind.refuse_uncounted()
    example, smaller = at_all_lengths(graph, examples)
    alike: dict[str, list[Operation]] = {}
    for name, text in example.signatures.items():
        alike.setdefault(text, []).append(example.operations[name])
    distinct = {text: first for text, (first, *_) in alike.items()}
    with torch.no_grad(), kept_generators():
        timer = _Timer(example.synthesizer, newest_inputs(graph), device)
        runnables = timer.time_all(alike, progress or (lambda *_: None))
        inside = inside_bytes(_runs((example, *smaller), runnables), device, _REFUSALS)
    measured = _costs(example, distinct, runnables, inside, device)
    return Costs(
        device=kind.name(device),
        operations={
            name: _with_smaller(measured[text], more_room(name, example, smaller, inside))
            for name, text in example.signatures.items()
        },
        alignment_bytes=kind.alignment_bytes,
    )


def _runs(places: Iterable[AtLengths], runnables: Mapping[str, _Runnable]) -> dict[str, Prepare]:
    """Return how each operation that runs at the example's lengths is run at each of them, once."""
    example, *smaller = places
    runs: dict[str, Prepare] = {}
    for place in (example, *smaller):
        for name, text in example.signatures.items():
            if text in runnables and place.signatures[name] not in runs:
                fill = runnables[text].fill
                run = _prepare(place.synthesizer, place.operations[name], fill)
                runs[place.signatures[name]] = run
    return runs


def _costs(
    example: AtLengths,
    distinct: Mapping[str, Operation],
    runnables: Mapping[str, _Runnable],
    inside: Mapping[str, int],
    device: torch.device,
) -> dict[str, Cost]:
    return {
        text: Cost(
            time_us=round_time_us(runnables[text].time.device_us),
            workspace_bytes=example.workspace_bytes(operation.name, inside),
            host_us=round_time_us(runnables[text].time.host_us),
        )
        if text in runnables and text in inside
        else _modelled(example.synthesizer.graph, operation, device)
        for text, operation in distinct.items()
    }


def _with_smaller(cost: Cost, smaller: tuple[Smaller, ...]) -> Cost:
    return replace(cost, smaller=smaller) if smaller else cost


@dataclass(frozen=True, slots=True)
class _Timer:
    """Times operations; `newest` has the input of each that the step made last, where one is."""

    synthesizer: Synthesizer
    newest: Mapping[str, str]
    device: torch.device

    def time_all(
        self, alike: Mapping[str, Sequence[Operation]], progress: Progress
    ) -> dict[str, _Runnable]:
        """Time the first operation of each signature, at two moments, and keep the lower time.

        What else a machine does only adds time, and often for longer than all repeats of one take.
        """
        kind_of(self.device).wake(self.device)
        runnables: dict[str, _Runnable] = {}
        for done, (text, (first, *others)) in enumerate(alike.items()):
            progress(first.target, done, 2 * len(alike))
            timed = self._time(first, fills_for(self.device), partial(self._first, others=others))
            if timed:
                runnables[text] = timed
        for done, (text, known) in enumerate(list(runnables.items()), start=len(alike)):
            progress(known.operation.target, done, 2 * len(alike))
            again = self._time(known.operation, (known.fill,), _again_of(known.time))
            if again:
                runnables[text] = replace(known, time=_lower(known.time, again.time))
        return runnables

    def _time(
        self, operation: Operation, fills: Iterable[Fill], timed: Callable[[Operation, Turns], Time]
    ) -> _Runnable | None:
        """Time an operation; None where none of the kinds of synthetic input makes it run."""
        if operation.target in _OPAQUE:
            return None
        copies = copies_needed(self.synthesizer.graph, operation, self.device)
        for fill in fills:
            try:
                turns = Turns([self._place(operation, fill) for _ in range(copies)], self.device)
                return _Runnable(operation, fill, timed(operation, turns))
            except _REFUSALS as error:
                refuse_dead(self.device, operation.target, error)
                kind_of(self.device).free_unused()  # a failed attempt's would fail the next
        return None

    def _first(self, operation: Operation, turns: Turns, others: Iterable[Operation]) -> Time:
        """Time calls that were not made before, and see what the first one makes, as `others`."""
        warmed_us = turns.warm_up()
        self._see((operation, *others), turns.results[0])
        return time_warm(turns, warmed_us)

    def _see(self, alike: Sequence[Operation], results: object) -> None:
        """Keep what a kernel makes that others read; refuse another layout than the trace says.

        Only on the CPU: there the trace has the layouts of its kernels, and those survive numbers
        that they refuse.
        """
        if self.device.type != "cpu":
            return
        tensors = results if isinstance(results, list | tuple) else (results,)
        self.synthesizer.keep(alike, tensors)
        operation = alike[0]
        for name, found in zip(operation.outputs, tensors, strict=False):
            if name and isinstance(found, torch.Tensor) and found.numel():
                traced = self.synthesizer.graph.tensors[name]
                strides = zip(found.shape, found.stride(), traced.stride, strict=True)
                if any(real != said for size, real, said in strides if size > 1):
                    raise _lies_otherwise(operation, found.stride(), traced.stride)

    def _place(self, operation: Operation, fill: Fill) -> Place:
        inputs = self.synthesizer.inputs(operation, fill)
        newest = self.newest.get(operation.name)
        return Place(_call(operation, inputs), inputs[newest] if newest else None)


def _lies_otherwise(
    operation: Operation, real: tuple[int, ...], traced: tuple[int, ...]
) -> TraceError:
    file, line = operation.source.file, operation.source.line
    of_torch = operation.target.startswith("aten.")
    mend = "make what it reads contiguous()" if of_torch else "let its fake kernel say so"
    return TraceError(
        f"{f'{file}:{line}: ' if file else ''}{operation.target} lays its result out with strides "
        f"{real}, where the trace has {traced}: {mend}"
    )


def _again_of(first: Time) -> Callable[[Operation, Turns], Time]:
    return lambda _, turns: time_again(turns, first)


def _lower(one: Time, other: Time) -> Time:
    return Time(min(one.device_us, other.device_us), min(one.host_us, other.host_us))


def _prepare(synthesizer: Synthesizer, operation: Operation, fill: Fill) -> Prepare:
    return lambda: _call(operation, synthesizer.inputs(operation, fill))


def _call(operation: Operation, inputs: Mapping[str, torch.Tensor]) -> Callable[[], object]:
    function = resolve(operation.target)
    args, kwargs = bind(operation, inputs)
    return lambda: function(*args, **kwargs)


def _modelled(graph: Graph, operation: Operation, device: torch.device) -> Cost:
    rates = measured_rates(device, product_dtype(graph, operation))
    time_us = roofline_us(graph, operation, rates)
    return Cost(round_time_us(time_us), workspace_bytes=0, modelled=True)


def refuse_dead(device: torch.device, target: str, error: Exception) -> None:
    """Refuse to go on where a GPU answers nothing any more, as after a failed assertion."""
    try:
        kind_of(device).synchronise(device)
    except RuntimeError:
        raise ProfileError(
            f"{target} failed on the GPU while it was measured, and CUDA answers nothing after "
            f"that: {str(error).partition(chr(10))[0]}"
        ) from error
