"""Runs of a forward that compute and do nothing else: what they change is put back, and refused."""

from __future__ import annotations

import contextlib
import random
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from remat_gen.capture.process.generators import kept_host_generators
from remat_gen.capture.process.libraries import is_of_library, user_files
from remat_gen.capture.refuse.kept_errors import DrawError, KeptError
from remat_gen.capture.values.held import GONE, Held, files_of, shown

_SEED = 0x5EED_0F_A
_OF_CODE = (types.ModuleType, types.FunctionType, type)


@contextlib.contextmanager
def refused_side_effects(model: nn.Module) -> Iterator[None]:
    """Run a forward, put back what the model and its files hold, and refuse if it changed some.

    Raises:
        KeptError: it kept something on a module, on a class or in a global variable.
        DrawError: it drew from Python's or NumPy's random numbers.
    """
    held, shared = Held.by(model, files_of(model)), _shared(model)
    try:
        with _own_random_states() as seeded:
            yield
            drew = seeded != _random_states()
        _refuse(_changed(held) or _changed_shared(shared, _shared(model)), drew)
    finally:
        held.put_back()


@contextlib.contextmanager
def refused_shared_changes(model: nn.Module) -> Iterator[None]:
    """Run a forward, and refuse if it changed a class or a global variable.

    Raises:
        KeptError: it did.
    """
    shared = _shared(model)
    yield
    _refuse(_changed_shared(shared, _shared(model)), drew=False)


def _refuse(changed: str, drew: bool) -> None:
    if changed:
        raise KeptError(
            f"forward changes {changed}, which a planned forward would not do: make it a buffer, "
            "or return it",
            changed,
        )
    if drew:
        raise DrawError


def _changed(held: Held) -> str:
    """Return what is the first that is not as it was, or ""."""
    for path, (old, new) in held.changed().items():
        is_mode = path.rpartition(".")[2] == "training"
        if not is_mode and _differs(None if old is GONE else old, new):
            return shown(path)
    return ""


def _shared(model: nn.Module) -> dict[str, dict[str, Any]]:
    """Return the class attributes and global variables of the user's own code, by owner.

    Not what code makes on its first use: an imported module, a function, a class.
    """
    classes = {c for module in model.modules() for c in type(module).__mro__}
    spaces: dict[str, Mapping[str, Any]] = {f.__name__: vars(f) for f in user_files(model)}
    spaces |= {c.__qualname__: vars(c) for c in classes if not is_of_library(c)}
    return {
        owner: {k: v for k, v in space.items() if k[:2] != "__" and not isinstance(v, _OF_CODE)}
        for owner, space in spaces.items()
    }


def _changed_shared(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> str:
    for owner, values in after.items():
        for name, value in values.items():
            if _differs(before.get(owner, {}).get(name), value):
                is_global = owner in sys.modules
                return f"the global variable {name}" if is_global else f"{owner}.{name}"
    return ""


def _differs(old: Any, new: Any) -> bool:
    """Tell whether a value is another one; of plain ones by what they say."""
    if new is old:
        return False
    if isinstance(new, list | dict | set | tuple):
        if type(old) is not type(new) or len(old) != len(new):
            return True
        return any(map(_differs, *map(_items, (old, new))))
    if isinstance(new, torch.Tensor):
        return True
    try:
        return bool(new != old)
    except Exception:  # an array, the user's own
        return True


def _items(container: Any) -> Any:
    return container.values() if isinstance(container, dict) else container


@contextlib.contextmanager
def _own_random_states() -> Iterator[tuple[object, object]]:
    """Seed Python's and NumPy's generators as nobody else does, and put their states back.

    Where forward sets the seed itself, and ran before, it would leave them as it found them.
    """
    with kept_host_generators():
        random.seed(_SEED)
        np.random.seed(_SEED)
        yield _random_states()


def _random_states() -> tuple[object, object]:
    return random.getstate(), str(np.random.get_state())
