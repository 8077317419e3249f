"""What a file is traced to, found once in a process: for tests of what comes after the trace.

A folder of such tests imports the fixture into its conftest.py; a module there that is to take the
whole path has a fixture of that name that does nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias
from unittest import mock

import emitting_parts
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from remat_gen.ask.live_model import GIVEN
from remat_gen.capture.load.load import Loaded
from remat_gen.capture.trace import trace as tracing
from remat_gen.capture.trace.trace import Traced, trace_loaded
from remat_gen.ir.header import read_header
from remat_gen.review import retrace
from remat_gen.trade_off import sweep_problem

# They call it by a name of their own; the pipeline imports it when it runs.
_CALLERS = (tracing, emitting_parts, retrace, sweep_problem)

Key: TypeAlias = tuple[object, ...]
_found: dict[Key, Traced] = {}


@pytest.fixture(autouse=True)
def traced_once() -> Iterator[None]:
    """Trace the same file, asked for in the same way, once."""
    with each_traced_once():
        yield


@contextmanager
def each_traced_once() -> Iterator[None]:
    """Let equal files share a trace, which is never changed; each has its own module's globals."""
    with ExitStack() as patches:
        for module in _CALLERS:
            patches.enter_context(mock.patch.object(module, "trace_loaded", _trace_loaded))
        yield


def _trace_loaded(
    loaded: Loaded, dynamic: Iterable[str] | None = (), fixed: Iterable[str] = ()
) -> Traced:
    wanted, fixed = None if dynamic is None else tuple(dynamic), tuple(fixed)
    # a built model may differ from its file's, and one for a target is changed by its trace
    if loaded.inputs_name == GIVEN or loaded.stands_for:
        return trace_loaded(loaded, wanted, fixed)
    key = *_key(loaded, wanted), fixed
    if key not in _found or _found[key].first:  # which is of the one model
        _found[key] = trace_loaded(loaded, wanted, fixed)
    found = _found[key]
    return replace(found, reads=replace(found.reads, file=vars(loaded.module)))


def _key(loaded: Loaded, dynamic: tuple[str, ...] | None) -> Key:
    """Return what a trace depends on, where tests leave torch's and the process's settings alone.

    What was generated beside the file is not read by it.
    """
    return (
        loaded.path.name,
        _digest(loaded.path.parent),
        loaded.builder,
        loaded.inputs_name,
        loaded.device,
        _shapes(loaded),  # of another batch than the example's, where one is asked for
        any(isinstance(tensor, FakeTensor) for tensor in loaded.model.parameters()),
        dynamic,
    )


def _shapes(loaded: Loaded) -> tuple[object, ...]:
    leaves = tree_leaves((loaded.args, loaded.kwargs))
    return tuple(tuple(leaf.shape) for leaf in leaves if isinstance(leaf, torch.Tensor))


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        if read_header(text) is None:
            digest.update(f"{path.relative_to(folder)}\n{len(text)}\n{text}".encode())
    return digest.hexdigest()
