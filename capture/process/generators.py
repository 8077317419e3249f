"""Work that seeds or draws leaves the global generators as they were, those of GPUs too."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from remat_gen.capture.device.kinds import KINDS
from remat_gen.capture.process.replaced import replaced

_SEEDING = frozenset(
    {"initial_seed", "manual_seed", "seed", "set_state", "graphsafe_set_state", "set_offset"}
)


@contextmanager
def kept_generators() -> Iterator[None]:
    """Put the state of every global generator back at the end.

    `torch.manual_seed` seeds all of them, whatever device a model is on.
    """
    with ExitStack() as stack:
        for kind in KINDS:
            stack.enter_context(kind.kept_generators())
        yield


@contextmanager
def kept_host_generators() -> Iterator[None]:
    """Put the states of Python's and NumPy's global generators back at the end."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


def seed_all(seed: int) -> None:
    """Seed torch's generators, Python's and NumPy's."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


@dataclass(slots=True)
class WatchedGenerator:
    """torch's default generator, as the functions of `torch.random` see it.

    It knows if its seed was asked for or set: a state that is put back at the end
    (`torch.random.fork_rng`) leaves no other trace.
    """

    generator: torch.Generator
    is_used: bool = False

    def __getattr__(self, name: str) -> Any:
        """Return what the generator has."""
        self.is_used |= name in _SEEDING and not _asked_by_compiler()
        return getattr(self.generator, name)


def _asked_by_compiler() -> bool:
    """Tell whether it is torch's compiler that sets a state: it puts back what it found."""
    frame = sys._getframe(2)
    while frame.f_back and frame.f_globals.get("__name__") in (torch.random.__name__, "contextlib"):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")).startswith("torch._")


@contextmanager
def watched_seeds() -> Iterator[WatchedGenerator]:
    """Watch whether anything asks for the default generator's seed, or sets it or the state."""
    watched = WatchedGenerator(torch.default_generator)
    with replaced(torch.random, "default_generator", watched):
        yield watched
