"""What of a model a plan leaves out, though its numbers stay: eager's figures are without it, too.

What forward itself does about what autograd saves, a plan decides anew. Hooks that only bring the
same values back are left out of it; any others would change the gradients. A fused kernel that a
trace takes apart is not run either, nor the formulas that TorchScript has for gradients.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

from remat_gen.capture.process.replaced import replaced
from remat_gen.capture.refuse.changing_checkpoints import watched_checkpoints
from remat_gen.capture.refuse.places import Place, present_place
from remat_gen.ir.errors import TraceError
from remat_gen.ir.graph import Graph

_CHECKPOINT = "torch.utils.checkpoint"
_ON_HOST = "save_on_cpu"
_SCRIPTED = "torch.jit.script's own gradient"  # another in last bits, from the second call on
_HOOKS = "saved_tensors_hooks"
_OTHER_VALUES = (
    f"forward puts hooks on what autograd saves ({_HOOKS}), which a planned forward would not "
    "call: leave them out"
)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What is left out, and the line or the module that uses it.

    As in `LeftOut("torch.utils.checkpoint", "gpt.py:31")`.
    """

    what: str
    where: str

    def __str__(self) -> str:
        return f"{self.what} ({self.where})"


@dataclass(slots=True)
class Saving:
    """What a forward does itself about what autograd saves: each once, with its first line.

    `refused` says why no plan has the same numbers, "" where it has.
    """

    used: dict[str, LeftOut] = field(default_factory=dict)
    refused: str = ""

    def note(self, what: str) -> Callable[[str], None]:
        """Note that the line which runs uses something; return what takes why no plan has that."""
        place = present_place()
        self.used.setdefault(what, LeftOut(what, place.inside or place.own))
        return partial(self._refuse, place)

    def _refuse(self, place: Place, reason: str) -> None:
        self.refused = self.refused or place.told(reason)

    def refuse(self) -> None:
        """Refuse it where a plan would have other numbers."""
        if self.refused:
            raise TraceError(self.refused)


@contextlib.contextmanager
def watched_saving() -> Iterator[Saving]:
    """Yield what fills with what a forward uses while it runs."""
    saving = Saving()
    enter, call = saved_tensors_hooks.__enter__, torch.jit.ScriptFunction.__call__

    def watched_enter(hooks: saved_tensors_hooks) -> None:
        if type(hooks).__module__ != _CHECKPOINT:
            refuse = saving.note(_ON_HOST if isinstance(hooks, save_on_cpu) else _HOOKS)
            if not isinstance(hooks, save_on_cpu):
                refuse(_OTHER_VALUES)
        enter(hooks)

    def watched_call(function: Any, *args: Any, **kwargs: Any) -> Any:
        saving.note(_SCRIPTED)
        return call(function, *args, **kwargs)

    with (
        replaced(saved_tensors_hooks, "__enter__", watched_enter),
        replaced(torch.jit.ScriptFunction, "__call__", watched_call),
        watched_checkpoints(partial(saving.note, _CHECKPOINT)),
    ):
        yield saving


def backward_of_rnns(model: nn.Module, graph: Graph) -> tuple[LeftOut, ...]:
    """Return torch's backward of RNNs, where that of the graph runs forward again."""
    if any(o.target.startswith("remat.rnn") for o in graph.operations):
        for name, module in model.named_modules():
            if isinstance(module, nn.RNNBase | nn.RNNCellBase):
                kind = f"torch's backward of nn.{type(module).__name__}"
                return (LeftOut(kind, name or type(model).__name__),)
    return ()
