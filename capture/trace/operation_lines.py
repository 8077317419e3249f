"""Tell a trace that Dynamo does not make the line, the module and the variable of each operation.

Dynamo writes them onto the nodes of its graph, and AOTAutograd hands them on, to backward's nodes
too. Where AOTAutograd runs the module itself, the same is put where it looks for them, at each call
of a torch function.
"""

from __future__ import annotations

import contextlib
import linecache
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.fx import traceback as fx_traceback
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.overrides import TorchFunctionMode

from remat_gen.capture.fx import metadata
from remat_gen.capture.fx.storages import is_getitem
from remat_gen.capture.process.replaced import replaced
from remat_gen.capture.refuse.places import NOBODYS
from remat_gen.capture.trace.assigned_names import assigned


def run_told(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a model; put the user's line, module and variable of each call into the trace's nodes."""
    paths = {id(module): path for path, module in model.named_modules()}
    entered: dict[str, tuple[str, type]] = {}

    def enter(module: nn.Module, _: object) -> None:
        if id(module) in paths:
            path = paths[id(module)]
            entered[f"{len(entered)} {path}"] = path, type(module)

    def leave(module: nn.Module, *_: object) -> None:
        if id(module) in paths:
            entered.popitem()

    hooks = (
        register_module_forward_pre_hook(enter),
        register_module_forward_hook(leave, always_call=True),
    )
    try:
        with _Calls(entered):
            return model(*args, **kwargs)
    finally:
        for hook in hooks:
            hook.remove()


@contextlib.contextmanager
def backward_told(within: Callable[[], AbstractContextManager[object]]) -> Iterator[None]:
    """Tell the lines of functions of the user's that run in backward, too, and run it `within`."""
    run = partial(_run_backward, torch.autograd.graph._engine_run_backward, within)
    with replaced(torch.autograd, "_engine_run_backward", run):
        yield


def _run_backward(
    run: Callable[..., Any],
    within: Callable[[], AbstractContextManager[object]],
    *args: Any,
    **kwargs: Any,
) -> Any:
    with _Calls({}), within():  # `torch.autograd.grad` leaves the mode that it is called in
        return run(*args, **kwargs)


_OUTERMOST = frozenset({run_told.__code__, _run_backward.__code__})


def name_items(joint: torch.fx.GraphModule) -> None:
    """Give the items of a joint graph the variables that the user unpacks them into."""
    for node in joint.graph.nodes:
        calls = node.args[0].meta.get("from_node") if is_getitem(node) else None
        if calls and isinstance(calls[-1], _Call) and node.args[1] < len(calls[-1].items):
            node.meta[metadata.ITEM] = calls[-1].items[node.args[1]]


@dataclass(slots=True)
class _Call:
    """A call; `name` is where `metadata.origin` looks for that of Dynamo's node.

    It is the variable that the result is assigned to, or else the function, and a number.
    """

    function: str
    number: int
    variable: str = ""
    items: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return a name that no other call has."""
        return f"{self.variable or self.function}_{self.number}"


class _Calls(TorchFunctionMode):
    """Notes at each call where it stands, for the nodes that are made while it lasts."""

    def __init__(self, modules: dict[str, tuple[str, type]]) -> None:
        super().__init__()
        self._modules = modules
        self._inside: FrameType | None = None  # torch's, of the user's last call that led there
        self._call = _Call("", 0)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inside, frames = _users(sys._getframe(1))
        told: dict[str, Any] = {"stack_trace": _traceback(frames)} if frames else {}
        if self._modules:  # else it is in backward
            function = getattr(func, "__name__", "").strip("_")
            told["nn_module_stack"] = dict(self._modules)
            told["source_fn_stack"] = [(function, func)]
            told["from_node"] = [self._called(inside, frames, function)]
        meta = fx_traceback.current_meta
        before = {key: meta[key] for key in told if key in meta}
        meta.update(told)
        try:
            return func(*args, **(kwargs or {}))
        finally:
            for key in told:
                meta.pop(key, None)
            meta.update(before)

    def _called(self, inside: FrameType | None, frames: list[FrameType], function: str) -> _Call:
        """Return a call; of several inside of one of the user's, only the last has the variable."""
        if inside is not None and inside is self._inside:
            self._call.variable = ""
        variable, *more = assigned(frames) or ("",)
        items = (variable, *more) if more else ()
        self._inside = inside
        self._call = _Call(function, self._call.number + 1, "" if items else variable, items)
        return self._call


def _users(frame: FrameType | None) -> tuple[FrameType | None, list[FrameType]]:
    """Return the frames that are the user's or of libraries, and torch's that the first has called.

    The innermost is the first; what runs forward or backward ends them.
    """
    inside: FrameType | None = None
    found: list[FrameType] = []
    while frame is not None and frame.f_code not in _OUTERMOST:
        if not frame.f_code.co_filename.startswith(NOBODYS):
            found.append(frame)
        elif not found:
            inside = frame
        frame = frame.f_back
    return inside, found


def _traceback(frames: list[FrameType]) -> str:
    """Write frames as a traceback does, the outermost first."""
    lines = (
        f'  File "{file}", line {f.f_lineno}, in {f.f_code.co_name}\n'
        f"    {linecache.getline(file, f.f_lineno).strip()}\n"
        for f in reversed(frames)
        for file in (f.f_code.co_filename,)
    )
    return "".join(lines)
