"""What forward really reads of modules, of what they hold, and of its files: noted as it runs.

Modules and the objects that they hold are asked for attributes through a function that notes them,
dicts are asked for items so; of a list or an array all is read. Of the functions that run the
globals count that their code loads, of classes and imported files what that code has names for. Of
libraries the version counts.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from remat_gen.capture.assumed import NOT_SET, is_plain
from remat_gen.capture.libraries import is_library_file, is_of_library, reads_for_forward
from remat_gen.capture.read_dict import ReadDict, is_key

_OF_MODULES = frozenset(vars(nn.Module())) | frozenset(dir(nn.Module))
_LISTS = (list, tuple, set, frozenset, deque, dict)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)
_METHODS = (types.FunctionType, types.BuiltinFunctionType, staticmethod, classmethod)
_NO_VERSION = ("torch", "remat_gen", "numpy")  # of the plan's header, of none, of values alone

Note = Callable[[str, Any], None]


class Recorder:
    """Calls `note` with the path and value of each read while `recording` lasts.

    `file` are the globals of the model's file. Paths are as in `assumed`.
    """

    def __init__(self, model: nn.Module, file: dict[str, Any], note: Note) -> None:
        self._tell, self._file = note, file
        self._noted: set[str] = set()
        self._modules = dict(model.named_modules())
        self._paths = {id(module): name for name, module in self._modules.items()}
        self._reached: dict[int, tuple[Any, Any]] = {}  # what there is, and what stands for it
        self._seen: set[types.CodeType] = set()
        self._names: set[str] = set()  # in the code that ran
        self._spaces: dict[str, Any] = {}  # classes and files, by path
        self._undo = contextlib.ExitStack()

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Note what is read; everything is put back at the end."""
        with self._undo:
            self._listen(nn.Module)
            self._undo.callback(sys.setprofile, sys.getprofile())
            sys.setprofile(self._called)
            yield
            sys.setprofile(None)
            self._note_members()

    # -- attributes ----------------------------------------------------------------------------

    def _listen(self, kind: type) -> None:
        """Let a class tell which attributes it is asked for."""
        for hook in ("__getattribute__", "__getattr__"):
            own, plain = vars(kind).get(hook), getattr(kind, hook, None)
            if plain is None:
                continue
            try:
                setattr(kind, hook, self._telling(plain, last=hook == "__getattr__"))
            except TypeError:  # no class of Python's
                return
            undo = (delattr, kind, hook) if own is None else (setattr, kind, hook, own)
            self._undo.callback(*undo)

    def _telling(self, plain: Any, *, last: bool) -> Any:
        @functools.wraps(plain)
        def get(owner: Any, name: str) -> Any:
            path = self._paths.get(id(owner))
            try:
                value = plain(owner, name)
            except AttributeError:
                if path is not None and (last or not hasattr(type(owner), "__getattr__")):
                    self._asked(owner, path, name, NOT_SET)
                raise
            return value if path is None else self._asked(owner, path, name, value)

        return get

    def _asked(self, owner: Any, path: str, name: str, value: Any) -> Any:
        """Note an attribute that forward asked for; return what stands for it."""
        if name[:2] == "__" or not reads_for_forward(sys._getframe(2).f_globals):
            return value
        if isinstance(owner, nn.Module) and _stands_in_table(owner, name, value):
            return value
        member = _member(type(owner), name)
        if hasattr(type(member), "__get__") and name not in getattr(owner, "__dict__", ()):
            if isinstance(member, _METHODS) and is_of_library(member):
                return value  # the library's version stands for it
            if isinstance(member, property) and not is_of_library(member.fget):
                self._note(f"{path}.__class__.{name}".lstrip("."), member)
            if not isinstance(member, (*_METHODS, types.MemberDescriptorType)):
                return value  # a property reads what it is made of
        return self.reach(value, f"{path}.{name}" if path else name)

    # -- values --------------------------------------------------------------------------------

    def reach(self, value: Any, path: str) -> Any:
        """Note a value and listen to what is read of it; return what stands for it."""
        if type(value) is dict:
            _, stands = self._reached.setdefault(id(value), (value, ReadDict(value, self)))
            stands.paths[path] = None
            return stands
        self._note(path, value)
        if is_plain(value) or isinstance(value, torch.Tensor):
            return value
        if id(value) not in self._reached and id(value) not in self._paths:
            self._reached[id(value)] = value, value  # kept: its id is no other's
            self._enter(value, path)
        return value

    def _note(self, path: str, value: Any) -> None:
        if path not in self._noted:
            self._noted.add(path)
            self._tell(path, value)

    def note_whole(self, value: Any, path: str) -> None:
        """Note all that a container holds."""
        self._note(path, value)
        self._enter_items(value, path)

    def _hold(self, value: Any, path: str) -> None:
        """Note a value that nothing can stand for: of a dict, all that it holds."""
        note = self.note_whole if type(value) is dict else self.reach
        note(value, path)

    def _enter(self, value: Any, path: str) -> None:
        if isinstance(value, _LISTS):
            self._enter_items(value, path)
        elif isinstance(value, functools.partial):
            for name in ("func", "args", "keywords"):
                self._hold(getattr(value, name), f"{path}.{name}")
        elif isinstance(value, _FUNCTIONS):
            if not is_of_library(value):
                self._enter_function(value, path)
        elif isinstance(value, (type, types.ModuleType)):
            if not (is_of_library(value) or hasattr(value, "__members__")):
                self._spaces[path] = value
        elif type(value) is types.SimpleNamespace:  # tells nobody what it is asked for
            for name, item in vars(value).items():
                self._hold(item, f"{path}.{name}")
        elif not hasattr(type(value), "__members__"):
            self._paths[id(value)] = path
            self._listen(type(value))

    def _enter_items(self, value: Any, path: str) -> None:
        """Listen to what a container holds that its description does not tell all of."""
        if isinstance(value, (set, frozenset)):
            return
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(item, _LISTS):
                self._enter_items(item, f"{path}[{key}]")
            elif is_key(key) and not (is_plain(item) or isinstance(item, torch.Tensor)):
                self.reach(item, f"{path}[{key}]")

    def _enter_function(self, function: Any, path: str) -> None:
        """Note what a function has of where it was made."""
        held = {name: getattr(function, name) for name in ("__defaults__", "__kwdefaults__")}
        held |= {k: v for k, v in vars(function).items() if k[:2] != "__"}
        for i, cell in enumerate(function.__closure__ or ()):
            with contextlib.suppress(ValueError):  # it has none yet
                held[f"__closure__[{i}].cell_contents"] = cell.cell_contents
        for name, value in held.items():
            if value is not None and not isinstance(value, (type, nn.Module)):
                self._hold(value, f"{path}.{name}")

    # -- code that runs --------------------------------------------------------------------------

    def _called(self, frame: types.FrameType, event: str, _: Any) -> None:
        code, space = frame.f_code, frame.f_globals
        if event != "call" or code in self._seen:
            return
        self._seen.add(code)
        if is_library_file(code.co_filename):
            self._note_version(frame)
        elif reads_for_forward(space):
            self._names.update(code.co_names)
            place = "" if space is self._file else space.get("__name__")
            for name in dict.fromkeys(_loaded(code)):
                if name in space:
                    self._note_global(space, name, f"{place}:{name}")

    def _note_global(self, space: dict[str, Any], name: str, path: str) -> None:
        value = space[name]
        if isinstance(value, (type, types.ModuleType)):
            self._enter(value, path)
        elif not (isinstance(value, ReadDict) or _is_librarys(value)):
            stands = self.reach(value, path)
            if stands is not value:
                space[name] = stands
                self._undo.callback(_put_back, space, name, stands, value)

    def _note_version(self, frame: types.FrameType) -> None:
        """Note the version of a library that made a module, or that a file of the user's calls."""
        library = str(frame.f_globals.get("__name__")).partition(".")[0]
        kinds = {type(m).__module__.partition(".")[0] for m in self._modules.values()}
        caller = frame.f_back.f_code.co_filename if frame.f_back else "<"
        version = getattr(sys.modules.get(library), "__version__", None)
        counts = library in kinds or not is_library_file(caller)
        if counts and library not in _NO_VERSION and isinstance(version, str):
            self._note(f"{library}:__version__", version)

    def _note_members(self) -> None:
        """Note what classes and files hold that the code which ran has names for."""
        for path, space in list(self._spaces.items()):
            link = ":" if isinstance(space, types.ModuleType) else "."
            path = space.__name__ if link == ":" else path
            for name, value in self._named(space):
                if not _is_librarys(value):
                    self._hold(value, f"{path}{link}{name}")
        for path, module in self._modules.items():
            for name, value in self._named(type(module)) if path else ():
                asked = callable(value) or f"{path}.{name}" in self._noted
                if not asked:
                    self._hold(value, f"{path}.__class__.{name}")

    def _named(self, space: Any) -> Iterator[tuple[str, Any]]:
        spaces = getattr(space, "__mro__", (space,))
        of_users = [s for s in spaces if not is_of_library(s)]
        held = {name: value for s in reversed(of_users) for name, value in vars(s).items()}
        for name in sorted(self._names & held.keys()):
            value = held[name]
            if isinstance(value, (staticmethod, classmethod)):
                value = value.__func__
            passed = type, types.ModuleType, nn.Module, property, functools.cached_property
            if name[:2] != "__" and not isinstance(value, passed):
                yield name, value


def _is_librarys(value: Any) -> bool:
    """Tell whether a value is a function that a library's version stands for."""
    return isinstance(value, _FUNCTIONS) and is_of_library(value)


def _stands_in_table(module: nn.Module, name: str, value: Any) -> bool:
    """Tell whether something is a part of a module that its own row has."""
    of_torch = name in _OF_MODULES or name in module._parameters or name in module._buffers
    return of_torch or isinstance(value, nn.Module)


def _member(kind: type, name: str) -> Any:
    return next((vars(one)[name] for one in kind.__mro__ if name in vars(one)), None)


def _loaded(code: types.CodeType) -> Iterator[str]:
    """Yield the global names that a function's code loads."""
    for step in dis.get_instructions(code):
        if step.opname == "LOAD_GLOBAL":
            yield str(step.argval)


def _put_back(space: dict[str, Any], name: str, stands: Any, value: Any) -> None:
    if space.get(name) is stands:
        space[name] = value
