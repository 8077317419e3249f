"""A function two ways, one by one and compiled, on the same tensors: equal, and which is quicker.

Both are called in turn on copies of synthetic inputs, as a step would come to them (`in_step`);
what is written over is put back between the measured times.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.profile.in_step import Place, Turns
from remat_gen.capture.profile.timing import Effort
from remat_gen.compile.fused_functions import compiled
from remat_gen.compile.masks import Handed
from remat_gen.compile.part_text import PartText

_EFFORT = Effort(fewest=5, most=15, enough_us=40_000.0)
_WAYS: Mapping[Handed, Callable[[Any], Any]] = {
    Handed.AS_IS: lambda value: value,
    Handed.BYTES: lambda mask: mask.view(torch.uint8),
    Handed.INTEGERS: torch.Tensor.int,
}
_SIDE = 512  # of a product that takes some milliseconds
_LAUNCHES_US = 1_000.0  # more than the host takes for a part one by one
_ROUNDS = 2  # what else a machine does only adds time, and often for longer than one round


@dataclass(frozen=True, slots=True)
class Given:
    """The arguments of a function: tensors, then lengths. `newest` is what a step made last."""

    args: tuple[Any, ...]
    values: tuple[torch.Tensor, ...]  # of the tensors
    newest: torch.Tensor | None

    def restore(self) -> None:
        """Put the tensors back as they were."""
        for tensor, value in zip(self.args, self.values, strict=False):
            tensor.copy_(value)


@dataclass(frozen=True, slots=True)
class Race:
    """Two ways to do the same, `apart` and `fused`; `plain` is what is compiled."""

    given: Sequence[Given]
    apart: Callable[..., Any]
    plain: Callable[..., Any]
    fused: Callable[..., Any]

    @classmethod
    def of(cls, part: PartText, given: Sequence[Given]) -> Race:
        """Return the race of a function's two texts."""
        plain, ways = _function(part.code), [_WAYS[way] for way in part.handed]
        both = (_with(ways, function) for function in (plain, compiled(plain)))
        return cls(given, _function(part.code_apart), *both)

    def difference(self) -> str:
        """Say in what the compiled results differ from the others, or nothing."""
        given = self.given[0]
        expected = [t.clone() for t in _tensors(self.apart(*given.args))]
        given.restore()
        plain, fused = (_tensors(f(*given.args)) for f in (self.plain, self.fused))
        if _shares(fused, given.args):
            return "results share memory"
        if list(map(_layout, plain)) != list(map(_layout, fused)):
            return "results are laid out otherwise"
        return "" if all(map(_close, expected, fused)) else "other numbers"

    def times_us(self, device: torch.device, *, by_host: bool) -> tuple[float, float]:
        """Return the median times, apart and fused, each the lower one of some rounds.

        They are those of the device, or `by_host` those of the host that launches them.
        """
        # half of the copies lie between the two: neither finds what the other has touched
        apart = _Runner(self._turns(self.apart, device, start=0), device, by_host)
        fused = _Runner(
            self._turns(self.fused, device, start=len(self.given) // 2), device, by_host
        )
        for _ in self.given:  # loads kernels, and fetches memory for the results
            apart.time_us(), fused.time_us()
        rounds = [_round(apart, fused) for _ in range(_ROUNDS)]
        return min(apart_us for apart_us, _ in rounds), min(fused_us for _, fused_us in rounds)

    def _turns(self, function: Callable[..., Any], device: torch.device, start: int) -> Turns:
        places = [
            Place(functools.partial(function, *given.args), given.newest, given.restore)
            for given in self.given
        ]
        return Turns(places, device, at=start - 1)


@dataclass(frozen=True, slots=True)
class _Runner:
    """Times one of the two."""

    turns: Turns
    device: torch.device
    by_host: bool
    factor: torch.Tensor = field(default_factory=lambda: torch.ones(_SIDE, _SIDE))

    def time_us(self) -> float:
        """Time a call as it comes in a step: behind a product, which leaves no code in the caches.

        There a call's own Python and C++ takes ten times as long as in a loop.
        """
        kind = kind_of(self.device)
        (found,) = kind.times(self.turns, self.device, 1, self._prepare, _LAUNCHES_US)
        return found.host_us if self.by_host else found.device_us

    def _prepare(self) -> None:
        if not kind_of(self.device).is_accelerator:
            torch.mm(self.factor, self.factor)
        self.turns.prepare()


def _round(apart: _Runner, fused: _Runner) -> tuple[float, float]:
    once_us = max(apart.time_us(), fused.time_us())
    times = [(apart.time_us(), fused.time_us()) for _ in range(_EFFORT.repeats(once_us))]
    apart_us, fused_us = map(statistics.median, zip(*times, strict=True))
    return apart_us, fused_us


def _function(code: str) -> Callable[..., Any]:
    """Return the function that a text defines; it is ours, made of the graph's operators."""
    names: dict[str, Any] = {"torch": torch, "F": F, "aten": torch.ops.aten}
    names["Tensor"] = torch.Tensor
    names["pick_results"] = lambda results, *wanted: [results[i] for i in wanted]
    exec(compile(code, "<part>", "exec"), names)
    part: Callable[..., Any] = names["part"]
    return part


def _with(ways: Sequence[Callable[[Any], Any]], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that hands its arguments on as a part's call does."""
    return lambda *args: function(*(way(value) for way, value in zip(ways, args, strict=True)))


def _shares(results: Sequence[torch.Tensor], given: Sequence[Any]) -> bool:
    """Tell whether two results, or a result and an argument, are in the same memory."""
    made = [t.untyped_storage().data_ptr() for t in results]
    inputs = (value for value in given if isinstance(value, torch.Tensor))
    return len(set(made)) < len(made) or any(t.untyped_storage().data_ptr() in made for t in inputs)


def _tensors(results: Any) -> list[torch.Tensor]:
    return [results] if isinstance(results, torch.Tensor) else list(results)


def _layout(tensor: torch.Tensor) -> tuple[object, ...]:
    nbytes = tensor.untyped_storage().nbytes()
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.storage_offset(), nbytes


def _close(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Tell whether numbers are the same but for roundings.

    A compiler keeps 16-bit values in 32 bits between operations, and sums in another order.
    """
    if not x.is_floating_point():
        return torch.equal(x, y)
    factor = 1024 if x.dtype.itemsize > 2 else 16
    x, y = (torch.nan_to_num(t.double()) for t in (x, y))
    eps = torch.finfo(torch.float32 if factor == 1024 else torch.bfloat16).eps
    return float((x - y).norm()) <= factor * eps * float(x.norm())
