"""A library's functions keep tensors of a run on fakes: no later run, the user's own, finds them.

RT-DETR's anchors and tables of positions are kept so.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch
from pairs import make_pair_of
from sources import install_library, model_source
from steps import assert_right

LIBRARY = """\
import functools

import torch


@functools.lru_cache
def table(width):
    return torch.arange(width) * 0.1


def uncompiled(function):
    cached = functools.lru_cache(function)

    def wrapper(*args):
        return function(*args) if torch.compiler.is_compiling() else cached(*args)

    return wrapper


@uncompiled
def wrapped(width):
    return torch.arange(width) * 0.1


class Positions:
    @functools.lru_cache
    def method(self, width):
        return torch.arange(width) * 0.1
"""
CALLS = {
    "a function": "caching_library.table(8)",
    "behind another": "caching_library.wrapped(8)",
    "a method": "caching_library.Positions().method(8)",
}
FORWARD = """\
import caching_library
x = self.body(x) + {0}
if not torch.isfinite(x).all():
    x = x.clamp(-1, 1)
return self.head(x.sin() * {0}).square().mean()"""


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_later_run_makes_its_own(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_library("caching_library", LIBRARY, tmp_path, monkeypatch)
    pair = make_pair_of(model_source(FORWARD.format(call)), "1GB", "per-layer")
    assert_right(pair)
    library = importlib.import_module("caching_library")
    assert type(library.table(8)) is torch.Tensor
    assert type(library.wrapped(8)) is torch.Tensor
