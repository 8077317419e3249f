"""Build a model whose tensors have shapes and no values: nothing is allocated."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensorMode


@contextlib.contextmanager
def without_values() -> Iterator[None]:
    """Make every tensor a fake one."""
    with (
        FakeTensorMode(allow_non_fake_inputs=True),
        mock.patch("torch.utils.swap_tensors", _exchange),
    ):
        yield


def _exchange(one: torch.Tensor, other: torch.Tensor) -> None:
    """Let two fake tensors change places, as `model.to(torch.bfloat16)` has parameters do.

    `torch.utils.swap_tensors` refuses tensors that something refers to weakly, as the fake mode
    does; it looks them up by identity, and the places are what is exchanged.
    """
    one.__dict__, other.__dict__ = other.__dict__, one.__dict__
    torch._C._swap_tensor_impl(one, other)
