"""A dict that tells what it is asked for, while a forward runs."""

from __future__ import annotations

from typing import Any, Protocol

from remat_gen.capture.assumed import NOT_SET


def is_key(key: object) -> bool:
    """Tell whether a key can stand in a path: an index, or a text that is none."""
    if isinstance(key, str):
        return bool(key) and not key.isdigit() and set("[]:").isdisjoint(key)
    return type(key) is int and key >= 0


class Hearer(Protocol):
    """What is told of reads."""

    def reach(self, value: Any, path: str) -> Any:
        """Note a value; return what stands for it."""

    def note_whole(self, value: Any, path: str) -> None:
        """Note all that a container holds."""


class ReadDict(dict[Any, Any]):
    """Stands for a dict at its `paths`; what is written into it goes there."""

    def __init__(self, held: dict[Any, Any], hearer: Hearer) -> None:
        super().__init__(held)
        self.held, self.hearer = held, hearer
        self.paths: dict[str, None] = {}

    def _item(self, key: Any) -> Any:
        value = stands = self.held.get(key, NOT_SET)
        for path in self.paths:
            if is_key(key):
                stands = self.hearer.reach(value, f"{path}[{key}]")
            else:
                self.hearer.note_whole(self.held, path)
        return stands

    def _whole(self) -> dict[Any, Any]:
        for path in self.paths:
            self.hearer.note_whole(self.held, path)
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
        return iter(self._whole())

    def __len__(self) -> int:
        return len(self._whole())

    def __eq__(self, other: object) -> bool:
        return self._whole() == other

    def keys(self) -> Any:
        return self._whole().keys()

    def values(self) -> Any:
        return self._whole().values()

    def items(self) -> Any:
        return self._whole().items()

    def copy(self) -> Any:
        return self._whole().copy()

    def __or__(self, other: Any) -> Any:
        return self._whole() | other

    def __ror__(self, other: Any) -> Any:
        return other | self._whole()

    def __repr__(self) -> str:
        return repr(self._whole())

    # -- writes ------------------------------------------------------------------------------

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self.held[key] = value

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        del self.held[key]

    def update(self, *args: Any, **kwargs: Any) -> None:
        self.held.update(*args, **kwargs)
        super().update(self.held)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: Any, *default: Any) -> Any:
        super().pop(key, None)
        self._item(key)
        return self.held.pop(key, *default)

    def popitem(self) -> Any:
        self._whole()
        key, value = self.held.popitem()
        super().pop(key, None)
        return key, value

    def clear(self) -> None:
        super().clear()
        self.held.clear()
