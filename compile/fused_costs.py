"""Measure functions that torch.compile fuses, beside the same operations one by one.

A function whose compiled results are not laid out as the plain ones, share memory, or are other
numbers is refused: it stays as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.process.generators import kept_generators
from remat_gen.capture.profile.in_step import copies_of, newest_of
from remat_gen.capture.profile.synthesize import Fill, Synthesizer, fills_for
from remat_gen.capture.profile.timing import round_time_us
from remat_gen.capture.profile.workspace import inside_bytes
from remat_gen.compile.fused_functions import compiled
from remat_gen.compile.race import Given, Race
from remat_gen.ir.costs import PartCost
from remat_gen.ir.errors import UsageError
from remat_gen.ir.graph import Graph, Operation, Phase, Ref, Source

_REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, MemoryError)


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
    *,
    by_host: bool = False,
) -> dict[str, PartCost]:
    """Return what each candidate takes, compiled and apart, by key: `by_host`, of launches.

    The global random streams are left as they were.
    """
    synthesizer = Synthesizer(graph, examples)
    found: dict[str, PartCost] = {}
    with torch.no_grad(), kept_generators():
        for done, candidate in enumerate(candidates):
            progress(candidate.results[0], done, len(candidates))
            found[candidate.key] = _measure(synthesizer, device, candidate, by_host)
    return found


def require_compiler(device: torch.device) -> None:
    """Compile a function of nothing in particular.

    Raises:
        UsageError: torch.compile does not work here.
    """
    try:
        compiled(_next)(torch.zeros(8, device=device))
    except RuntimeError as error:
        needs = kind_of(device).compiler
        said = str(error.__cause__ or error).strip().splitlines()[:1]
        raise UsageError(
            f"--compile needs torch.compile, which fails here ({''.join(said)}); it needs {needs}: "
            "install one, or plan without --compile"
        ) from error


def _next(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def _measure(
    synthesizer: Synthesizer, device: torch.device, candidate: Candidate, by_host: bool
) -> PartCost:
    for fill in fills_for(device):
        try:
            given = _copies(synthesizer, device, candidate, fill)
            race = Race.of(candidate.code, candidate.apart, candidate.handed, given)
            refused = race.difference()
        except _REFUSALS:
            continue
        if refused:
            return PartCost(0.0, 0.0, 0, refused)
        return _cost(synthesizer.graph, device, candidate, race, by_host)
    return PartCost(0.0, 0.0, 0, "cannot be run alone")


def _copies(
    synthesizer: Synthesizer, device: torch.device, candidate: Candidate, fill: Fill
) -> list[Given]:
    """Return arguments of a function, as often as caches do not hold them."""
    graph = synthesizer.graph
    read = {graph.tensors[name].storage for name in candidate.tensors}
    nbytes = sum(graph.storages[name].nbytes for name in (*read, *candidate.results))
    newest = newest_of(graph, candidate.tensors, candidate.operations[-1])
    copies = [_tensors(synthesizer, candidate, fill) for _ in range(copies_of(nbytes, device))]
    values = tuple(tensor.clone() for tensor in copies[0].values())
    return [
        Given((*copy.values(), *candidate.lengths), values, copy[newest] if newest else None)
        for copy in copies
    ]


def _tensors(synthesizer: Synthesizer, candidate: Candidate, fill: Fill) -> dict[str, torch.Tensor]:
    made = synthesizer.inputs(_reader_of(candidate.tensors), fill)
    for mask in (t for t in made.values() if t.dtype is torch.bool and t.dim()):
        mask[..., mask.shape[-1] // 2 :] = True  # as a causal one: what it costs depends on it
    return {name: made[name] for name in candidate.tensors}


def _cost(
    graph: Graph, device: torch.device, candidate: Candidate, race: Race, by_host: bool
) -> PartCost:
    apart_us, fused_us = race.times_us(device, by_host=by_host)

    def prepare() -> Callable[[], object]:
        return functools.partial(race.fused, *race.given[0].args)

    inside = inside_bytes({candidate.key: prepare}, device)[candidate.key]
    results = sum(graph.storages[name].nbytes for name in candidate.results)
    return PartCost(round_time_us(apart_us), round_time_us(fused_us), max(0, inside - results))


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
