"""What forward reads of modules, of what they hold, and of files: noted as it is asked for.

Modules, the objects that they hold and imported files tell which attributes they are asked for;
dicts and namespaces are stood for; of a list or an array all is read.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
import types
import weakref
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from remat_gen.capture.observe.assumed import is_plain
from remat_gen.capture.observe.read_code import member_of
from remat_gen.capture.observe.read_dict import ReadAttributes, ReadDict, ReadNamespace, is_key
from remat_gen.capture.observe.telling import Telling, is_librarys_container
from remat_gen.capture.process.caches import Caches
from remat_gen.capture.process.libraries import (
    ASKING,
    acts_for_forward,
    is_bound,
    is_for_forward,
    is_of_library,
)
from remat_gen.capture.process.state import OF_PARAMETERS

_OF_MODULES = frozenset(vars(nn.Module())) | frozenset(dir(nn.Module))
_LISTS = (list, tuple, set, frozenset, deque, dict)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)
_METHODS = (types.FunctionType, types.BuiltinFunctionType, staticmethod, classmethod)
CACHED = functools._lru_cache_wrapper

Note = Callable[[str, Any], None]


class Reached:
    """Calls `note` with the path and value of what is asked for; paths are as in `assumed`.

    Where nothing may stand for a dict or a namespace (code may ask for its type), all that it holds
    counts as read. `caches` are those that a run may fill.
    """

    def __init__(
        self,
        model: nn.Module,
        file: dict[str, Any],
        note: Note,
        caches: Caches,
        *,
        stand_ins: bool,
    ) -> None:
        self._tell, self._file, self._stand_ins = note, file, stand_ins
        self._noted: set[str] = set()
        self._modules = dict(model.named_modules())
        self._telling = Telling(self._asked, self._asked_item, self._asked_whole)
        self._paths = self._telling.paths
        self._paths.update({id(module): name for name, module in self._modules.items()})
        self._own = frozenset(self._paths)
        self._modes = {id(m): m.training for m in self._modules.values()}  # before forward runs
        self._reached: dict[int, tuple[Any, Any]] = {}  # what there is, and what stands for it
        self._entered: dict[int, Any] = {}  # containers
        self._classes: dict[str, type] = {}  # by path
        self.caches = caches
        for module in self._modules.values():
            self._note_computed(module)

    def _asked(self, owner: Any, path: str, name: str, value: Any) -> Any:
        """Note an attribute that forward asked for; return what stands for it."""
        frame: Any = sys._getframe(2)
        if frame.f_code.co_name == ASKING:  # `getattr`
            frame = frame.f_back
        if path and id(owner) in self._own and _asks_mode(frame, name):
            self._note(f"{path}.training", self._modes[id(owner)])
        if not acts_for_forward(frame):
            return value
        if name[:1] == "_" and is_librarys_container(type(owner)):
            if name[:2] != "__" or name == "__dict__":  # the library, for what asked for all
                self.note_whole(owner, path)
            return value
        if name == "__dict__" and frame.f_globals.get("__name__") != "functools":  # for a cache
            return self._reach_attributes(value, path, of_module=isinstance(owner, nn.Module))
        if name[:2] == "__" or self._stands_in_table(owner, name, value):
            return value
        place = f"{path}{name}" if path[-1:] in ("", ":") else f"{path}.{name}"
        member = member_of(type(owner), name)
        if "tells" in getattr(member, "__dict__", ()):
            return value
        if hasattr(type(member), "__get__") and name not in getattr(owner, "__dict__", ()):
            if _is_librarys_own(type(owner), name, member):
                return value  # the library's version stands for it
            if isinstance(member, property) and not is_of_library(member.fget):
                self._note(f"{path}.__class__.{name}".lstrip("."), member)
            cache = member.__func__ if isinstance(member, staticmethod) else member
            if isinstance(cache, CACHED):
                self._enter_cached(cache, place)
                self._note(place, value)
            elif isinstance(member, functools.partialmethod):
                self._enter(value, place)
            if not isinstance(member, (*_METHODS, types.MemberDescriptorType)):
                return value  # a property reads what it is made of
        if isinstance(member, functools.cached_property) and isinstance(value, torch.Tensor):
            return value  # made of what it reads
        if isinstance(owner, types.ModuleType) and is_librarys(value):
            return value
        return self.reach(value, place)

    def _asked_item(self, owner: Any, path: str, key: Any, value: Any) -> Any:
        """Note an item that forward asked a dict for; return what stands for it."""
        if not acts_for_forward(sys._getframe(2)):
            return value
        if is_key(key):
            return self.reach(value, f"{path}[{key}]")
        self.note_whole(owner, path)
        return value

    def _asked_whole(self, owner: Any, path: str) -> None:
        """Note all of a dict that forward goes through."""
        if acts_for_forward(sys._getframe(2)):
            self.note_whole(owner, path)

    def _stands_in_table(self, owner: Any, name: str, value: Any) -> bool:
        """Tell whether something is a part of a module that its own row has."""
        if not isinstance(owner, nn.Module):
            return False
        if id(owner) not in self._own:  # held in a list, say: it has no row
            return name in _OF_MODULES and name != "training"
        of_torch = name in _OF_MODULES or name in owner._parameters or name in owner._buffers
        of_torch |= isinstance(owner, nn.RNNBase) and name in OF_PARAMETERS
        return of_torch or id(value) in self._own

    def _reach_attributes(self, held: Any, path: str, *, of_module: bool) -> Any:
        made = held, ReadAttributes(held, self, _OF_MODULES - {"training"} if of_module else ())
        _, stands = self._reached.setdefault(id(held), made)
        stands.paths[path] = None
        return stands if self._stand_ins else stands.whole()

    # -- values --------------------------------------------------------------------------------

    def reach(self, value: Any, path: str) -> Any:
        """Note a value and listen to what is read of it; return what stands for it."""
        if type(value) in (dict, defaultdict) and self._stand_ins:
            _, stands = self._reached.setdefault(id(value), (value, ReadDict(value, self)))
            stands.paths[path] = None
            return stands
        if isinstance(value, types.ModuleType):
            self._enter(value, path)
            return value
        kind = type(value)
        if is_librarys_container(kind) and self._telling.listen_to_container(kind):
            self._reached.setdefault(id(value), (value, value))
            self._paths.setdefault(id(value), path)
            return value
        derived = isinstance(value, dict) and kind is not dict
        if derived and self._stand_ins and self._telling.listen_to_items(type(value)):
            self._reached.setdefault(id(value), (value, value))
            self._paths.setdefault(id(value), path)
            self._telling.listen(type(value))
            return value
        self._note(path, value)
        if is_plain(value) or isinstance(value, (torch.Tensor, os.PathLike)):
            return value
        if type(value) is types.SimpleNamespace and self._stand_ins:
            read = self._reach_attributes(vars(value), path, of_module=False)
            return self._reached.setdefault(id(value), (value, ReadNamespace(read)))[1]
        if id(value) not in self._reached and id(value) not in self._paths:
            self._reached[id(value)] = value, value  # kept: its id is no other's
            self._enter(value, path)
        return value

    def _note(self, path: str, value: Any) -> None:
        if path not in self._noted:
            self._noted.add(path)
            self._tell(path, value)

    def pass_over(self, path: str) -> None:
        """Note no read of what forward itself has put there, unless it has been read before."""
        self._noted.add(path)

    def note_whole(self, value: Any, path: str) -> None:
        """Note all that a container holds."""
        if is_librarys_container(type(value)):
            for key in filter(is_key, self._telling.keys_of(value)):
                self._hold(self._telling.item_of(value, key), f"{path}[{key}]")
            self._note(f"{path}.__len__()", len(self._telling.keys_of(value)))
            return
        self._note(path, value)
        self._enter_items(value, path)

    def _hold(self, value: Any, path: str) -> None:
        """Note a value that nothing can stand for: of a dict, all that it holds."""
        if type(value) is dict or is_librarys_container(type(value)):
            self.note_whole(value, path)
        elif self.reach(value, path) is not value:  # a namespace
            self.note_whole(vars(value), f"{path}.__dict__")

    def _enter(self, value: Any, path: str) -> None:
        if isinstance(value, _LISTS):
            self._enter_items(value, path)
            if hasattr(value, "__dict__"):  # of a class of the user's
                self._enter_object(value, path)
        elif isinstance(value, functools.partial):
            for name in ("func", "args", "keywords"):
                self._hold(getattr(value, name), f"{path}.{name}")
        elif isinstance(value, CACHED):
            self._enter_cached(value, path)
        elif isinstance(value, _FUNCTIONS):
            self._enter_function(value, path)
        elif isinstance(value, weakref.ReferenceType):
            self._note(f"{path}()", value())
        elif isinstance(value, type):
            if not (is_of_library(value) or hasattr(value, "__members__")):
                self._enter_class(value, path)
        elif isinstance(value, types.ModuleType):
            if not (is_of_library(value) or id(value) in self._paths):
                self._paths[id(value)] = f"{self._place_of(value.__name__)}:"
                self._telling.listen_to_file(value)
        elif type(value) is types.SimpleNamespace:
            self.note_whole(vars(value), f"{path}.__dict__")
        elif not hasattr(type(value), "__members__"):
            self._enter_object(value, path)

    def _enter_items(self, value: Any, path: str) -> None:
        """Listen to what a container holds that its description does not tell all of."""
        if isinstance(value, (set, frozenset)) or id(value) in self._entered:
            return
        self._entered[id(value)] = value
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(item, _LISTS):
                self._enter_items(item, f"{path}[{key}]")
            elif is_key(key) and not (is_plain(item) or _is_tensor(item)):
                self._hold(item, f"{path}[{key}]")

    def _enter_object(self, value: Any, path: str) -> None:
        parts = value.named_modules() if isinstance(value, nn.Module) else [("", value)]
        for name, part in parts:
            self._paths.setdefault(id(part), f"{path}.{name}".rstrip("."))
            self._note_computed(part)
        self._telling.listen(type(value))

    def _note_computed(self, owner: Any) -> None:
        """Note the cached properties that are not there yet: a run's results fill them."""
        held = getattr(owner, "__dict__", {})
        for name in dir(type(owner)):
            if isinstance(member_of(type(owner), name), functools.cached_property):
                self.caches.properties.extend(() if name in held else [(owner, name)])

    def _enter_class(self, kind: type, path: str) -> None:
        self._classes[path] = kind

    def _enter_cached(self, cache: Any, path: str) -> None:
        self.caches.functions[id(cache)] = cache
        self._enter_function(cache.__wrapped__, f"{path}.__wrapped__")

    def _enter_function(self, function: Any, path: str, *, plain: bool = True) -> None:
        """Note what a function is bound to, and what it has of where it was made."""
        owner = getattr(function, "__self__", None)
        if is_bound(function):
            self._hold_bound(owner, f"{path}.__self__", function.__name__)
        elif isinstance(owner, type):
            self._enter(owner, f"{path}.__self__")
        if is_of_library(function) or not hasattr(function, "__code__"):
            return
        held = {name: getattr(function, name) for name in ("__defaults__", "__kwdefaults__")}
        held |= {k: v for k, v in vars(function).items() if k[:2] != "__"}
        for i, cell in enumerate(function.__closure__ or ()):
            with contextlib.suppress(ValueError):  # it has none yet
                held[f"__closure__[{i}].cell_contents"] = cell.cell_contents
        for name, value in held.items():
            passed = value is None or isinstance(value, type)
            if id(value) in self._own:
                self._note(f"{path}.{name}", value)
            elif not passed and (plain or "defaults" not in name or not is_plain(value)):
                self._hold(value, f"{path}.{name}")

    def _hold_bound(self, owner: Any, path: str, name: str) -> None:
        """Note what a method is bound to, unless it is that which it was asked of."""
        known = self._paths.get(id(owner))
        if known is None and id(owner) not in self._reached:
            self._hold(owner, path)
        elif path != f"{known}.{name}.__self__".lstrip("."):
            self._note(path, owner)

    def _place_of(self, name: str) -> str:
        """Return what paths say for a file: nothing for that of the model."""
        return "" if vars(sys.modules[name]) is self._file else name


def is_librarys(value: Any, name: str = "") -> bool:
    """Tell whether a value is a function that a library's version stands for.

    One that the user's file or class has by another `name` was chosen among others: `ACT = F.relu`.
    """
    wrapped = inspect.unwrap(value) if isinstance(value, _FUNCTIONS) else value  # @torch.no_grad()
    is_function = isinstance(value, _FUNCTIONS) and is_of_library(wrapped)
    return is_function and name in ("", value.__name__)


def _is_librarys_own(kind: type, name: str, member: Any) -> bool:
    """Tell whether a method is a library's, and its class as well, or has it by its own name."""
    if not (isinstance(member, _METHODS) and is_of_library(member)):
        return False
    function = getattr(member, "__func__", member)
    holder = next(one for one in kind.__mro__ if name in vars(one))
    return is_of_library(holder) or is_librarys(function, name)


def _asks_mode(frame: types.FrameType, name: str) -> bool:
    """Tell whether forward or a layer of torch's asks for a mode, or all: not what switches it."""
    by = str(frame.f_globals.get("__name__"))
    if name == "training":
        return is_for_forward(by) or (by[:5] == "torch" and by != nn.Module.__module__)
    return name == "__dict__" and acts_for_forward(frame)


def _is_tensor(value: Any) -> bool:
    """Tell whether a description has all of a value: of parameters it has the layout."""
    return isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter)
