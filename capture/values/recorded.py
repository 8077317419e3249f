"""Run a forward for real, and record each look at values: what it found, what that follows from."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.func import functional_call
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from remat_gen.capture.load.arguments import Call
from remat_gen.capture.process.copies import copied
from remat_gen.capture.process.generators import kept_generators
from remat_gen.capture.process.operands import lack_values
from remat_gen.capture.process.quiet import quiet
from remat_gen.capture.process.state import kept_state
from remat_gen.capture.refuse.reasons import explain
from remat_gen.capture.values.compared import Selected, refuse_number
from remat_gen.capture.values.followed import RANDOM, Followed
from remat_gen.capture.values.held import kept_as_it_is
from remat_gen.capture.values.looking import Looking, Sized
from remat_gen.capture.values.looks import (
    INPUT,
    UNLIKE,
    Answer,
    Key,
    Kind,
    Look,
    Numbers,
    run_looking,
)
from remat_gen.ir.errors import TraceError, said

COIN = (
    "what runs depends on a random number that forward draws, and a plan has one course: where a "
    "rate decides (layerdrop, drop_path_rate), set it to 0; else draw before forward, and pass "
    "what is drawn as an argument"
)

WRITTEN = (
    "what runs depends on the text of a tensor's number, and it is another one in each step: "
    "decide by the number itself"
)
_UNPACKED = "saved tensor unpack_hook"  # of a backward, which asks for what was not saved
FIRST = (
    "what runs depends on self.{}, which forward itself changes, so that the next step goes on "
    "otherwise: run the model once in build_model(), in training mode under torch.no_grad(), or "
    "decide outside of forward"
)


@dataclass(frozen=True, slots=True)
class Looks:
    """The looks of a run by where they were made, and the buffers that their answers stand for.

    `left` are the paths of what forward keeps on the model and does not go on from: of these a
    planned step keeps the tensors that are `kept`, and leaves None in place of what is `unset`; the
    dicts and lists in `containers` it makes anew. The plain values in `carried`, those before and
    behind a step, are compared: forward goes on from what it finds there.
    `asks` where a library is told that nothing traces it: what it would run then does not run.
    """

    found: Mapping[Key, Look] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    carried: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    asks: bool = False

    @property
    def is_needed(self) -> bool:
        """Tell whether a trace needs them."""
        return bool(self.found or self.left)

    @property
    def compared(self) -> frozenset[Key]:
        """Return the numbers that may only be compared."""
        looks = self.found.items()
        return frozenset(key for key, look in looks if look.answer is Answer.COMPARED)


def record(model: nn.Module, call: Call) -> Looks:
    """Run a step's forward for real, on copies of its state, and say how to answer its looks.

    Where a number may only be compared, it runs again, since the comparisons are looks of their
    own; and with other words for its text, which must lead nowhere else. Nothing is kept for
    backward.

    Raises:
        TraceError: a look decides what runs, and no plan can go by the example's answer.
    """
    state = dict(model.named_parameters()) | dict(model.named_buffers())
    given = {leaf.path: leaf.value for leaf in call.leaves if isinstance(leaf.value, Tensor)}
    if lack_values((*state.values(), *given.values())):
        return Looks()  # there are no values
    found, value = _answered_looks(model, call, Looks())
    compared = [look for look in found.values() if look.is_compared]
    if compared:
        found, again = _answered_looks(model, call, Looks(found))
        if compared[0].kind is not Kind.TEXT and not same_bits(value, again):
            refuse_number(compared[0])  # what stands for it has led elsewhere
        others = (_returned_with(model, call, Looks(found), words) for words in UNLIKE)
        if not all(same_bits(value, other) for other in (again, *others)):
            raise TraceError(compared[0].place.untraceable(WRITTEN))
    known = [
        look
        for look in found.values()
        if look.answer is Answer.KNOWN and look.kind is not Kind.PICK
    ]
    assumed = {name: None for look in known for name in sorted(look.reads) if name in state}
    return Looks(found, tuple(assumed))


def _returned_with(model: nn.Module, call: Call, looks: Looks, words: str) -> Any:
    """Return what forward returns where some words stand for the text of what may be compared."""
    with kept_as_it_is(model):
        run = run_recorded(model, call, looks, words=words)
    return run and run.value


def _answered_looks(model: nn.Module, call: Call, looks: Looks) -> tuple[dict[Key, Look], Any]:
    """Run once; return the looks with how they are answered, and what forward returned."""
    with kept_as_it_is(model):
        run = run_recorded(model, call, looks)
        if run is None:
            return {}, None
        outside = run.outside - run.frozen
        found = {key: _answered(look, outside) for key, look in run.found.items()}
        changing = outside & run.state.keys()
        own = {k: look for k, look in found.items() if look.reads & outside <= changing}
        own = {k: look for k, look in own.items() if look.answer is Answer.CHECKED}
        next_run = run_recorded(model, call, looks, run.state) if own else None
    for key, look in own.items():
        again = next_run.found.get(key) if next_run else None
        if again is None or again.value != look.value:
            decides = min(name for name in look.reads if name in changing)
            raise TraceError(look.place.untraceable(FIRST.format(decides)))
    return found, run.value


def same_bits(one: Any, other: Any) -> bool:
    """Tell whether two runs returned the same numbers."""
    first, second = (pytree.tree_leaves(value) for value in (one, other))
    pairs = zip(first, second, strict=False)
    return len(first) == len(second) and all(
        torch.equal(a.detach().nan_to_num(), b.detach().nan_to_num())
        for a, b in pairs
        if isinstance(a, Tensor) and isinstance(b, Tensor)
    )


@dataclass(frozen=True, slots=True)
class Recorded:
    """A real run: what it returned, its looks, and its parameters and buffers behind it.

    `outside` names what may be another in the next step: inputs, parameters, and buffers that
    forward writes into, though it may have written the same numbers there. Of these parameters are
    `frozen` whose numbers can be compared instead.
    """

    value: Any
    found: Mapping[Key, Look]
    state: Mapping[str, Tensor]
    outside: frozenset[str]
    frozen: frozenset[str]
    followed: Followed

    def is_constant(self, tensor: object) -> bool:
        """Tell whether a tensor's values follow from nothing that may be another one."""
        if not isinstance(tensor, Tensor):
            return False
        return self.followed.reads(tensor).isdisjoint((*self.outside, RANDOM))


def run_recorded(
    model: nn.Module,
    call: Call,
    looks: Looks,
    behind: Mapping[str, Tensor] = MappingProxyType({}),
    words: str = "",
    *,
    saves: bool = False,
) -> Recorded | None:
    """Run a step's forward for real, on copies of its state; None where it does not run.

    `behind` is the state that another run has left, to go on from.

    The numbers that `looks` has as such may only be compared, and `words` stand for their text.
    What forward keeps stays there. It `saves` for backward only where forward runs one itself.

    Raises:
        TraceError: a number is used otherwise; forward itself raises.
    """
    state = dict(model.named_parameters()) | dict(model.named_buffers()) | dict(behind)
    copies = {name: copied(tensor) for name, tensor in state.items()}
    arguments = {
        f"{INPUT}{leaf.path}": copied(leaf.value)
        for leaf in call.leaves
        if isinstance(leaf.value, Tensor)
    }
    fixed = {f"{INPUT}{path}" for path in call.fixed}
    varying = {name: tensor for name, tensor in arguments.items() if name not in fixed}
    recording = _Recording(Followed({**copies, **varying}), looks.compared, words)
    values = iter(arguments.values())
    args, kwargs = pytree.tree_map_only(Tensor, lambda _: next(values), (call.args, call.kwargs))
    versions = {name: tensor._version for name, tensor in copies.items()}
    try:
        value = _run(recording, model, copies, args, kwargs, saves=saves)
    except TraceError:
        raise
    except Exception as error:  # of the user's own code
        if not saves and _UNPACKED in said(error):
            return run_recorded(model, call, looks, behind, words, saves=True)
        if recording.found:  # or else it is not for looks that no trace was made
            raise TraceError(explain(error)) from error
        return None
    parameters = dict(model.named_parameters())
    written = frozenset(
        [name for name, tensor in state.items() if not _is_same(tensor, copies[name])]
        + [name for name, version in versions.items() if copies[name]._version != version]
    )
    frozen = frozenset(name for name, p in parameters.items() if not p.requires_grad) - written
    outside = written.union(arguments, parameters)
    return Recorded(value, recording.found, copies, outside, frozen, recording.followed)


def _run(
    recording: _Recording,
    model: nn.Module,
    state: dict[str, Tensor],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    saves: bool,
) -> Any:
    with (
        kept_generators(),
        kept_state(model),
        quiet(),
        nullcontext() if saves else saved_tensors_hooks(nothing, nothing),
        recording.followed,
        recording.looking(),
    ):
        torch.manual_seed(0)
        return run_looking(lambda: functional_call(model, state, args, kwargs))


def _is_same(tensor: Tensor, other: Tensor) -> bool:
    """Tell whether a buffer has the same bits; a sparse one is refused where it is read."""
    return tensor.layout is not torch.strided or torch.equal(tensor, other)


def nothing(_: object) -> Any:
    """Save nothing for backward: there is none."""


class _Recording(Looking):
    def __init__(self, followed: Followed, compared: frozenset[Key], words: str) -> None:
        super().__init__()
        self.followed, self._compared, self._words = followed, compared, words
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

    def made(self, make: Callable[[], Any], sized: Sized | None) -> Any:
        """Note a look, and return what is there."""
        value = make()
        first = pytree.tree_leaves(value)[0]
        self._note(Kind.SHAPE, first, pytree.tree_map_only(Tensor, Numbers.of, value))
        return value

    def text(self, tensor: Tensor, write: Callable[[], str]) -> str:
        """Note a look, and return the text of what is there, or of where it comes from."""
        with _disable_current_modes():
            written = write()
        look = self._note(Kind.TEXT, tensor, written)
        return look.text if look.is_compared else written

    def selected(self, tensor: Tensor, mask: Tensor) -> Any:
        """Note a look at a mask, and return what it selects, or how much that is."""
        with _disable_current_modes():
            positions = mask.nonzero()
        look = self._note(Kind.SELECT, mask, positions)
        if look.answer is Answer.COMPARED:
            return Selected(tensor, mask, look)
        return Tensor.__getitem__(tensor, mask)

    def picked(self, index: Tensor, pick: Callable[[], Tensor]) -> Tensor | None:
        """Pick what an input's number says, without a look at it; nobody may write there."""
        if not self.followed.reads(index):
            return None
        self._note(Kind.PICK, index, None)
        return self.followed.only_read(pick())

    def _note(self, kind: Kind, tensor: Tensor, value: Any) -> Look:
        key, source, place = self.places.next(kind)
        reads = self.followed.reads(tensor)
        look = Look(kind, value, source, place, reads - {RANDOM}, RANDOM in reads)
        if key in self._compared:
            look = replace(look, answer=Answer.COMPARED, words=self._words)
        self.found[key] = look
        return look


def _answered(look: Look, outside: frozenset[str]) -> Look:
    """Say how a trace answers a look; `outside` is what may be another in the next step."""
    coin = look.random and look.kind is not Kind.PICK and not look.reads & outside
    if coin and look.kind is not Kind.ITEM:
        raise TraceError(look.place.untraceable(COIN))
    if not (coin or look.reads & outside) or look.kind is Kind.PICK:
        return look
    if look.kind is Kind.BOOL:
        return replace(look, answer=Answer.CHECKED)
    if look.kind not in (Kind.ITEM, Kind.SELECT, Kind.TEXT):
        refuse_number(look)
    return replace(look, answer=Answer.COMPARED)
