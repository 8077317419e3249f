"""What forward really reads, noted as it runs: of objects, of the code that runs, of classes.

Of the functions that run the globals count that their code loads, of classes what that code has
names for. Of libraries the version counts.
"""

from __future__ import annotations

import builtins
import contextlib
import copy
import functools
import importlib
import inspect
import os
import re
import sys
import types
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sized
from typing import Any, TypeAlias

import torch
from torch import nn

from remat_gen.capture.observe.assumed import NOT_SET, is_plain
from remat_gen.capture.observe.reached import CACHED, Note, Reached, is_librarys
from remat_gen.capture.observe.read_code import (
    asks_classes,
    loaded_names,
    member_of,
    members_named,
)
from remat_gen.capture.observe.read_dict import ReadDict, ReadNamespace, is_key
from remat_gen.capture.process.caches import Caches
from remat_gen.capture.process.libraries import (
    acts_for_forward,
    acts_for_user,
    is_for_forward,
    is_library_file,
    is_of_library,
    reads_for_forward,
)
from remat_gen.capture.process.replaced import replaced

_ENVIRONMENT = type(os.environ).__getitem__.__code__
_IDENTIFIER = uuid.uuid4.__code__
_COPIES = {copy.copy.__code__, copy.deepcopy.__code__}
_CALL = nn.Module._call_impl.__code__
_APPLY = torch.autograd.Function.apply.__func__.__code__  # type: ignore[attr-defined]
_MATERIALIZE = torch.autograd.function.FunctionCtx.set_materialize_grads.__code__
_CALLED = frozenset({"forward", "backward", "setup_context"})  # by `apply`: no code names them
_CHILDREN = {  # what asks a module for those inside, one after the other
    getattr(nn.Module, name).__code__
    for name in ("named_children", "named_modules", "_named_members", "state_dict")
}
_ATTENTION = torch.nn.functional.scaled_dot_product_attention
_LAYERS = "torch.nn.modules."
# asked about the process: to ask again changes nothing
_QUESTION = re.compile(r"(is|are|get|has)_|\w+_enabled$")
_HOOKS = frozenset({"register_hook", "register_prehook", "register_post_accumulate_grad_hook"})
_Listener: TypeAlias = Callable[[types.FrameType], None]
_NEW: Any = object()  # code that was not called before
_NO_VERSION = ("torch", "remat_gen", "numpy")  # of the plan's header, of none, of values alone


class Recorder(Reached):
    """Calls `note` with the path and value of each read while `recording` lasts.

    `file` are the globals of the model's file. Afterwards `names` are those in the code that ran,
    `drew` tells of the system's random numbers, `acts_in_backward` of hooks and autograd functions,
    `asks_for_none` of those that want to know which gradients do not come, `calls_itself` of a
    forward that calls the model. `calls` are those of each module, by path.
    """

    def __init__(
        self,
        model: nn.Module,
        file: dict[str, Any],
        note: Note,
        caches: Caches,
        *,
        stand_ins: bool = True,
    ) -> None:
        super().__init__(model, file, note, caches, stand_ins=stand_ins)
        self._listeners: dict[types.CodeType, _Listener | None] = {}
        self._asks_classes = False
        self._questions: dict[str, Callable[[], Any]] = {}  # about the process, by path
        self._asking = {ask.__name__: self._told_of(ask) for ask in (getattr, hasattr)}
        self.names: set[str] = set()
        self.drew = False
        self.acts_in_backward = False
        self.asks_for_none = False
        self.calls_itself = False
        self.calls = Counter[str]()

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Note what is read; everything is put back at the end."""
        with self._telling.undo as undo:
            self._telling.listen(nn.Module)
            for owner, name in ((builtins, "__import__"), (importlib, "import_module")):
                importing = self._importing(getattr(owner, name))
                undo.enter_context(replaced(owner, name, importing))
            undo.callback(sys.setprofile, sys.getprofile())
            sys.setprofile(self._called)
            yield
            sys.setprofile(None)
            self._note_members()
            self._note_forwards()
            self._note_answers()

    def _importing(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Listen to the files that forward imports itself, before it reads them."""

        def imported(*args: Any, **kwargs: Any) -> Any:
            module = plain(*args, **kwargs)
            if isinstance(module, types.ModuleType) and acts_for_user(sys._getframe(1)):
                self._enter(module, f"{module.__name__}:")
            return module

        return imported

    def _told_of(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Note what forward asks classes and files for by a name that its code need not have.

        This stands in the users' own files: among Python's, it would be called by all of torch.
        """

        def ask_and_tell(owner: Any, name: str, *default: Any) -> Any:
            if isinstance(owner, type | types.ModuleType) and acts_for_user(sys._getframe(1)):
                self._note_named(owner, name)
            return plain(owner, name, *default)

        return ask_and_tell  # by its name it is looked behind

    def _note_named(self, owner: type | types.ModuleType, name: str) -> None:
        if is_of_library(owner) or name[:2] == "__":
            return
        if isinstance(owner, types.ModuleType):
            places = [f"{self._place_of(owner.__name__)}:{name}"]
        else:
            known = [path for path, kind in self._classes.items() if kind is owner]
            of = (path for path, held in self._owners() if type(held) is owner)
            known += (f"{path}.__class__".lstrip(".") for path in of)
            places = [f"{path}.{name}" for path in known]
        value = inspect.getattr_static(owner, name, NOT_SET)
        if not (isinstance(value, type | types.ModuleType) or is_librarys(value, name)):
            for place in places:
                self._hold(value, place)

    # -- code that runs --------------------------------------------------------------------------

    def _called(self, frame: types.FrameType, event: str, function: Any) -> None:
        """Hear of each call, of which there are very many."""
        if event == "call":
            listener = self._listeners.get(frame.f_code, _NEW)
            if listener is _NEW:
                listener = self._listeners[frame.f_code] = self._listener_of(frame.f_code)
                self._note_first(frame)
            if listener is not None:
                listener(frame)
        elif event == "c_call":
            self.drew |= function is os.urandom and _draws_for_forward(frame)
            self.acts_in_backward |= getattr(function, "__name__", "") in _HOOKS  # of a node
            if getattr(function, "__self__", None) is torch._C:
                self._note_question(function, frame)
            elif function is _ATTENTION:  # context parallelism puts another in its place
                self._note(f"torch.nn.functional:{function.__name__}", function)

    def _listener_of(self, code: types.CodeType) -> _Listener | None:
        """Return what hears of each call of some code, not only of the first."""
        if code in _CHILDREN:
            return self._note_children
        if _QUESTION.match(code.co_name):
            return self._note_plain_question
        if code is _ENVIRONMENT:
            return self._note_variable
        if code in _COPIES:
            return self._note_copied
        if code is _APPLY:
            return self._note_apply
        if code is _CALL:
            return self._note_call
        if code.co_varnames[:1] == ("cls",) and is_library_file(code.co_filename):
            return self._note_class_property
        return self._note_materialize if code is _MATERIALIZE else None

    def _note_first(self, frame: types.FrameType) -> None:
        """Note what the code of a function that is called for the first time reads."""
        code = frame.f_code
        self.acts_in_backward |= code.co_name in _HOOKS  # of a tensor
        if is_library_file(code.co_filename):
            self._note_version(frame)
            self._note_cache(frame)
        elif reads_for_forward(frame.f_globals):
            self._note_code(code, frame.f_globals)

    def _note_cache(self, frame: types.FrameType) -> None:
        """Note the cache that a library's function fills: it is called so, or by what holds it."""
        code, calls = frame.f_code, frame.f_back
        found = [frame.f_globals.get(code.co_name)]
        if code.co_varnames[:1] == ("self",):
            found.append(member_of(type(frame.f_locals.get("self")), code.co_name))
        if calls is not None:
            found += (calls.f_locals.get(name) for name in calls.f_code.co_freevars)
        for cache in found:
            if isinstance(cache, CACHED) and getattr(cache.__wrapped__, "__code__", None) is code:
                self.caches.functions[id(cache)] = cache

    def _note_apply(self, frame: types.FrameType) -> None:
        """Note an autograd function: torch's own (a checkpoint's) are traced as any."""
        self.acts_in_backward |= is_for_forward(frame.f_locals["cls"].__module__)

    def _note_call(self, frame: types.FrameType) -> None:
        module, model, outer = frame.f_locals["self"], self._modules[""], frame.f_back
        self.calls[self._paths.get(id(module), "")] += 1
        if module is model:
            while outer and not (outer.f_code is _CALL and outer.f_locals["self"] is model):
                outer = outer.f_back
            self.calls_itself |= outer is not None

    def _note_materialize(self, frame: types.FrameType) -> None:
        by = frame.f_back.f_globals.get("__name__", "") if frame.f_back else ""
        self.asks_for_none |= not frame.f_locals["value"] and is_for_forward(by)

    def _note_plain_question(self, frame: types.FrameType) -> None:
        function = frame.f_globals.get(frame.f_code.co_name)
        if getattr(function, "__code__", None) is frame.f_code and (
            _is_plainly_asked(frame) or _is_shared_by_layer(function, frame.f_back)
        ):
            self._note_question(function, frame.f_back)

    def _note_class_property(self, frame: types.FrameType) -> None:
        """Note what a class of torch's computes about the process: `dist.group.WORLD`."""
        kind, name = frame.f_locals["cls"], frame.f_code.co_name
        computed = member_of(type(kind), name)
        asked = isinstance(computed, property) and acts_for_user(frame.f_back)
        if asked and kind.__module__.partition(".")[0] == "torch":
            path = f"{kind.__module__}:{kind.__qualname__}.{name}"
            self._questions[path] = functools.partial(getattr, kind, name)

    def _note_children(self, frame: types.FrameType) -> None:
        """Note which children a module has, in order, where a file of the user's asks for all."""
        asks, module = frame.f_back, frame.f_locals["self"]
        while asks and asks.f_code.co_filename == frame.f_code.co_filename:
            asks = asks.f_back
        if asks and acts_for_user(asks):
            paths = [path for path, m in self._modules.items() if m is module]
            for path in paths:
                self._note(f"{path}._modules".lstrip("."), module._modules)

    def _note_copied(self, frame: types.FrameType) -> None:
        """Note all of an object that a file of the user's copies: the copy tells nobody."""
        value = frame.f_locals["x"]
        path, held = self._paths.get(id(value)), getattr(value, "__dict__", None)
        has_rows = isinstance(value, nn.Module | type | types.ModuleType)
        if path and type(held) is dict and not has_rows and acts_for_user(frame):
            for name, item in held.items():
                self._hold(item, f"{path}.{name}")

    def _note_variable(self, frame: types.FrameType) -> None:
        """Note a variable of the environment that a file of the user's asks for."""
        key = frame.f_locals["key"]
        if is_key(key) and acts_for_user(frame):
            self._note(f"os:environ[{key}]", os.environ.get(key, NOT_SET))

    def _note_question(self, function: Any, asks: types.FrameType | None) -> None:
        """Note a function of torch that a file of the user's asks about the process.

        Also one that a layer of torch's asks about other processes: to share statistics with them.
        """
        counts = _is_shared_by_layer(function, asks) or acts_for_user(asks)
        if _QUESTION.match(function.__name__) and counts:
            self._questions[f"{function.__module__}:{function.__name__}()"] = function

    def _enter_cached(self, cache: Any, path: str) -> None:
        """Note what a function with a cache reads, though it may not run."""
        super()._enter_cached(cache, path)
        function = cache.__wrapped__
        if isinstance(function, types.FunctionType) and not is_of_library(function):
            self._note_code(function.__code__, function.__globals__)

    def _note_code(self, code: types.CodeType, space: dict[str, Any]) -> None:
        self._asks_classes |= asks_classes(code)
        self.names.update(code.co_names)
        place = "" if space is self._file else space.get("__name__")
        for name in dict.fromkeys(loaded_names(code)):
            asks = self._asking.get(name)
            if name in space and space[name] is not asks:
                self._note_global(space, name, f"{place}:{name}")
            elif asks and name not in space and not is_library_file(code.co_filename):
                space[name] = asks
                self._telling.undo.callback(space.pop, name, None)
        for path, kind in list(self._classes.items()):
            self._listen_to_held(kind, path, {*code.co_names})

    def _note_global(self, space: dict[str, Any], name: str, path: str) -> None:
        value = space[name]
        if isinstance(value, (type, types.ModuleType)):
            self._enter(value, path)
            if isinstance(value, type) and is_of_library(value) and value.__name__ != name:
                self._note(path, value)  # chosen among others
        elif is_librarys(value, name):
            return
        elif not isinstance(value, (ReadDict, ReadNamespace)):
            stands = self.reach(value, path)
            if stands is not value:
                space[name] = stands
                self._telling.undo.callback(_put_back, space, name, stands, value)

    def _enter_class(self, kind: type, path: str) -> None:
        """Note a class, and listen to what it holds that the code so far has names for."""
        if path not in self._classes:
            super()._enter_class(kind, path)
            self._listen_to_held(kind, path, self.names)

    def _listen_to_held(self, kind: type, path: str, names: set[str]) -> None:
        """Listen to objects and classes in a class before code asks them for what they hold."""
        for _, name, value, hidden in members_named(kind, names):
            passed = is_plain(value) or callable(value) or isinstance(value, torch.Tensor | Sized)
            if isinstance(value, type):
                self._enter(value, f"{path}.{name}")
            elif not (hidden or passed):
                self._hold(value, f"{path}.{name}")

    def _note_version(self, frame: types.FrameType) -> None:
        """Note the version of a library that made a module, or that a file of the user's calls."""
        library = str(frame.f_globals.get("__name__")).partition(".")[0]
        kinds = {type(m).__module__.partition(".")[0] for m in self._modules.values()}
        caller = frame.f_back.f_code.co_filename if frame.f_back else "<"
        version = getattr(sys.modules.get(library), "__version__", None)
        counts = library in kinds or not is_library_file(caller)
        passed = library in _NO_VERSION or library in sys.stdlib_module_names
        if counts and not passed and isinstance(version, str):
            self._note(f"{library}:__version__", version)

    # -- what is there at the end ----------------------------------------------------------------

    def _note_members(self) -> None:
        """Note what classes hold that the code which ran has names for."""
        noted = 0
        while noted < len(self._classes):  # what one holds may be others
            path, kind = [*self._classes.items()][noted]
            noted += 1
            for of in (kind, type(kind)):
                called = _CALLED if issubclass(of, torch.autograd.Function) else frozenset()
                for _, name, value, hidden in members_named(of, self.names | called):
                    if not (hidden or is_librarys(value, name)):
                        self._hold(value, f"{path}.{name}")
        for path, owner in self._owners() if self._asks_classes else ():
            for of, name, value, hidden in members_named(type(owner), self.names):
                asked = callable(value) or f"{path}.{name}".lstrip(".") in self._noted
                if hidden and "super" in self.names and "<locals>" not in of.__qualname__:
                    self._hold(value, f"{self._place_of(of.__module__)}:{of.__qualname__}.{name}")
                elif not (hidden or asked):
                    self._hold(value, f"{path}.__class__.{name}".lstrip("."))

    def _owners(self) -> list[tuple[str, Any]]:
        reached = [value for value, _ in self._reached.values() if id(value) in self._paths]
        return [*self._modules.items(), *((self._paths[id(value)], value) for value in reached)]

    def _note_forwards(self) -> None:
        """Note what each forward has of where it was made: it is called past what tells."""
        for path, owner in self._owners():
            if isinstance(owner, nn.Module) and not is_of_library(owner.forward):
                self._enter_function(owner.forward, f"{path}.forward".lstrip("."), plain=False)

    def _note_answers(self) -> None:
        """Note what the process answers around forward, which itself may change that within."""
        for path, question in self._questions.items():
            try:
                answer = question()
            except TypeError:  # it wants to know of what
                continue
            except (RuntimeError, ValueError):  # there is no group of processes, say
                answer = NOT_SET
            if is_plain(answer):
                self._note(path, answer)


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """Hear of no calls that torch's kernels for fakes make: hundreds for each operation.

    From Python 3.12 on each change of who hears instruments all code anew.
    """
    hears = sys.getprofile() if sys.version_info < (3, 12) else None
    if hears is None:
        yield
        return
    sys.setprofile(None)
    try:
        yield
    finally:
        sys.setprofile(hears)


def _is_shared_by_layer(function: Any, asks: types.FrameType | None) -> bool:
    """Tell whether a layer of torch's asks for the processes that share something: of any group."""
    by = str(asks.f_globals.get("__name__")) if asks else ""
    return function.__module__.startswith("torch.distributed") and by.startswith(_LAYERS)


def _is_plainly_asked(frame: types.FrameType) -> bool:
    """Tell whether a function of torch's is called as without arguments."""
    there = frame.f_globals.get(frame.f_code.co_name)
    is_torchs = str(frame.f_globals.get("__name__")).partition(".")[0] == "torch"
    if not (is_torchs and callable(there)) or getattr(there, "__code__", None) is not frame.f_code:
        return False
    given = frame.f_locals  # by identity: `==` is traced
    return all(given.get(name) is default for name, default in _defaults(there))


@functools.cache
def _defaults(function: Callable[..., Any]) -> tuple[tuple[str, Any], ...]:
    """Return the parameters of a function of torch's, each with its default."""
    parameters = inspect.signature(function).parameters.values()
    return tuple((p.name, p.default) for p in parameters)


def _draws_for_forward(frame: types.FrameType) -> bool:
    """Tell whether the system's random numbers are drawn for what forward does.

    A library draws names for what it keeps (einx for axes): identifiers, which decide nothing.
    """
    names = frame.f_code is _IDENTIFIER and not acts_for_user(frame)
    return acts_for_forward(frame) and not names


def _put_back(space: dict[str, Any], name: str, stands: Any, value: Any) -> None:
    if space.get(name) is stands:
        space[name] = value
