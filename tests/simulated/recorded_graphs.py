"""A CUDA graph for the simulated GPU: operations are noted while they run, and run again.

It refuses what a capture refuses of generators, and moves their offsets as torch's do
(aten/src/ATen/cuda/CUDAGeneratorImpl.cpp): a state that was registered begins each replay at its
own offset; the stream itself does not move while it is captured.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


@dataclass
class State:
    """What a generator points to."""

    seed: int
    offset: int


class Generators:
    """The simulated GPU's generator, and which state it draws from."""

    def __init__(self) -> None:
        self.real = torch.cuda.default_generators[0]
        self.state = State(self.real.initial_seed(), self.real.get_offset())
        self.graph: Graph | None = None  # that is being captured

    def switch(self, state: State) -> None:
        """Draw from another state; what was drawn from this one stays drawn."""
        self.state.offset = self.real.get_offset()
        self.state = state
        self.load()

    def load(self) -> None:
        self.real.manual_seed(self.state.seed)
        self.real.set_offset(self.state.offset)


class Generator:
    """A generator as Python sees it; `default` is the one that kernels draw from."""

    def __init__(self, all_: Generators, state: State, *, default: bool = False) -> None:
        self.all, self.own, self.default = all_, state, default

    @property
    def state(self) -> State:
        if self.default:
            self.all.state.offset = self.all.real.get_offset()
            self.all.state.seed = self.all.real.initial_seed()
            return self.all.state
        return self.own

    def _refuse_capture(self) -> None:
        if self.all.graph is not None:
            raise RuntimeError("Cannot call CUDAGeneratorImpl::… during CUDA graph capture")

    def get_offset(self) -> int:
        self._refuse_capture()
        return self.state.offset

    def initial_seed(self) -> int:
        self._refuse_capture()
        return self.state.seed

    def get_state(self) -> Tensor:
        self._refuse_capture()
        return self.all.real.get_state() if self.default else torch.empty(0)

    def set_state(self, state: Tensor) -> None:
        self._refuse_capture()
        self.all.real.set_state(state)

    def manual_seed(self, seed: int) -> None:
        self._refuse_capture()
        if self.default:
            self.all.real.manual_seed(seed)
        self.own.seed, self.own.offset = seed, 0

    def set_offset(self, offset: int) -> None:
        self._refuse_capture()
        self.own.offset = offset

    def clone_state(self) -> Generator:
        self._refuse_capture()
        return Generator(self.all, State(self.state.seed, self.state.offset))

    def graphsafe_get_state(self) -> Generator:
        return Generator(self.all, self.state)

    def graphsafe_set_state(self, other: Generator) -> None:
        if self.all.graph is not None:
            self.all.graph.calls.append(other.own)
        self.all.switch(other.own)


@dataclass
class Graph:
    """Notes operations on their own tensors; a state among them is one to go on drawing from."""

    all: Generators
    calls: list[Any] = field(default_factory=list)
    registered: list[State] = field(default_factory=list)

    def register_generator_state(self, generator: Generator) -> None:
        self.registered.append(generator.own)

    @contextlib.contextmanager
    def capture(self) -> Iterator[None]:
        live = self.all.state
        begin = self.all.real.get_offset()
        offsets = [state.offset for state in self.registered]
        self.all.graph = self
        with _Noted(self.calls):
            yield
        self.all.graph = None
        assert self.all.state is live, "the stream was not gone back to"
        for state, offset in zip(self.registered, offsets, strict=True):
            state.offset = offset
        live.offset = begin
        self.all.load()

    def replay(self) -> None:
        for call in self.calls:
            if isinstance(call, State):
                self.all.switch(call)
            else:
                call()


class _Noted(TorchDispatchMode):
    def __init__(self, calls: list[Any]) -> None:
        super().__init__()
        self.calls = calls

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        aliases = [r.alias_info for r in func._schema.returns]
        writes = any(a.alias_info and a.alias_info.is_write for a in func._schema.arguments)
        if writes or not any(aliases):
            self.calls.append(lambda: _again(func, args, kwargs or {}, made, copy=not writes))
        return made


def _again(func: Any, args: Any, kwargs: Any, made: Any, *, copy: bool) -> None:
    with torch.no_grad():
        new = func(*args, **kwargs)
        if copy:
            for ours, theirs in zip(pytree.tree_leaves(made), pytree.tree_leaves(new), strict=True):
                if isinstance(ours, Tensor) and ours.numel():
                    ours.detach().copy_(theirs)
