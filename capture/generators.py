"""Work that seeds or draws leaves the global generators as they were, those of GPUs too."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch


def kept_generators() -> AbstractContextManager[None]:
    """Put the state of every global generator back at the end.

    `torch.manual_seed` seeds the GPUs' as well, whatever device a model is on. A GPU that nothing
    has used yet has no state to keep, and is not woken up.
    """
    used = torch.cuda.is_available() and torch.cuda.is_initialized()
    return torch.random.fork_rng(devices=range(torch.cuda.device_count()) if used else [])
