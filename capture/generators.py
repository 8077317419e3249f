"""Work that seeds or draws leaves the global generators as they were, those of GPUs too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def kept_generators() -> Iterator[None]:
    """Put the state of every global generator back at the end.

    `torch.manual_seed` seeds the GPUs' as well, whatever device a model is on. Where nothing has
    used a GPU yet, it leaves the seed to whoever does first: that is put back, too.
    """
    used = torch.cuda.is_initialized()
    left = dict(vars(torch.cuda._lazy_seed_tracker))
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if used else []):
            yield
    finally:
        vars(torch.cuda._lazy_seed_tracker).update(left)
        if torch.cuda.is_initialized() and not used:
            _seed_as_left()


def _seed_as_left() -> None:
    """Seed GPUs that were used for the first time as if that were now."""
    torch.cuda.manual_seed_all(torch.Generator().initial_seed())  # what nobody has seeded
    for seeds in torch.cuda._lazy_seed_tracker.get_calls():
        if seeds:
            seeds[0]()
