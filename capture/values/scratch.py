"""What forward keeps on the model and does not go on from: caches, and what is for others.

A cache is filled by the first run and stays the same in the second; it follows from no input,
parameter or random number, so a planned step computes it anew. What is another object after each
run is for others if no run reads it before it has written it: small tensors (the loss of a layer's
own, the share of each expert) are results of the step beside what forward returns, larger ones and
what are no tensors a planned step leaves out.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from remat_gen.capture.load.arguments import Call
from remat_gen.capture.process.operands import lack_values
from remat_gen.capture.refuse.kept_errors import INSTEAD, ONCE, KeptError
from remat_gen.capture.refuse.refusals import made_by
from remat_gen.capture.values.compared import Compared, NumberError
from remat_gen.capture.values.held import GONE, Held, files_of, shown
from remat_gen.capture.values.kept_places import (
    is_attribute,
    is_container,
    is_item,
    is_plain_tensor,
    is_small,
    leaves_in,
    put_at,
    values_at,
)
from remat_gen.capture.values.recorded import Looks, Recorded, record, run_recorded, same_bits
from remat_gen.capture.values.written import first_reads, is_literal
from remat_gen.ir.errors import TraceError


def recorded(model: nn.Module, call: Call, error: TraceError) -> Looks:
    """Record the looks of a forward that no trace was made of, and what it keeps.

    Raises:
        TraceError: as `record`; for a number at the place of the `error` that one, which knows if
            torch itself reads it and says what to do, and so for the same that it keeps. The
            `error` where there are no values to run on.
    """
    if lack_values((*model.parameters(), *model.buffers())):
        raise error
    try:
        return left_behind(model, call, record(model, call))
    except NumberError as number:
        named = str(error).startswith(f"{number.place}:") or not str(number.place)
        raise TraceError(f"{error if named else number}{number.instead}") from None
    except KeptError as kept:
        raise error if _tells_of(error, kept.name) else kept from None


def _tells_of(error: TraceError, name: str) -> bool:
    """Tell whether an error is about what is kept by a name, or about what has that."""
    if not isinstance(error, KeptError):
        return False
    one, other = (each.removeprefix("self").lstrip(".:") for each in (error.name, name))
    return one.startswith(other) or other.startswith(one)


def left_behind(model: nn.Module, call: Call, looks: Looks) -> Looks:
    """Add to looks what forward keeps on the model.

    Forward runs twice for real, the second time with what the first one has left.

    Raises:
        KeptError: it may not be left out.
    """
    before = Held.by(model, files_of(model))
    try:
        first = run_recorded(model, call, looks)
        if first is None:  # it fails, and whoever has seen that says so
            return looks
        made = before.changed()
        between = Held.by(model, files_of(model))
        with first_reads(model, made) as read:
            second = run_recorded(model, call, looks)
        again = between.changed()
        others = {path: pair[1] for path, pair in again.items() if not _is_same(*pair)}
        fresh = frozenset(path for path, (old, _) in made.items() if old is GONE)
        found = _Kept.of(model, others, fresh, _made_by_hooks(model))
        steady = second is not None and found.is_steady(model, call, looks, second)
    finally:
        before.put_back()
    for path in sorted(made.keys() | again.keys(), key=lambda p: (p not in read, p)):
        _, new = pair = again.get(path) or made[path]
        settled = path not in others and all(map(first.is_constant, _tensors(pair)))
        unread = path in others and path in read.there - read
        unread |= path in (*found.items, *found.large) and path in made
        unread &= steady or path not in (*found.paths, *found.large)
        if not (settled or unread) or _is_of_model(new) or second is None:
            _refuse(path, new)
    if made and second and not same_bits(first.value, second.value):
        _refuse(min(made), None)
    return replace(
        looks,
        left=tuple(p for p in sorted(made.keys() | again.keys()) if not _is_property(model, p)),
        kept=found.tensors,
        containers=found.containers,
        carried={
            path: pair
            for path, pair in sorted(made.items())
            if is_literal(pair[1])
            and (path in read if path in read.watched else path not in others)
        },
        unset=tuple(p for p in others if p not in found.paths),
    )


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a step keeps: small tensors, `containers` that it makes anew, what it puts in others.

    The tensors that are `large` it puts in others, too, and a planned step does not keep them.
    """

    tensors: tuple[str, ...]
    containers: tuple[str, ...]
    items: tuple[str, ...]
    large: tuple[str, ...]

    @classmethod
    def of(
        cls,
        model: nn.Module,
        others: Mapping[str, Any],
        fresh: Iterable[str],
        hooks: Container[str],
    ) -> _Kept:
        """Find it in what each run makes anew; what `hooks` make is made once more by them.

        Where the first run has put something that was not there, it is put there in order.
        """
        there = values_at(model, (p for p in others if is_attribute(p) or is_item(p)))
        anew = {p: v for p, v in there.items() if v is others[p] and p not in hooks}
        whole = [path for path, value in anew.items() if is_container(value)]
        single = [path for path, value in anew.items() if is_small(value)]
        leaves = (leaf for path in whole for leaf in leaves_in(anew[path], path))
        inside = [path for path, value in leaves if is_small(value)]
        items = tuple(p for p in (*whole, *single) if is_item(p))
        filled = [*_filled(model, items, fresh)]
        inner = tuple(f"{path}[" for path in filled)
        containers = (*(f"{path}[:]" for path in filled), *whole)
        containers = tuple(p for p in containers if not _is_in(p, inner))
        large = (p for p, v in anew.items() if is_item(p) and is_plain_tensor(v))
        return cls((*single, *inside), containers, items, tuple(large))

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the paths of all that is kept."""
        return *self.tensors, *self.containers, *self.items

    def is_steady(self, model: nn.Module, call: Call, looks: Looks, last: Recorded) -> bool:
        """Tell whether forward makes the same of it where there were other numbers before."""
        paths = *self.tensors, *self.large
        made = {path: value.clone() for path, value in values_at(model, paths).items()}
        others = [{path: _unlike(t, n) for path, t in made.items()} for n in _OTHERS if made]
        if self.large:  # None stands there behind a planned step, and its shape may be another
            others += [made | {p: v for p in self.large} for v in (None, torch.zeros(()))]
        for there in others:
            put_at(model, there)
            try:
                run = run_recorded(model, call, looks)
            except TraceError:  # it does not run with them
                return False
            now = values_at(model, paths)
            if run is None or not same_bits([last.value, made], [run.value, now]):
                return False
        return True


_OTHERS = 97, -97  # numbers to find where a step has left its own


def _unlike(tensor: Tensor, number: int) -> Tensor:
    return ~tensor if tensor.dtype is torch.bool else torch.full_like(tensor, number)


def _filled(model: nn.Module, items: Iterable[str], fresh: Iterable[str]) -> Iterator[str]:
    """Yield the lists that a step fills, and the dicts that it puts something into in order."""
    grown = {_holder(path) for path in items if path in fresh}
    for path, held in values_at(model, dict.fromkeys(map(_holder, items))).items():
        whole = type(held) is list and all(f"{path}[{i}]" in items for i in range(len(held)))
        if whole or path in grown:
            yield path
    anew = dict.fromkeys(_holder(path) for path in fresh if is_item(path))  # of plain values, too
    for path, held in values_at(model, anew).items():
        if type(held) is list and is_container(held) and path not in grown:
            yield path


def _holder(item: str) -> str:
    return item.rpartition("[")[0]


def _is_in(path: str, inner: tuple[str, ...]) -> bool:
    """Tell whether a container is in others that are made anew."""
    return path.removesuffix("[:]").startswith(inner)


def _is_property(model: nn.Module, path: str) -> bool:
    """Tell whether whoever reads an attribute first fills it, with what its class says."""
    if not is_attribute(path):
        return False
    *parts, name = path.split(".")
    owner: Any = model
    for part in parts:
        owner = getattr(owner, part, None)
    return isinstance(getattr(type(owner), name, None), functools.cached_property)


def _made_by_hooks(model: nn.Module) -> set[str]:
    return {
        f"{name}.{made_by(hook)}"
        for name, module in model.named_modules()
        for hook in module._forward_pre_hooks.values()
    }


def _refuse(path: str, new: object) -> NoReturn:
    raise KeptError(
        f"forward changes {shown(path)}, and goes on otherwise where it was changed, which a "
        f"planned forward would not do: {ONCE if _is_of_model(new) else INSTEAD}",
        path,
    )


def _is_of_model(value: object) -> bool:
    return isinstance(value, nn.Module | nn.Parameter)


def _is_same(old: Any, new: Any) -> bool:
    if type(old) is not type(new):
        return False
    if isinstance(new, tuple):
        return len(old) == len(new) and all(map(_is_same, old, new))
    return is_literal(new) and bool(old == new)


def _tensors(value: Any) -> list[Any]:
    """Return the tensors, and numbers of tensors, in a value."""
    leaves = pytree.tree_leaves((value, dict(getattr(value, "__dict__", {}))))
    if isinstance(value, Tensor | Compared):
        leaves = [value]
    return [leaf for leaf in leaves if isinstance(leaf, Tensor | Compared)]
