"""Measure functions that torch.compile fuses, beside the same operations one by one.

Both run on the same synthetic inputs, in turn; what is written over is put back between the
measured times. A function whose compiled results are not laid out as the plain ones, share memory,
or are other numbers is refused: it stays as it is.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from remat_gen.capture.fused_functions import compiled
from remat_gen.capture.generators import kept_generators
from remat_gen.capture.synthesize import Fill, Synthesizer
from remat_gen.capture.timing import Effort, clock_us, round_time_us
from remat_gen.capture.workspace import inside_bytes
from remat_gen.ir.costs import PartCost
from remat_gen.ir.errors import UsageError
from remat_gen.ir.graph import Graph, Operation, Phase, Ref, Source

_REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, MemoryError)
_EFFORT = Effort(fewest=5, most=15, enough_us=40_000.0)
_WAYS: Mapping[str, Callable[[torch.Tensor], torch.Tensor] | None] = {
    "": None,
    ".view(torch.uint8)": lambda mask: mask.view(torch.uint8),
    ".int()": torch.Tensor.int,
}
_SIDE = 512  # of a product that takes some milliseconds
_ROUNDS = 2  # what else a machine does only adds time, and often for longer than one round


@dataclass(frozen=True, slots=True)
class Candidate:
    """A function `part` of tensors of the graph, then of lengths, as text.

    `apart` is the same of operations that run one by one; it may write over its inputs. `handed`
    stands behind each tensor where the compiled function is called: "", or ".int()". `results`
    are the storages that it returns, `operations` what it runs, by name.
    """

    key: str
    code: str
    apart: str
    tensors: tuple[str, ...]
    handed: tuple[str, ...]
    lengths: tuple[int, ...]
    results: tuple[str, ...]
    operations: tuple[str, ...]


def measure(
    graph: Graph,
    device: torch.device,
    examples: Mapping[str, torch.Tensor],
    candidates: Sequence[Candidate],
    progress: Callable[[str, int, int], None],
) -> dict[str, PartCost]:
    """Return what each candidate takes, compiled and apart, by key.

    The global random streams are left as they were.
    """
    synthesizer = Synthesizer(graph, examples)
    found: dict[str, PartCost] = {}
    with torch.no_grad(), kept_generators():
        for done, candidate in enumerate(candidates):
            progress(candidate.results[0], done, len(candidates))
            found[candidate.key] = _measure(synthesizer, device, candidate)
    return found


def require_compiler(device: torch.device) -> None:
    """Compile a function of nothing in particular.

    Raises:
        UsageError: torch.compile does not work here.
    """
    try:
        compiled(_next)(torch.zeros(8, device=device))
    except RuntimeError as error:
        needs = "a C++ compiler" if device.type == "cpu" else "Triton"
        said = str(error.__cause__ or error).strip().splitlines()[:1]
        raise UsageError(
            f"--compile needs torch.compile, which fails here ({''.join(said)}); it needs {needs}: "
            "install one, or plan without --compile"
        ) from error


def _next(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def _measure(synthesizer: Synthesizer, device: torch.device, candidate: Candidate) -> PartCost:
    for fill in Fill:
        try:
            race = _Race.of(candidate, _Given.of(synthesizer, candidate, fill))
            refused = race.difference()
        except _REFUSALS:
            continue
        if refused:
            return PartCost(0.0, 0.0, 0, refused)
        return _cost(synthesizer.graph, device, candidate, race)
    return PartCost(0.0, 0.0, 0, "cannot be run alone")


@dataclass(frozen=True, slots=True)
class _Given:
    """The arguments of a function, and copies of its tensors."""

    args: tuple[Any, ...]
    copies: tuple[torch.Tensor, ...]

    @classmethod
    def of(cls, synthesizer: Synthesizer, candidate: Candidate, fill: Fill) -> _Given:
        tensors = synthesizer.inputs(_reader_of(candidate.tensors), fill)
        args = tuple(tensors[name] for name in candidate.tensors)
        for mask in (tensor for tensor in args if tensor.dtype is torch.bool):
            mask.bernoulli_(0.5)  # what it costs to look at one depends on what is in it
        return cls((*args, *candidate.lengths), tuple(t.clone() for t in args))

    def restore(self) -> None:
        """Put the tensors back as they were."""
        for tensor, copy in zip(self.args, self.copies, strict=False):
            tensor.copy_(copy)


@dataclass(frozen=True, slots=True)
class _Race:
    """Two ways to do the same; `plain` is what is compiled."""

    given: _Given
    apart: Callable[..., Any]
    plain: Callable[..., Any]
    fused: Callable[..., Any]
    factor: torch.Tensor

    @classmethod
    def of(cls, candidate: Candidate, given: _Given) -> _Race:
        plain = _function(candidate.code)
        fused = compiled(plain)
        handed = candidate.handed
        apart = _function(candidate.apart)
        return cls(
            given, apart, _with(handed, plain), _with(handed, fused), torch.ones(_SIDE, _SIDE)
        )

    def difference(self) -> str:
        """Say in what the compiled results differ from the others, or nothing."""
        expected = [t.clone() for t in _tensors(self.apart(*self.given.args))]
        self.given.restore()
        plain, fused = (_tensors(f(*self.given.args)) for f in (self.plain, self.fused))
        if _shares(fused, self.given.args):
            return "results share memory"
        if list(map(_layout, plain)) != list(map(_layout, fused)):
            return "results are laid out otherwise"
        return "" if all(map(_close, expected, fused)) else "other numbers"

    def times_us(self, device: torch.device) -> tuple[float, float]:
        """Return the median times, apart and fused, each the lower one of some rounds."""
        self.clock(self.apart, device), self.clock(self.fused, device)
        rounds = [self._round(device) for _ in range(_ROUNDS)]
        return min(apart for apart, _ in rounds), min(fused for _, fused in rounds)

    def _round(self, device: torch.device) -> tuple[float, float]:
        once_us = max(self.clock(self.apart, device), self.clock(self.fused, device))
        times = [
            (self.clock(self.apart, device), self.clock(self.fused, device))
            for _ in range(_EFFORT.repeats(once_us))
        ]
        apart, fused = zip(*times, strict=True)
        return statistics.median(apart), statistics.median(fused)

    def clock(self, function: Callable[..., Any], device: torch.device) -> float:
        """Time a call as it comes in a step: behind a product, which leaves no cache warm.

        There a call's own Python and C++ takes ten times as long as in a loop.
        """
        self.given.restore()
        if device.type == "cpu":
            torch.mm(self.factor, self.factor)
        return clock_us(lambda: function(*self.given.args), device)


def _cost(graph: Graph, device: torch.device, candidate: Candidate, race: _Race) -> PartCost:
    apart_us, fused_us = race.times_us(device)

    def prepare() -> Callable[[], object]:
        return lambda: race.fused(*race.given.args)

    inside = inside_bytes({candidate.key: prepare}, device)[candidate.key]
    results = sum(graph.storages[name].nbytes for name in candidate.results)
    return PartCost(round_time_us(apart_us), round_time_us(fused_us), max(0, inside - results))


def _function(code: str) -> Callable[..., Any]:
    """Return the function that a text defines; it is ours, made of the graph's operators."""
    names: dict[str, Any] = {"torch": torch, "F": F, "aten": torch.ops.aten}
    names["Tensor"] = torch.Tensor
    names["pick_results"] = lambda results, *wanted: [results[i] for i in wanted]
    exec(compile(code, "<part>", "exec"), names)
    part: Callable[..., Any] = names["part"]
    return part


def _reader_of(tensors: Iterable[str]) -> Operation:
    """Return an operation that reads tensors, for the synthesizer."""
    return Operation(
        name="part",
        target="part",
        args=tuple(map(Ref, tensors)),
        kwargs=(),
        outputs=(),
        single=False,
        phase=Phase.FORWARD,
        traits=frozenset(),
        source=Source("", 0, ""),
        module="",
        hint="",
    )


def _with(handed: Sequence[str], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that hands its arguments on as a part's call does."""
    ways = [_WAYS[way] for way in handed]

    def call(*args: Any) -> Any:
        return function(*map(_apply, ways, args), *args[len(ways) :])

    return call


def _apply(way: Callable[[torch.Tensor], torch.Tensor] | None, value: Any) -> Any:
    return way(value) if way else value


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
