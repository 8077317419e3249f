"""Run a forward for real, and record each look at values: what it found, what that follows from."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.graph import saved_tensors_hooks
from torch.func import functional_call
from torch.utils import _pytree as pytree

from remat_gen.capture.load.arguments import Call
from remat_gen.capture.process.copies import copied
from remat_gen.capture.process.generators import kept_generators
from remat_gen.capture.process.quiet import quiet
from remat_gen.capture.process.state import kept_state
from remat_gen.capture.refuse.reasons import explain
from remat_gen.capture.values.compared import NumberError, refuse_number, refused
from remat_gen.capture.values.followed import RANDOM, Followed
from remat_gen.capture.values.looking import Looking
from remat_gen.capture.values.looks import Answer, Key, Kind, Look, run_looking
from remat_gen.ir.errors import TraceError

COIN = (
    "what runs depends on a random number that forward draws (as LayerDrop and stochastic depth "
    "do), and a plan has one course: set that rate to 0 (layerdrop, drop_path_rate), or multiply "
    "by a mask"
)


@dataclass(frozen=True, slots=True)
class Looks:
    """The looks of a run by where they were made, and the buffers that their answers stand for."""

    found: Mapping[Key, Look] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()


def record(model: nn.Module, call: Call) -> Looks:
    """Run a step's forward for real, on copies of its state, and say how to answer its looks.

    Where a number may only be compared, it runs again, since the comparisons are looks of their
    own. Nothing is kept for backward.

    Raises:
        TraceError: a look decides what runs, and no plan can go by the example's answer.
    """
    state = dict(model.named_parameters()) | dict(model.named_buffers())
    given = {leaf.path: leaf.value for leaf in call.leaves if isinstance(leaf.value, Tensor)}
    if any(isinstance(tensor, FakeTensor) for tensor in (*state.values(), *given.values())):
        return Looks()  # there are no values
    run = _Run(model, call, state)
    found = run.looks({})
    compared = {k: look for k, look in found.items() if look.answer is Answer.COMPARED}
    if compared:
        found = run.looks(compared)
    known = [
        look
        for look in found.values()
        if look.answer is Answer.KNOWN and look.kind is not Kind.PICK
    ]
    assumed = {name: None for look in known for name in sorted(look.reads) if name in state}
    return Looks(found, tuple(assumed))


def recorded(model: nn.Module, call: Call, error: Exception) -> Looks | None:
    """Record the looks of a forward that no trace was made of; None where it makes none.

    Raises:
        TraceError: as `record`; for a number the `error`, which knows if torch itself reads it.
    """
    try:
        looks = record(model, call)
    except NumberError:
        raise error from None
    return looks if looks.found else None


@dataclass(frozen=True, slots=True)
class _Run:
    model: nn.Module
    call: Call
    state: Mapping[str, Tensor]

    def looks(self, compared: Mapping[Key, Look]) -> dict[Key, Look]:
        """Run once; return the looks, and how they are answered."""
        copies = {name: copied(tensor) for name, tensor in self.state.items()}
        arguments = {
            f"input {leaf.path}": copied(leaf.value)
            for leaf in self.call.leaves
            if isinstance(leaf.value, Tensor)
        }
        recording = _Recording(Followed({**copies, **arguments}), compared)
        self._run(copies, list(arguments.values()), recording)
        changing = {
            name
            for name, tensor in self.state.items()
            if isinstance(tensor, nn.Parameter) or not torch.equal(tensor, copies[name])
        }
        outside = frozenset(changing.union(arguments))
        return {key: _answered(look, outside) for key, look in recording.found.items()}

    def _run(
        self, copies: dict[str, Tensor], arguments: list[Tensor], recording: _Recording
    ) -> None:
        values = iter(arguments)
        args, kwargs = pytree.tree_map_only(
            Tensor, lambda _: next(values), (self.call.args, self.call.kwargs)
        )
        with (
            kept_generators(),
            kept_state(self.model),
            quiet(),
            saved_tensors_hooks(_nothing, _nothing),
            recording.followed,
            recording.looking(),
        ):
            torch.manual_seed(0)
            try:
                run_looking(lambda: functional_call(self.model, copies, args, kwargs))
            except TraceError:
                raise
            except Exception as error:  # of the user's own code
                if recording.found:  # or else it is not for looks that no trace was made
                    raise TraceError(explain(error)) from error


def _nothing(_: object) -> Any:
    """Save nothing for backward: there is none."""


class _Recording(Looking):
    def __init__(self, followed: Followed, compared: Mapping[Key, Look]) -> None:
        super().__init__()
        self.followed, self._compared = followed, compared
        self.found: dict[Key, Look] = {}

    def scalar(self, tensor: Tensor, operator: Callable[..., Any]) -> Any:
        """Note a look, and return what is there."""
        value = operator(tensor)
        self.last = self._note(self.kind_of(tensor), tensor, value)
        return value

    def whole(self, tensor: Tensor, read: Callable[[], Any]) -> Any:
        """Note a look, and return what is there."""
        value = read()
        self._note(Kind.WHOLE, tensor, copy.deepcopy(value))
        return value

    def made(self, make: Callable[[], Tensor]) -> Tensor:
        """Note a look, and return what is there."""
        value = make()
        self._note(Kind.SHAPE, value, (value.tolist(), value.dtype, value.device, value.shape))
        return value

    def picked(self, index: Tensor, pick: Callable[[], Tensor]) -> Tensor | None:
        """Pick what an input's number says, without a look at it; nobody may write there."""
        if not self.followed.reads(index):
            return None
        self._note(Kind.PICK, index, None)
        return self.followed.only_read(pick())

    def _note(self, kind: Kind, tensor: Tensor, value: Any) -> Look:
        key, source = self.places.next(kind)
        reads = self.followed.reads(tensor)
        look = Look(kind, value, source, reads - {RANDOM}, RANDOM in reads)
        if key in self._compared:
            look = replace(look, answer=Answer.COMPARED)
        self.found[key] = look
        return look


def _answered(look: Look, outside: frozenset[str]) -> Look:
    """Say how a trace answers a look; `outside` is what may be another in the next step."""
    if look.random and look.kind is not Kind.PICK and not look.reads & outside:
        raise TraceError(refused(look.source, COIN))
    if not look.reads & outside or look.kind is Kind.PICK:
        return look
    if look.kind is Kind.BOOL:
        return replace(look, answer=Answer.CHECKED)
    if look.kind is not Kind.ITEM:
        refuse_number(look.source)
    return replace(look, answer=Answer.COMPARED)
