"""What of a model a plan leaves out, though its numbers stay: eager's figures are without it, too.

What forward itself does about what autograd saves, a plan decides anew. Hooks that only bring the
same values back are left out of it; any others would change the gradients. A fused kernel that a
trace takes apart is not run either.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import CheckpointFunction

from remat_gen.capture.process.replaced import replaced
from remat_gen.ir.errors import TraceError
from remat_gen.ir.graph import Graph

_CHECKPOINT = "torch.utils.checkpoint"
_ON_HOST = "save_on_cpu"
_HOOKS = "saved_tensors_hooks"
_TORCH = str(Path(torch.__file__).parent)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What is left out, and the line or the module that uses it.

    As in `LeftOut("torch.utils.checkpoint", "gpt.py:31")`.
    """

    what: str
    where: str

    def __str__(self) -> str:
        return f"{self.what} ({self.where})"


@contextlib.contextmanager
def watched_saving() -> Iterator[dict[str, LeftOut]]:
    """Yield a dict that fills with what a forward uses while it runs: each once, its first line."""
    found: dict[str, LeftOut] = {}
    enter = saved_tensors_hooks.__enter__
    again: Callable[..., Any] = CheckpointFunction.forward

    def watched_enter(hooks: saved_tensors_hooks) -> None:
        found.setdefault(name := _name_of(hooks), LeftOut(name, _caller()))
        enter(hooks)

    def watched_forward(*args: Any) -> Any:  # of use_reentrant=True
        found.setdefault(_CHECKPOINT, LeftOut(_CHECKPOINT, _caller()))
        return again(*args)

    with (
        replaced(saved_tensors_hooks, "__enter__", watched_enter),
        replaced(CheckpointFunction, "forward", staticmethod(watched_forward)),
    ):
        yield found


def refuse_hooked_saving(found: Iterable[LeftOut]) -> None:
    """Refuse hooks that may bring other values back than were saved.

    Raises:
        TraceError: forward puts such hooks on what autograd saves.
    """
    for use in found:
        if use.what == _HOOKS:
            raise TraceError(
                f"{use.where}: forward puts hooks on what autograd saves ({_HOOKS}), which a "
                "planned forward would not call: leave them out"
            )


def backward_of_rnns(model: nn.Module, graph: Graph) -> tuple[LeftOut, ...]:
    """Return torch's backward of RNNs, where that of the graph runs forward again."""
    if any(o.target.startswith("remat.rnn") for o in graph.operations):
        for name, module in model.named_modules():
            if isinstance(module, nn.RNNBase | nn.RNNCellBase):
                kind = f"torch's backward of nn.{type(module).__name__}"
                return (LeftOut(kind, name or type(model).__name__),)
    return ()


def _name_of(hooks: saved_tensors_hooks) -> str:
    if type(hooks).__module__ == _CHECKPOINT:
        return _CHECKPOINT
    return _ON_HOST if isinstance(hooks, save_on_cpu) else _HOOKS


def _caller() -> str:
    """Return the innermost line that is not torch's."""
    frame = sys._getframe(2)
    while frame.f_back and frame.f_code.co_filename.startswith((_TORCH, __file__)):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
