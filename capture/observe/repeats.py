"""Run a forward twice from one state: what it reads, and whether it does the same again.

What Python advances from step to step (a counter, an iterator, a generator of its own, the clock)
is a constant to a plan. No list of such things is whole; that the second run differs from the first
tells of all of them.
"""

from __future__ import annotations

import contextlib
import linecache
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.weak import WeakIdKeyDictionary

from remat_gen.capture.observe.as_good import as_good
from remat_gen.capture.observe.assumed import NOT_SET, File, describe, fetch, is_plain
from remat_gen.capture.observe.outputs import name_places, places_of
from remat_gen.capture.observe.recorder import Recorder, unheard
from remat_gen.capture.observe.states import State, words_of
from remat_gen.capture.process.caches import Caches
from remat_gen.capture.process.libraries import is_users
from remat_gen.capture.refuse.kept_errors import INSTEAD, ONCE, DrawError, KeptError
from remat_gen.capture.refuse.library_hooks import INSTALLED
from remat_gen.ir.errors import TraceError

R = TypeVar("R")
_CONSTANT = 4096  # numbers: larger ones are no constants of a trace
_WRITTEN = 32  # numbers of an attribute that are written out; of a larger one they are read there
_LAYOUT = "shape dtype layout device.type requires_grad".split()  # of a tensor


@dataclass(frozen=True, slots=True)
class Reads:
    """The paths that a forward read (see `assumed`); `file` are the globals of its file.

    Of tensors that are `attributes` the paths are those of their layout, not of their numbers.
    `changed` has how some were described, and how else they may be: before the first run and behind
    it, where forward itself makes another of them, or in another file (see `as_good`); it does the
    same with both. `caches` are those that a run may fill.
    `in_backward` where hooks and autograd functions run there, `unmaterialised` where some of these
    ask for gradients that do not come as None. `asks_identity` where forward does something else
    if two of its inputs are the same tensor, `asks_containers` where it may with other kinds of
    lists and dicts, or their keys in another order; else `keys` are what it asks each argument for,
    those by position and those by name. `calls` is how often each module was called, by path.
    """

    file: dict[str, Any] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    changed: dict[str, tuple[str, str]] = field(default_factory=dict)
    attributes: tuple[str, ...] = ()
    caches: Caches = field(default_factory=Caches)
    in_backward: bool = False
    unmaterialised: bool = False
    asks_identity: bool = False
    asks_containers: bool = True
    keys: tuple[tuple[tuple[Any, ...], ...], dict[str, tuple[Any, ...]]] = ((), {})
    calls: Mapping[str, int] = field(default_factory=dict)

    def with_paths(self, names: tuple[str, ...]) -> Reads:
        """Return these reads, and more that decided what was traced: buffers by their values."""
        return replace(self, paths=tuple(dict.fromkeys((*self.paths, *names))))

    def without(self, left: tuple[str, ...], model: nn.Module) -> Reads:
        """Return the reads but for those of what forward keeps, and of what has it."""
        inside = tuple(f"{path}{mark}" for path in left for mark in ".[")
        within = [(path, at.start()) for path in left for at in re.finditer(r"[\[{]", path)]
        gone = {*left, *(path[:end] for path, end in within)}
        owners = {re.split(r"[\[{]", path)[0] for path, _ in within}
        first = {id(fetch(model, path, File(self.file))): path for path in owners}

        def is_kept(path: str) -> bool:
            owner, mark, key = path.partition("[")  # it may stand on several modules
            owner = first.get(id(fetch(model, owner, File(self.file))), owner) if first else owner
            return f"{owner}{mark}{key}" in gone or f"{owner}{mark}{key}".startswith(inside)

        lists = ((p, fetch(model, p, File(self.file))) for p in self.paths if is_kept(p))
        items = (f"{path}[{i}]" for path, held in lists for i in _plain_items(held))
        paths = tuple(path for path in (*self.paths, *items) if not is_kept(path))
        changed = {path: both for path, both in self.changed.items() if path in paths}
        return replace(self, paths=paths, changed=changed)

    def by_layout(self, tensors: Collection[str]) -> Reads:
        """Return these reads, of some tensors how they are laid out in place of their numbers."""
        paths = (
            [f"{path}.{part}" for part in _LAYOUT] if path in tensors else [path]
            for path in self.paths
        )
        return replace(self, paths=tuple(chain.from_iterable(paths)), attributes=tuple(tensors))

    def tensors(self, model: nn.Module) -> list[torch.Tensor]:
        """Return the dense tensors, beside buffers, that were read as attributes, or in them."""
        paths = set(self.paths) - dict(model.named_buffers()).keys()
        found = (fetch(model, path, File(self.file)) for path in paths)
        dense = (t for t in found if isinstance(t, torch.Tensor) and t.layout is torch.strided)
        return list(dense)

    def large_constants(self, model: nn.Module) -> dict[str, torch.Tensor]:
        """Return the tensors that were read as attributes, by path, and are too large to write out.

        Those that require grad are none.
        """
        paths = (path for path in self.paths if set(":[").isdisjoint(path))
        found = {path: fetch(model, path, File(self.file)) for path in paths}
        return {path: value for path, value in found.items() if _is_large(value)}


def _is_large(value: Any) -> bool:
    if not _is_constant(value) or value.requires_grad or value.layout is not torch.strided:
        return False
    return bool(value.numel() > _WRITTEN)


class _Unlike(TraceError):
    """The second run did something else, and nothing that forward reads tells why."""


def read_twice(
    model: nn.Module,
    file: dict[str, Any],
    run: Callable[[], R],
    caches: Caches,
    as_one: Callable[[], R] | None = None,
    in_others: Callable[[], R] | None = None,
) -> tuple[R, Reads]:
    """Run a step's forward twice; return what the second run did, and what forward reads.

    `caches` are filled with those that are found. `as_one` runs it on inputs that are the same
    tensor where they can be, `in_others` on those in other containers.
    Where stand-ins for dicts may have led the first run elsewhere, it is done without them.

    Raises:
        TraceError: the second run did something else, or left something else behind.
    """
    try:
        return _read_twice(model, file, run, caches, as_one, in_others, stand_ins=True)
    except _Unlike:
        pass
    except TraceError:
        raise
    except Exception:  # the user's own, then it comes again
        pass
    return _read_twice(model, file, run, caches, as_one, in_others, stand_ins=False)


def _read_twice(
    model: nn.Module,
    file: dict[str, Any],
    run: Callable[[], R],
    caches: Caches,
    as_one: Callable[[], R] | None,
    in_others: Callable[[], R] | None,
    *,
    stand_ins: bool,
) -> tuple[R, Reads]:
    before: dict[str, State] = {}

    first = _Operations()

    def note(path: str, value: Any) -> None:
        with _disable_current_modes():
            before.setdefault(path, State.of(value))
        tensors = filter(_is_constant, pytree.tree_leaves(value))
        first.constants |= {id(t): (t, path) for t in tensors if not first.has_made(t)}

    recorder = Recorder(model, file, note, caches, stand_ins=stand_ins)
    with caches.emptied():
        with recorder.recording(), first:
            _step(run, recorder)
        settled = _now(model, file, before)
    again = _Operations(first.found, first.constants)
    with caches.emptied():
        with again:
            result = _step(run, recorder)
        left = _now(model, file, before)
    _refuse_kept(before, settled)
    _refuse_advance(settled, left)
    _refuse_heard(recorder)
    if again.differs:
        _refuse_advance(before, settled)
        raise _Unlike(
            "forward does not repeat itself: run again from the same state on the same inputs, it "
            f"does something else{again.place}. A plan would do what the first run does in each "
            "step: pass in what changes (a time, random numbers of Python or NumPy) as an argument"
        )
    reads = _reads(file, before, settled)

    def differs(other: Callable[[], R], *, places: bool = False) -> bool:
        return _differs(other, recorder, again, result, places=places)

    steady = [path for path in reads.paths if path not in reads.changed]
    others = as_good(model, steady, partial(differs, run, places=True))
    return result, replace(
        reads,
        changed=reads.changed | {p: (before[p].words, describe(o)) for p, o in others.items()},
        caches=caches,
        in_backward=recorder.acts_in_backward,
        unmaterialised=recorder.asks_for_none,
        calls=recorder.calls,
        asks_identity=as_one is not None and differs(as_one),
        asks_containers=in_others is None or differs(in_others, places=True),
    )


def _refuse_heard(recorder: Recorder) -> None:
    """Refuse what a first run was heard to do that no planned step does."""
    if recorder.drew:
        raise DrawError
    if recorder.calls_itself:
        raise TraceError(
            "forward calls the model, `self(…)`, for which eager runs hooks on the model once more "
            "and a planned step would not: call self.forward(…)"
        )


def _differs(
    run: Callable[[], R], recorder: Recorder, expected: _Operations, result: R, *, places: bool
) -> bool:
    """Tell whether a run does or returns something else than expected, or raises.

    With `places` also whether it does so with other tensors, which may be laid out alike.
    """
    other = _Operations(expected.found, expected.constants)
    try:
        with recorder.caches.emptied(), other:
            found = _step(run, recorder)
    except Exception:  # the user's own
        return True
    same = not other.differs and _structure(found) == _structure(result)
    if same and places:
        same = other.places == expected.places and _places(found) == _places(result)
    return not same


def _structure(result: object) -> pytree.TreeSpec:
    return pytree.tree_structure(getattr(result, "value", None))


def _places(result: object) -> list[object]:
    """Return where tensors in a result were made, and what else is in it."""
    value = getattr(result, "value", None)
    others = (x for x in pytree.tree_leaves(value) if not isinstance(x, torch.Tensor))
    return [*places_of(value), *map(repr, others)]


def _step(run: Callable[[], R], recorder: Recorder) -> R:
    """Run forward; backward, too, where code of the user's may run in it."""
    result = run()
    if recorder.acts_in_backward:
        value = pytree.tree_leaves(getattr(result, "value", None))
        leaves = [t for t in value if isinstance(t, torch.Tensor) and t.requires_grad]
        modes = [t.fake_mode for t in leaves if isinstance(t, FakeTensor)]
        with contextlib.suppress(Exception), modes[0] if modes else contextlib.nullcontext():
            torch.autograd.backward(leaves, [torch.ones_like(t) for t in leaves])
    return result


def _reads(file: dict[str, Any], before: dict[str, State], settled: dict[str, State]) -> Reads:
    """Return what was read; the planned forward is another one, and has its own defaults.

    Nor does it put a library's hooks on submodules, which has a mark of its own.
    """
    left = (path.startswith("forward.") or path.endswith(INSTALLED) for path in before)
    paths = tuple(path for path, is_left in zip(before, left, strict=True) if not is_left)
    words = {path: (before[path].words, settled[path].words) for path in paths}
    return Reads(file, paths, {path: both for path, both in words.items() if both[0] != both[1]})


def _now(model: nn.Module, file: dict[str, Any], paths: Iterable[str]) -> dict[str, State]:
    """Return the states of what stands at paths now."""
    return {path: State.of(fetch(model, path, File(file))) for path in paths}


def _refuse_kept(before: dict[str, State], after: dict[str, State]) -> None:
    kept = [path for path, state in after.items() if not state.fakes <= before[path].fakes]
    if kept:
        name = _name(max(kept, key=len))
        instead = (
            "let the parameter be None by default, and make its value in the function"
            if re.search(r"\.__(kw)?defaults__\b", name)
            else "make it a buffer, or return it; where only the first step makes it, run the "
            "model once in build_model(), under torch.no_grad()"
        )
        kept_there = f"forward keeps a tensor in {name}, which a planned forward would not do"
        raise KeptError(f"{kept_there}: {instead}", name)


def _refuse_advance(before: dict[str, State], after: dict[str, State]) -> None:
    changed = [path for path, state in after.items() if state != before[path]]
    if not changed:
        return
    path = max(changed, key=lambda p: (before[p].words != after[p].words, len(p)))
    old, new = before[path].words, after[path].words
    shown = f" (from {old} to {new})" if old != new else ""
    made = old in (repr(None), repr(NOT_SET)) and new.endswith(" object")
    instead = ONCE if made else INSTEAD
    raise KeptError(
        f"forward changes {_name(path)}{shown}, which a planned forward would not do: {instead}",
        path,
    )


def _name(path: str) -> str:
    """Return what the user writes for a path."""
    return path.lstrip(":") if ":" in path else f"self.{path}"


def _is_constant(leaf: object) -> bool:
    """Tell whether something that was read is a tensor whose numbers a trace has."""
    return isinstance(leaf, torch.Tensor) and not isinstance(leaf, FakeTensor | nn.Parameter)


class _Operations(TorchDispatchMode):
    """Notes the operations of a run with their numbers; finds the first that is not as expected."""

    supports_higher_order_operators = True

    def __init__(
        self,
        expected: list[object] | None = None,
        constants: Mapping[int, tuple[torch.Tensor, str]] = MappingProxyType({}),
    ) -> None:
        TorchDispatchMode.__init__(self)
        self.found: list[object] = []
        self.places: list[object] = []  # of the tensors that operations read
        self.constants = {**constants}  # read, and views of them: by identity, with their paths
        self._made = WeakIdKeyDictionary()
        self.place = ""  # of the first other one
        self._expected = expected

    @property
    def differs(self) -> bool:
        """Tell whether the operations are not those expected."""
        return bool(self.place) or len(self.found) != len(self._expected or ())

    def has_made(self, tensor: torch.Tensor) -> bool:
        """Tell whether an operation has made a tensor that forward then reads where it kept it."""
        return tensor.grad_fn is not None or tensor in self._made

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note an operation, and run it; what fakes ask each other for depends on their caches."""
        if getattr(func, "namespace", "") in ("prim", "profiler"):
            return func(*args, **(kwargs or {}))
        if getattr(func, "namespace", "") == "c10d":
            raise TraceError(
                f"{_users_line() or 'forward'}: a collective that writes into its argument is in "
                "no plan: use those of torch.distributed._functional_collectives, or let the model "
                "around planned units call it (--units)"
            )
        with unheard() if _is_torchs(func, types) else contextlib.nullcontext():
            return self._noted(func, args, kwargs or {})

    def _noted(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        self.places += places_of(leaves)
        self.found.append((str(func), *(self._said(leaf, func) for leaf in leaves)))
        if self._expected is not None and not self.place:
            at = len(self.found) - 1
            if self._expected[at : at + 1] != self.found[at:]:
                line = _users_line()
                self.place = f", first in {line}" if line else ", inside of a library"
        constants = any(id(leaf) in self.constants for leaf in leaves)
        shared = [*self._shared(func, args, kwargs)] if constants else []
        for path in (path for path, is_write in shared if is_write):
            where, _, _ = (_users_line() or "forward").partition(": ")
            raise TraceError(
                f"{where}: forward writes into {_name(path)}, a tensor that is no buffer, which a "
                "planned forward would not do: register it as a buffer"
            )
        result = func(*args, **kwargs)
        made = pytree.tree_leaves(result)
        self._made.update((t, None) for t in filter(_is_constant, made))
        name_places({(len(self.found), i): tensor for i, tensor in enumerate(made)})
        for path, _ in shared:
            views = [t for t in made if isinstance(t, torch.Tensor)]
            self.constants |= {id(view): (view, path) for view in views}
        return result

    def _said(self, leaf: Any, func: Any) -> object:
        """Return what of an argument must be the same again: numbers, and those of constants."""
        if not isinstance(leaf, torch.Tensor):
            same = type(leaf) in (int, float) and leaf == leaf  # 1 and 1.0 are one number
            return leaf if same else repr(leaf)
        among_fakes = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
        known = among_fakes or id(leaf) in self.constants or "lift_fresh" in str(func)
        constant = known and _is_constant(leaf)  # a view of one is fake, among fakes
        if not constant or leaf.is_meta or leaf.numel() > _CONSTANT:
            return leaf.dtype, *leaf.shape
        with _disable_current_modes():
            return words_of(leaf)

    def _shared(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[tuple[str, bool]]:
        """Yield the constants whose memory a result has, and whether the call writes into it."""
        arguments = func._schema.arguments
        given = dict(zip((a.name for a in arguments), args, strict=False)) | kwargs
        for argument in (a for a in arguments if a.alias_info):
            for leaf in pytree.tree_leaves(given.get(argument.name)):
                if id(leaf) in self.constants:
                    yield self.constants[id(leaf)][1], argument.alias_info.is_write


def _is_torchs(func: Any, types: Collection[type]) -> bool:
    """Tell whether an operator runs no code but torch's."""
    return getattr(func, "namespace", "") == "aten" and set(types) <= {FakeTensor}


def _users_line() -> str:
    """Return the innermost line of the user's on the stack: `net.py:7: x += 1`, or ""."""
    frame: Any = sys._getframe(2)
    while frame and not is_users(frame):
        frame = frame.f_back
    if frame is None:
        return ""
    file, line = frame.f_code.co_filename, frame.f_lineno
    return f"{Path(file).name}:{line}: {linecache.getline(file, line).strip()}"


def _plain_items(held: Any) -> list[int]:
    """Return which items of a list are plain values: those that forward does not write are read."""
    return [i for i, item in enumerate(held) if is_plain(item)] if type(held) is list else []
