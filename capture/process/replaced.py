"""Put something else in place of an attribute of torch's, or into dicts, for a while."""

from __future__ import annotations

from collections.abc import Collection, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from typing import Any

_INHERITED = object()


@contextmanager
def replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    """Let a module or a class have another attribute.

    Raises:
        AttributeError: it has none of this name, as in a torch that is too new or too old.
    """
    getattr(owner, name)
    held = vars(owner).get(name, _INHERITED)  # a static method as it is held
    setattr(owner, name, value)
    try:
        yield
    finally:
        if held is _INHERITED:
            delattr(owner, name)
        else:
            setattr(owner, name, held)


@contextmanager
def kept_dicts(*dicts: MutableMapping[Any, Any]) -> Iterator[None]:
    """Let dicts have at the end what they have now."""
    before = [dict(each) for each in dicts]
    try:
        yield
    finally:
        for each, items in zip(dicts, before, strict=True):
            each.clear()
            each.update(items)


@contextmanager
def kept_kernels(operators: Collection[Any]) -> Iterator[None]:
    """Let torch's operators have at the end the Python kernels that they have now."""
    with ExitStack() as stack:
        for operator in operators:
            operator._dispatch_cache.clear()
            stack.callback(operator._dispatch_cache.clear)
        stack.enter_context(kept_dicts(*(operator.py_kernels for operator in operators)))
        yield
