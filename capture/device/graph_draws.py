"""Random numbers of a step that is captured into a CUDA graph: drawn again as in eager steps.

While a stream is captured, nobody may ask a generator for its position or set it. A planned step
does both: it records the position before an operation that it draws again, and goes back there. So
the last step before the capture notes at which offsets from its beginning it went back; each such
place gets a state of its own in the graph, and before each replay these are put where the
generator's stream will be by then. The stream itself moves on as in an eager step.
"""

from __future__ import annotations

import contextlib
import ctypes
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass(slots=True)
class Draws:
    """A GPU's global generator, as `torch.cuda` finds it: notes, or goes by what was noted.

    `noted` has, for each time a state is set, the offset from the step's beginning that it is of;
    None where it goes on with the stream. `states` are the graph's own, one for each offset.
    """

    generator: Any  # torch.Generator; what a test puts in its place
    begin: int = 0
    noted: list[int | None] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)  # of states that were asked for
    states: list[Any] = field(default_factory=list)
    live: Any = None
    asked: int = 0
    set_again: int = 0
    capturing: bool = False

    def __getattr__(self, name: str) -> Any:
        """Return what the generator has."""
        return getattr(self.generator, name)

    def get_state(self) -> Tensor:
        """Return the generator's state; while it is captured, the number of the question."""
        if self.capturing:
            self.asked += 1
            number = torch.tensor([self.asked - 1, 0], dtype=torch.int64)
            return number.view(torch.uint8)
        self.offsets.append(self.generator.get_offset() - self.begin)
        state: Tensor = self.generator.get_state()
        return state

    def set_state(self, state: Tensor) -> Draws:
        """Set the generator's state; while it is captured, to one that the graph has."""
        if not self.capturing:
            offset = _numbers(state)[1]
            goes_on = offset == self._stream_offset()
            self.noted.append(None if goes_on else offset - self.begin)
            self.generator.set_state(state)
            return self
        place = self.set_again
        self.set_again += 1
        offset = self.offsets[_numbers(state)[0]]
        wanted = self.noted[place] if place < len(self.noted) else -1
        if wanted is not None and wanted != offset:
            raise RuntimeError("the step draws other numbers again than in the steps before it")
        self.generator.graphsafe_set_state(self.live if wanted is None else self._state(place))
        return self

    def _stream_offset(self) -> int:
        """Return where the stream is that a re-run left: nothing draws from it meanwhile."""
        return self.begin + self.offsets[-1]

    def _state(self, place: int) -> Any:
        again = [at for at, offset in enumerate(self.noted) if offset is not None]
        return self.states[again.index(place)]

    def note(self) -> None:
        """Begin to note a step."""
        self.begin, self.noted, self.offsets = self.generator.get_offset(), [], []

    def join(self, graph: Any) -> None:
        """Give the graph a state for each place that is drawn again."""
        self.states = [self.generator.clone_state() for offset in self.noted if offset is not None]
        for state in self.states:
            graph.register_generator_state(state)
        self.live = self.generator.graphsafe_get_state()

    def place(self) -> None:
        """Put the graph's states where they belong if a step begins now."""
        seed, begin = self.generator.initial_seed(), self.generator.get_offset()
        offsets = [offset for offset in self.noted if offset is not None]
        for state, offset in zip(self.states, offsets, strict=True):
            state.manual_seed(seed)
            state.set_offset(begin + offset)


def _numbers(state: Tensor) -> tuple[int, int]:
    """Return seed and offset, of memory: operations on the host are watched."""
    first, second = struct.unpack("<QQ", ctypes.string_at(state.data_ptr(), 16))
    return first, second


@contextlib.contextmanager
def in_place_of_generator(draws: Draws, index: int) -> Iterator[None]:
    """Let `torch.cuda` find the stand-in."""
    cuda: Any = torch.cuda
    before = cuda.default_generators
    cuda.default_generators = (*before[:index], draws, *before[index + 1 :])
    try:
        yield
    finally:
        cuda.default_generators = before
