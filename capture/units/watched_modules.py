"""What the modules of a model do in forward: how they are called, and what they keep for backward.

Nothing is kept in such a run: what autograd would save is counted and let go.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree

from remat_gen.capture.process.operands import storage_of
from remat_gen.capture.units.unit_kinds import layout_of_call


@dataclass(slots=True)
class _Frame:
    path: str
    given: set[int | None]
    kept: dict[int, tuple[StorageWeakRef, int]] = field(default_factory=dict)


@dataclass(slots=True)
class Watched:
    """What hooks note of each call of a module, by its path, of the model itself as "".

    `layouts` are those of the arguments of each call in training, `kept_bytes` what the calls keep
    for backward beside parameters, what came in and what they returned: what units could let go of.
    `within` has the modules that called a module, directly or not.
    """

    model: nn.Module
    stack: list[_Frame] = field(default_factory=list)
    layouts: dict[str, list[str]] = field(default_factory=dict)
    kept_bytes: dict[str, int] = field(default_factory=dict)
    within: dict[str, set[str]] = field(default_factory=dict)

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Watch what runs inside; forward alone, since nothing is left for backward."""
        with contextlib.ExitStack() as stack:
            for path, module in self.model.named_modules():
                if isinstance(module, torch.jit.ScriptModule):
                    continue
                begin, end = self._begin(path), self._end
                hook = module.register_forward_pre_hook(begin, with_kwargs=True)
                stack.callback(hook.remove)
                hook = module.register_forward_hook(end, with_kwargs=True, always_call=True)
                stack.callback(hook.remove)
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(self._keep, _gone))
            yield

    def _begin(self, path: str) -> Any:
        def begin(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if module.training and torch.is_grad_enabled():
                self.layouts.setdefault(path, []).append(layout_of_call(args, kwargs))
                self.within.setdefault(path, set()).update(frame.path for frame in self.stack)
            self.stack.append(_Frame(path, _storages((args, kwargs))))

        return begin

    def _end(self, _module: nn.Module, _args: object, _kwargs: object, returned: object) -> None:
        frame = self.stack.pop()
        outside = frame.given | _storages(returned)
        inside = sum(nbytes for key, (_, nbytes) in frame.kept.items() if key not in outside)
        self.kept_bytes[frame.path] = self.kept_bytes.get(frame.path, 0) + inside

    def _keep(self, tensor: torch.Tensor) -> None:
        if tensor.layout is not torch.strided or isinstance(tensor, nn.Parameter):
            return
        if tensor._base is not None and isinstance(tensor._base, nn.Parameter):
            return
        storage = tensor.untyped_storage()
        for frame in self.stack:
            frame.kept[storage._cdata] = StorageWeakRef(storage), storage.nbytes()


def _gone(_: None) -> torch.Tensor:
    raise RuntimeError("forward runs a backward of its own, for which nothing was kept")


def _storages(value: object) -> set[int | None]:
    return set(map(storage_of, pytree.tree_leaves(value)))
