"""What a forward does besides computing: a planned one would not, so it is refused."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from remat_gen.capture.process.libraries import is_of_library, user_files
from remat_gen.capture.refuse.library_hooks import INSTALLED
from remat_gen.ir.errors import TraceError

DRAWS = (
    "forward draws random numbers of Python or NumPy, or sets their seed, which a planned step "
    "would not do: draw them with torch"
)
_SEED = 0x5EED_0F_A
_PLAIN = (bool, int, float, complex, str, torch.Tensor)
_HELD = (torch.Tensor, list, dict)  # in a container: numbers there are compared where it is read
_Attributes: TypeAlias = dict[str, dict[str, Any]]


class DrawError(TraceError):
    """Forward draws random numbers on the host."""

    def __init__(self, reason: str = DRAWS, name: str = "") -> None:
        TraceError.__init__(self, reason)
        self.name = name  # none


class KeptError(TraceError):
    """Forward keeps something, by the `name` of it, where a planned one would not."""

    def __init__(self, reason: str, name: str) -> None:
        TraceError.__init__(self, reason)
        self.name = name


@contextlib.contextmanager
def refused_side_effects(model: nn.Module) -> Iterator[None]:
    """Run a forward, put the attributes of all modules back, and refuse if it changed some.

    Raises:
        KeptError: it kept a number or a tensor on a module, on a class or in a global variable.
        DrawError: it drew from Python's or NumPy's random numbers.
    """
    attributes, shared = _attributes(model), _shared(model)
    try:
        with _own_random_states() as seeded:
            yield
            drew = seeded != _random_states()
        changed = _changed(attributes, _attributes(model)) or _changed_shared(
            shared, _shared(model)
        )
        _refuse(changed, drew)
    finally:
        _restore(model, attributes)


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


def _attributes(model: nn.Module) -> _Attributes:
    """Return the attributes of each module; parameters, buffers and submodules are no attributes.

    Containers are copied one level deep.
    """
    return {
        name: {k: _copied(v) for k, v in vars(module).items() if k not in _TORCHS}
        for name, module in model.named_modules()
    }


_TORCHS = frozenset(vars(nn.Module())) | {INSTALLED}


def _copied(value: Any) -> Any:
    return type(value)(value) if type(value) in (list, dict, set) else value


def _changed(before: _Attributes, after: _Attributes) -> str:
    """Return the path of the first plain attribute that changed, or ""."""
    for name, attributes in after.items():
        for attribute, value in attributes.items():
            old = before.get(name, {}).get(attribute)
            if _differs(old, value):
                return f"self.{name}.{attribute}".replace("..", ".")
    return ""


def _shared(model: nn.Module) -> dict[str, dict[str, Any]]:
    """Return the plain class attributes and global variables of the user's own code, by owner."""
    classes = {c for module in model.modules() for c in type(module).__mro__}
    spaces: dict[str, Mapping[str, Any]] = {f.__name__: vars(f) for f in user_files(model)}
    spaces |= {c.__qualname__: vars(c) for c in classes if not is_of_library(c)}
    return {
        owner: {k: v for k, v in space.items() if isinstance(v, _PLAIN) and k[:2] != "__"}
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
    if new is old:
        return False
    if isinstance(new, list | dict | set):
        if type(old) is not type(new) or len(old) != len(new):
            return True
        inside = zip(*map(_items, (old, new)), strict=True)
        return any(isinstance(n, _HELD) and _differs(o, n) for o, n in inside)
    if isinstance(new, torch.Tensor) or isinstance(old, torch.Tensor):
        return True
    return isinstance(new, _PLAIN) and bool(new != old)


def _items(container: Any) -> Any:
    return container.values() if isinstance(container, dict) else container


def _restore(model: nn.Module, attributes: _Attributes) -> None:
    for name, module in model.named_modules():
        own = vars(module)
        for attribute in [k for k in own if k not in _TORCHS and k not in attributes[name]]:
            del own[attribute]
        for attribute, value in attributes[name].items():
            if own.get(attribute) is not value and not isinstance(value, list | dict | set):
                own[attribute] = value


@contextlib.contextmanager
def _own_random_states() -> Iterator[tuple[object, object]]:
    """Seed Python's and NumPy's generators as nobody else does, and put their states back.

    Where forward sets the seed itself, and ran before, it would leave them as it found them.
    """
    of_python, of_numpy = random.getstate(), np.random.get_state()
    random.seed(_SEED)
    np.random.seed(_SEED)
    try:
        yield _random_states()
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


def _random_states() -> tuple[object, object]:
    return random.getstate(), str(np.random.get_state())
