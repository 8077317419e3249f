"""What the model returns: run it once on fake tensors, which costs no memory and no time."""

from __future__ import annotations

import inspect
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeAlias

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree

from remat_gen.capture.as_eager.causal_masks import Positions, answered_no, watched_positions
from remat_gen.capture.as_eager.distributions import unvalidated
from remat_gen.capture.as_eager.transformer_masks import Masks, watched_masks
from remat_gen.capture.load.records import register_containers
from remat_gen.capture.observe.gradient_graph import read_on
from remat_gen.capture.process.generators import kept_generators, watched_seeds
from remat_gen.capture.process.operands import storage_of
from remat_gen.capture.process.questions import Asked
from remat_gen.capture.process.state import kept_state
from remat_gen.capture.refuse.left_out import Saving, watched_saving
from remat_gen.capture.refuse.passed_by import refuse_functions_of_views, refused_data
from remat_gen.capture.values.answered import Answering
from remat_gen.capture.values.held import kept_as_it_is
from remat_gen.capture.values.kept_places import blank, copied_containers, leaves_in, values_at
from remat_gen.capture.values.looking import unanswered
from remat_gen.capture.values.looks import run_looking
from remat_gen.capture.values.recorded import Looks
from remat_gen.capture.values.written import is_literal, watched_values
from remat_gen.ir.errors import TraceError

Taken: TypeAlias = frozenset[int | str]  # leaves of what is returned, paths of what is kept


@dataclass(frozen=True, slots=True)
class Leaf:
    """One leaf of what the model returned.

    `outside` where it looks at a parameter, buffer or input: eager hands that one on, and a
    gradient into it is no business of the plan's. `same_as` is an earlier leaf that is the same
    tensor; `given` is the buffer that it is itself, or which of the arguments. `read_on` tells
    whether other leaves are made of it, `kept` where it is left on the model and not returned.
    """

    requires_grad: bool
    scalar: bool
    outside: bool
    same_as: int | None
    given: str | int | None = None
    read_on: bool = False
    kept: str = ""


@dataclass(frozen=True, slots=True)
class Returned:
    """The model's outputs: `value` is what it returned, with fake tensors as leaves.

    `replaced` names the parameters and buffers that forward put another tensor in place of;
    `seeded` tells whether it used the random seed; `saving` what it does itself about what autograd
    saves; `positions` what transformers asked of them; `asked` who asks if it is compiled, where it
    was watched; `masks` what nn.Transformer asked of its masks. What it has `kept` on the model,
    by path, are results of the step as well: their leaves are the last. Of a part of a model the
    rest goes on with the leaves that are `taken`, and what is kept at such paths. The plain values
    in `put` it has put on modules. Buffers that are `flagged` require grad behind it alone.
    """

    value: Any
    leaves: tuple[Leaf, ...]  # in the order of torch's pytree
    replaced: tuple[str, ...] = ()
    seeded: bool = False
    saving: Saving = field(default_factory=Saving)
    positions: Positions = field(default_factory=Positions)
    asked: Asked = field(default_factory=Asked)
    masks: Masks = field(default_factory=Masks)
    taken: Taken | None = None
    kept: Mapping[str, Any] = field(default_factory=dict)
    put: Mapping[str, Any] = field(default_factory=dict)
    flagged: tuple[str, ...] = ()

    @property
    def tensors(self) -> list[Any]:
        """Return the leaves of what it returned, and what it has kept."""
        return [*pytree.tree_leaves(self.value), *self.kept.values()]

    @property
    def differentiated(self) -> frozenset[int]:
        """Return the leaves that the planned backward takes a gradient for.

        That is the loss alone, where exactly one output is a scalar that requires grad; of a part
        of a model what is taken. What is kept is no output; of it scalars have one, for a loss.
        """
        able = {
            i
            for i, leaf in enumerate(self.leaves)
            if leaf.requires_grad and not leaf.outside and leaf.same_as is None
        }
        outputs = {i for i in able if not self.leaves[i].kept}
        losses = {i for i in able if self.leaves[i].scalar}
        if self.taken is None and len(losses & outputs) == 1:
            return frozenset(losses & outputs)
        taken = able.intersection(self._leaves_at(self.taken or ()))
        return frozenset(taken | (losses - outputs) | (set() if taken & outputs else outputs))

    def _leaves_at(self, places: Iterable[int | str]) -> Iterator[int]:
        """Yield the leaves at places; of those that are one tensor the first."""
        outputs = len(self.leaves) - len(self.kept)
        at: dict[object, int] = {path: outputs + i for i, path in enumerate(self.kept)}
        at |= {i: i for i in range(outputs)}
        for i in (at[place] for place in places if place in at):
            first = self.leaves[i].same_as
            yield i if first is None else first


def is_loss(leaf: object) -> bool:
    """Tell whether a leaf is a floating scalar that requires grad."""
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.ndim == 0


_SEED = 0x5EED_0F_A_51DE  # nobody's: where another one is set afterwards, forward has set it


def run_on_fakes(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    looks: Looks | None = None,
    watch: AbstractContextManager[object] | None = None,
) -> Returned:
    """Run a step's forward on fake copies of the model's state and inputs.

    Looks at values are answered from those of a real run. A `watch` sees each operation.
    """
    state = dict(model.named_parameters()) | dict(model.named_buffers())
    mode = _mode_of([*state.values(), *pytree.tree_leaves((args, kwargs))])

    def fake(leaf: Any) -> Any:
        real = isinstance(leaf, torch.Tensor) and not isinstance(leaf, FakeTensor)
        return mode.from_tensor(leaf, static_shapes=True) if real else leaf

    fakes = {name: fake(tensor) for name, tensor in state.items()}
    args, kwargs = pytree.tree_map(fake, (args, kwargs))
    name_places(fakes)
    name_places(dict(enumerate(pytree.tree_leaves((args, kwargs)))))
    given = _given(fakes, args, kwargs)
    plain = [t for t in pytree.tree_leaves((args, kwargs)) if not _requires_grad(t)]
    hooks = [(t, _hooks_of(t)) for t in pytree.tree_leaves((fakes, args, kwargs))]
    held = _containers(model, args, kwargs)
    after = dict(fakes)
    with kept_generators():
        torch.manual_seed(_SEED)
        kept_so = kept_state(model)
        with mode, unvalidated(), kept_so, watched_masks(model) as masks, _watched(model) as seen:
            kept = kept_as_it_is(model) if looks else nullcontext()
            told = answered_no() if looks and looks.asks else nullcontext()
            answers = Answering(looks).looking() if looks else unanswered()
            with told, kept as before, answers, watch or nullcontext():
                value = run_looking(  # updates `after`
                    lambda: torch.func.functional_call(model, after, args, kwargs)
                )
                value = copied_containers(value)  # which may be put back
                left = values_at(model, looks.kept) if looks else {}
                put = seen["put"] | (before.literals() if before else {})
                anew = _made_anew(model, looks, put) if looks else {}
            made = _made(model, state)
    _refuse_changed_arguments(plain)
    _refuse_changed_containers(held)
    _refuse_put_hooks(hooks)
    returned = _returned(value, given, (*_replaced(fakes, after), *made), left)
    buffers = dict(model.named_buffers())
    flagged = tuple(n for n, t in buffers.items() if fakes[n].requires_grad > t.requires_grad)
    return replace(returned, **seen | {"masks": masks, "put": anew | put, "flagged": flagged})


@contextmanager
def _watched(model: nn.Module) -> Iterator[dict[str, Any]]:
    """Watch a forward that begins with `_SEED`; yield fields of what is `Returned`, then filled."""
    with (
        watched_saving() as saving,
        watched_positions() as positions,
        watched_seeds() as seeds,
        refused_data(),
        watched_values(model) as put,
    ):
        seen = {"saving": saving, "positions": positions, "put": put}
        yield seen
        seen["seeded"] = seeds.is_used or torch.initial_seed() != _SEED


def _made_anew(model: nn.Module, looks: Looks, put: Iterable[str]) -> dict[str, Any]:
    """Return dicts and lists that a step makes, with None for all they hold; its plain values.

    Of a dict that it puts something into, that: in the order in which it stands there.
    """
    ours = [f"{path}[" for path in (*looks.kept, *looks.containers, *put)]
    there = values_at(model, looks.containers).items()
    found = {path: _put_there(value, path, ours) for path, value in there}
    held = (leaf for p, value in found.items() for leaf in leaves_in(value, p.removesuffix("[:]")))
    made = {path: blank(container) for path, container in found.items()}
    register_containers([*made.values()])
    return made | {path: value for path, value in held if is_literal(value)}


def _put_there(held: Any, path: str, ours: Iterable[str]) -> Any:
    if not (path.endswith("[:]") and isinstance(held, dict)):
        return held
    start = path.removesuffix(":]")
    return {k: v for k, v in held.items() if any(own.startswith(f"{start}{k}][") for own in ours)}


def name_places(tensors: Mapping[Any, object]) -> None:
    """Let fakes be told from others that are laid out alike: by where they stand, or were made."""
    for place, tensor in tensors.items():
        if isinstance(tensor, FakeTensor) and not hasattr(tensor, "place"):
            tensor.place = place  # type: ignore[attr-defined]


def places_of(value: object) -> list[object]:
    """Return the places of the tensors in a value, in the order of torch's pytree."""
    return [leaf.place for leaf in pytree.tree_leaves(value) if hasattr(leaf, "place")]


def _requires_grad(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad


def _hooks_of(leaf: object) -> int:
    return len(leaf._backward_hooks or ()) if isinstance(leaf, torch.Tensor) else 0


def _refuse_changed_arguments(plain: Iterable[object]) -> None:
    if any(map(_requires_grad, plain)):
        raise TraceError(
            "forward calls requires_grad_() on an argument: eager leaves its gradient in .grad, a "
            "planned step would not; call the model with a tensor that requires grad, in "
            "example_inputs() too"
        )


def _containers(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[tuple[str, Any, list[Any]]]:
    """Return each argument by name, and what it is made of now."""
    arguments = inspect.signature(model.forward).bind(*args, **kwargs).arguments
    return [(name, value, [*_made_of(value)]) for name, value in arguments.items()]


def _made_of(value: Any) -> Iterator[Any]:
    leaves, spec = pytree.tree_flatten(value)
    yield from (spec, *map(id, leaves))


def _refuse_changed_containers(held: Iterable[tuple[str, Any, list[Any]]]) -> None:
    for name, value, before in held:
        if [*_made_of(value)] != before:
            raise TraceError(
                f"forward changes its argument {name}, a {type(value).__name__}, which a planned "
                f"step would not: let it change a copy, as in `{name} = {_copy_of(name, value)}`"
            )


def _copy_of(name: str, value: object) -> str:
    return f"{name}.copy()" if hasattr(value, "copy") else f"copy.copy({name})"


def _refuse_put_hooks(before: Iterable[tuple[object, int]]) -> None:
    if any(_hooks_of(leaf) > hooks for leaf, hooks in before):
        raise TraceError(
            "forward puts a hook on an argument or a parameter, where it stays, one more in each "
            "step: put it there once, outside of forward, or on what forward makes (x.view_as(x))"
        )


def _mode_of(leaves: Iterable[object]) -> FakeTensorMode:
    """Return the mode of a model or a call that is fake already, else a new one."""
    modes = (leaf.fake_mode for leaf in leaves if isinstance(leaf, FakeTensor))
    return next(modes, None) or FakeTensorMode(allow_non_fake_inputs=True)


def run_for_real(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Returned:
    """Run a step's forward itself, where an operator has no kernel for fake tensors."""
    state = dict(model.named_parameters()) | dict(model.named_buffers())
    given = _given(state, args, kwargs)
    with kept_generators():
        torch.manual_seed(_SEED)
        with _watched(model) as seen:
            value = model(*args, **kwargs)
    after = dict(model.named_parameters()) | dict(model.named_buffers())
    replaced = (*_replaced(state, after), *_made(model, state))
    return replace(_returned(value, given, replaced), **seen)


def _replaced(before: dict[str, Any], after: dict[str, Any]) -> tuple[str, ...]:
    return tuple(name for name, tensor in before.items() if after.get(name) is not tensor)


def _made(model: nn.Module, before: Container[str]) -> tuple[str, ...]:
    """Return the parameters and buffers that were None, or not there."""
    now = (*model.named_parameters(), *model.named_buffers())
    return tuple(name for name, _ in now if name not in before)


@dataclass(frozen=True, slots=True)
class _Given:
    """What a step was given: the memory of all tensors, and by identity which they are."""

    storages: Container[int | None]
    places: Mapping[int, str | int]


def _given(state: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Given:
    leaves = pytree.tree_leaves((args, kwargs))
    places: dict[int, str | int] = {id(leaf): i for i, leaf in enumerate(leaves)}
    places |= {id(tensor): name for name, tensor in state.items()}
    return _Given({storage_of(t) for t in (*state.values(), *leaves)} - {None}, places)


def _returned(
    value: object,
    given: _Given,
    replaced: tuple[str, ...],
    kept: Mapping[str, Any] = MappingProxyType({}),
) -> Returned:
    register_containers(value)
    returned = Returned(value, (), replaced, kept=kept)
    refuse_functions_of_views(t for t in returned.tensors if storage_of(t) in given.storages)
    leaves = [*_leaves(returned.tensors, given)]
    outputs = len(leaves) - len(kept)
    behind = (replace(leaf, kept=p) for p, leaf in zip(kept, leaves[outputs:], strict=True))
    return replace(returned, leaves=(*leaves[:outputs], *behind))


def _leaves(values: list[Any], given: _Given) -> Iterator[Leaf]:
    first: dict[int, int] = {}
    read = read_on(values)
    for i, value in enumerate(values):
        tensor = isinstance(value, torch.Tensor)
        earlier = first.setdefault(id(value), i) if tensor else i
        yield Leaf(
            requires_grad=tensor and value.requires_grad,
            scalar=is_loss(value),
            outside=storage_of(value) in given.storages,
            same_as=earlier if earlier != i else None,
            given=given.places.get(id(value)) if tensor else None,
            read_on=i in read,
        )
