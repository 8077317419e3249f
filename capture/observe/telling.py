"""Objects that tell which attributes they are asked for: through their classes, for a while."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from remat_gen.capture.observe.assumed import NOT_SET

Asked = Callable[[Any, str, str, Any], Any]


class Telling:
    """Calls `asked` with an object, its path, an attribute's name and value, for what `paths` has.

    What it returns is what the attribute is. `undo` puts the classes back.
    """

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self.paths: dict[int, str] = {}  # by identity
        self.undo = ExitStack()

    def listen(self, kind: type) -> None:
        """Let a class tell which attributes its objects are asked for."""
        for hook in ("__getattribute__", "__getattr__"):
            own, plain = vars(kind).get(hook), getattr(kind, hook, None)
            if plain is None or hasattr(plain, "tells"):
                continue  # there is none, or that of a base tells
            try:
                setattr(kind, hook, self._telling(plain, last=hook == "__getattr__"))
            except TypeError:  # no class of Python's
                return
            undo = (delattr, kind, hook) if own is None else (setattr, kind, hook, own)
            self.undo.callback(*undo)

    def listen_to_file(self, file: Any) -> None:
        """Let an imported file tell: by a class of its own."""
        kind = type(file)
        if kind is types.ModuleType:
            file.__class__ = type("File", (kind,), {})
            self.undo.callback(setattr, file, "__class__", kind)
        self.listen(type(file))

    def _telling(self, plain: Any, *, last: bool) -> Any:
        @functools.wraps(plain)
        def ask_and_tell(owner: Any, name: str) -> Any:
            path = self.paths.get(id(owner))
            try:
                value = plain(owner, name)
            except AttributeError:
                if path is not None and (last or not hasattr(type(owner), "__getattr__")):
                    self._asked(owner, path, name, NOT_SET)
                raise
            return value if path is None else self._asked(owner, path, name, value)

        ask_and_tell.tells = True  # type: ignore[attr-defined]
        return ask_and_tell
