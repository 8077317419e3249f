"""Which torch made a plan: another one traces otherwise, and its kernels take other workspace."""

from __future__ import annotations

import torch


def torch_version() -> str:
    """Return torch's version without the build, so that `2.13.0+cpu` is `2.13.0`."""
    return str(torch.__version__).partition("+")[0]
