"""What stands for a dict, a namespace or an object's `__dict__` while a forward runs, and tells.

They tell what they are asked for; what is written into one goes where it belongs. A copy is no
longer one of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container
from types import SimpleNamespace
from typing import Any, Protocol

import torch

from remat_gen.capture.observe.assumed import NOT_SET, is_plain


def is_key(key: object) -> bool:
    """Tell whether a key can stand in a path: an index, or a text that is none."""
    if isinstance(key, str):
        return bool(key) and not key.isdigit() and set("[]:*").isdisjoint(key)
    return type(key) is int and key >= 0


class Hearer(Protocol):
    """What is told of reads."""

    def reach(self, value: Any, path: str) -> Any:
        """Note a value; return what stands for it."""

    def note_whole(self, value: Any, path: str) -> None:
        """Note all that a container holds."""

    def pass_over(self, path: str) -> None:
        """Note no read of what forward itself has put there, unless it has been read before."""


class ReadDict(dict[Any, Any]):
    """Stands for a dict at its `paths`; what is written into it goes there."""

    def __init__(self, held: dict[Any, Any], hearer: Hearer) -> None:
        super().__init__(held)
        self.held, self.hearer = held, hearer
        self.paths: dict[str, None] = {}

    def _place(self, path: str, key: Any) -> str:
        return f"{path}[{key}]"

    def _item(self, key: Any) -> Any:
        value = stands = self.held.get(key, NOT_SET)
        if value is NOT_SET and isinstance(self.held, defaultdict):
            return value  # whoever looks there makes it
        for path in self.paths:
            if is_key(key):
                stands = self.hearer.reach(value, self._place(path, key))
            else:
                self._note_whole(path)
        return stands

    def _note_whole(self, path: str) -> None:
        self.hearer.note_whole(self.held, path)

    def whole(self) -> dict[Any, Any]:
        """Return the dict, all of which is read."""
        for path in self.paths:
            self._note_whole(path)
        return self.held

    def __getitem__(self, key: Any) -> Any:
        value = self._item(key)
        return self.held[key] if value is NOT_SET else value  # raises as the dict does

    def get(self, key: Any, default: Any = None) -> Any:
        value = self._item(key)
        return default if value is NOT_SET else value

    def __contains__(self, key: object) -> bool:
        return self._item(key) is not NOT_SET

    def __iter__(self) -> Any:
        return iter(self.whole())

    def __reversed__(self) -> Any:
        return reversed(self.whole())

    def __len__(self) -> int:
        return len(self.whole())

    def __eq__(self, other: object) -> bool:
        return self.whole() == other

    def __ne__(self, other: object) -> bool:
        return self.whole() != other

    def keys(self) -> Any:
        return self.whole().keys()

    def values(self) -> Any:
        return self.whole().values()

    def items(self) -> Any:
        return self.whole().items()

    def copy(self) -> Any:
        return self.whole().copy()

    def __or__(self, other: Any) -> Any:
        return self.whole() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.whole()

    def __repr__(self) -> str:
        return repr(self.whole())

    def __reduce_ex__(self, _protocol: Any) -> Any:
        return dict, (self.whole(),)

    # -- writes ------------------------------------------------------------------------------

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            self._item(key)  # what there was: a step's tensor that is kept is a change
        for path in self.paths if is_plain(value) else ():
            self.hearer.pass_over(self._place(path, key))
        super().__setitem__(key, value)
        self.held[key] = value

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        del self.held[key]

    def __ior__(self, other: Any) -> Any:
        self.update(other)
        return self

    def update(self, *args: Any, **kwargs: Any) -> None:
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: Any, *default: Any) -> Any:
        super().pop(key, None)
        self._item(key)
        return self.held.pop(key, *default)

    def popitem(self) -> Any:
        self.whole()
        key, value = self.held.popitem()
        super().pop(key, None)
        return key, value

    def clear(self) -> None:
        super().clear()
        self.held.clear()


class ReadAttributes(ReadDict):
    """Stands for the `__dict__` of an object, but for the items in `left`: they are attributes."""

    def __init__(self, held: dict[Any, Any], hearer: Hearer, left: Container[str] = ()) -> None:
        super().__init__(held, hearer)
        self._left = left

    def _item(self, key: Any) -> Any:
        return self.held.get(key, NOT_SET) if key in self._left else super()._item(key)

    def _place(self, path: str, key: Any) -> str:
        return f"{path}.{key}".lstrip(".")

    def _note_whole(self, path: str) -> None:
        if self._left:
            for key in self.held:
                self._item(key)
        else:
            self.hearer.note_whole(self.held, f"{path}.__dict__")


class ReadNamespace(SimpleNamespace):
    """Stands for a `SimpleNamespace`, whose class tells nobody what it is asked for."""

    __slots__ = ("_read",)

    def __init__(self, read: ReadAttributes) -> None:
        super().__init__(**read.held)
        object.__setattr__(self, "_read", read)

    def __getattribute__(self, name: str) -> Any:
        read = object.__getattribute__(self, "_read")
        if name[:2] == "__":
            return read if name == "__dict__" else object.__getattribute__(self, name)
        value = read.get(name, NOT_SET)
        if value is NOT_SET:
            raise AttributeError(f"'types.SimpleNamespace' object has no attribute {name!r}")
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__[name] = value

    def __delattr__(self, name: str) -> None:
        del self.__dict__[name]

    def __eq__(self, other: object) -> bool:
        return SimpleNamespace(**self.__dict__) == other

    def __repr__(self) -> str:
        return repr(SimpleNamespace(**self.__dict__))

    def __reduce_ex__(self, _protocol: Any) -> Any:
        return SimpleNamespace, (), dict(self.__dict__)
