"""Time operations as a step comes to them: the newest input in the caches, the rest in memory.

A call that is repeated on the same tensors finds all of them, and the place of its result, in the
caches; a GPT's element-wise operations then take a half to four fifths of what they take in its
step, its products nine tenths (docs/findings/costs.md). So copies are used in turn, together more
than caches hold. A result lives until its copy's turn comes again: the next one is written to
memory that was not touched since, and that the process has already. Before each call the tensor
that the step made last is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch.utils import _pytree as pytree

from remat_gen.capture.device.kind import Time
from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.profile.timing import Effort, median_time
from remat_gen.ir.graph import Graph, Operation, Phase, refs_in

_MOST_COPIES = Effort().most


@dataclass(frozen=True, slots=True)
class Place:
    """A call on tensors of its own; `newest` is the one that the step made last, if one is."""

    call: Callable[[], object]
    newest: torch.Tensor | None = None
    restore: Callable[[], object] = lambda: None  # what the call wrote over


def newest_inputs(graph: Graph) -> dict[str, str]:
    """Return for each operation the input that was made last, by names of both.

    What the other phase made is old: an operation of backward that reads only what forward kept has
    no newest input, as one that reads only parameters.
    """
    ages, newest = _Ages(graph), {}
    for operation in graph.operations:
        read = refs_in((operation.args, operation.kwargs))
        found = ages.newest(read, operation.phase)
        if found is not None:
            newest[operation.name] = found
        ages.see(operation)
    return newest


def newest_of(graph: Graph, names: Iterable[str], last: str) -> str | None:
    """Return which tensor a run of operations finds newest, of those that it reads, by name.

    `last` is its last operation, by name.
    """
    ages = _Ages(graph)
    for operation in graph.operations:
        if operation.name == last:
            return ages.newest(names, operation.phase)
        ages.see(operation)
    raise KeyError(last)


@dataclass(slots=True)
class _Ages:
    """When each storage was last written in each phase."""

    graph: Graph
    written: dict[tuple[str, Phase], int] = field(default_factory=dict)
    now: int = 0

    def see(self, operation: Operation) -> None:
        """Go past an operation."""
        self.now += 1
        for storage in self.graph.writes(operation):
            self.written[storage, operation.phase] = self.now

    def newest(self, names: Iterable[str], phase: Phase) -> str | None:
        """Return the tensor whose storage a phase wrote last, if it wrote one of them."""
        keys = {name: (self.graph.tensors[name].storage, phase) for name in names}
        known = {name: self.written[key] for name, key in keys.items() if key in self.written}
        return max(known, key=lambda name: known[name], default=None)


def copies_needed(graph: Graph, operation: Operation, device: torch.device) -> int:
    """Return how many copies of what an operation reads and makes are more than caches hold."""
    storages = {*graph.reads(operation), *graph.writes(operation)}
    nbytes = sum(graph.storages[name].nbytes for name in storages)
    return copies_of(nbytes, device)


def copies_of(nbytes: int, device: torch.device) -> int:
    """Return how many copies of so many bytes are more than caches hold, within reason."""
    return min(-(-kind_of(device).beyond_caches_bytes(device) // max(nbytes, 1)), _MOST_COPIES)


@dataclass(slots=True)
class Turns:
    """Calls one place after another, and keeps what each returned until its turn comes again."""

    places: Sequence[Place]
    device: torch.device
    results: dict[int, object] = field(default_factory=dict)
    at: int = -1

    def prepare(self) -> None:
        """Restore this place and go on: let the next one's result go, touch its newest tensor."""
        if self.at >= 0:
            self.places[self.at].restore()
        self.at = (self.at + 1) % len(self.places)
        self.results.pop(self.at, None)
        touch(self.places[self.at].newest)

    def warm_up(self) -> float:
        """Make the first place's call, which loads kernels; return what it took."""
        warmed_us = self.clock_us()
        self.fill()
        return warmed_us

    def fill(self) -> None:
        """Fetch memory for the results of all places, as much as the first one's take."""
        for at in range(1, len(self.places)):
            self.results[at] = pytree.tree_map_only(torch.Tensor, torch.clone, self.results[0])

    def __call__(self) -> None:
        """Make the call of the place."""
        self.results[self.at] = self.places[self.at].call()

    def clock_us(self) -> float:
        """Return what the next place's call takes."""
        return kind_of(self.device).clock_us(self, self.device, self.prepare)

    def median_time(self, about_us: float, effort: Effort) -> Time:
        """Return the median times of calls that take `about_us`."""
        return median_time(self, self.device, effort, self.prepare, about_us)


def touch(tensor: torch.Tensor | None) -> None:
    """Read and write the bytes of a tensor's storage, which stay what they are."""
    if tensor is not None:
        flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
        flat.set_(tensor.untyped_storage())
        flat.bitwise_or_(0)


def time_warm(turns: Turns, warmed_us: float, effort: Effort | None = None) -> Time:
    """Return the median times of calls; the warm-up, which took `warmed_us`, may be all.

    It is of a long call: what a first one does besides is a small part of it. Of others it tells
    how many there are to be, unless they are so short that loading a kernel may be most of it.
    """
    effort = effort or Effort()
    if warmed_us >= effort.long_us:
        return Time(warmed_us, warmed_us)
    guessed = warmed_us >= effort.enough_us / effort.most
    return turns.median_time(warmed_us if guessed else turns.clock_us(), effort)


def time_again(turns: Turns, first: Time, effort: Effort | None = None) -> Time:
    """Return the median times of calls whose kernels are loaded, and which took `first`."""
    effort, about_us = effort or Effort(), max(first.device_us, first.host_us)
    if about_us < effort.long_us:
        turns.warm_up()
    return turns.median_time(about_us, effort)
