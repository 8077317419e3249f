"""Measure functions that torch.compile fuses, beside the same operations one by one.

A function whose compiled results are not laid out as the plain ones, share memory, or are other
numbers is refused: it stays as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch

from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.process.generators import kept_generators
from remat_gen.capture.profile.in_step import copies_of, newest_of
from remat_gen.capture.profile.synthesize import Fill, Synthesizer, fills_for
from remat_gen.capture.profile.targets import Hardware
from remat_gen.capture.profile.timing import round_time_us
from remat_gen.capture.profile.workspace import inside_bytes
from remat_gen.compile.fused_functions import compiled
from remat_gen.compile.part_text import PartText
from remat_gen.compile.race import Given, Race
from remat_gen.ir.costs import Costs, PartCost
from remat_gen.ir.errors import UsageError
from remat_gen.ir.graph import Graph, Operation, Phase, Ref, Source

_REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, MemoryError)


def measure(
    graph: Graph,
    device: torch.device,
    examples: Mapping[str, torch.Tensor],
    parts: Sequence[PartText],
    progress: Callable[[str, int, int], None],
    *,
    by_host: bool = False,
) -> dict[str, PartCost]:
    """Return what each part takes, compiled and apart, by hash: `by_host`, of launches.

    The global random streams are left as they were.
    """
    synthesizer = Synthesizer(graph, examples)
    found: dict[str, PartCost] = {}
    with torch.no_grad(), kept_generators():
        for done, part in enumerate(parts):
            progress(part.made[0], done, len(parts))
            found[part.sha256] = _measure(synthesizer, device, part, by_host)
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
    synthesizer: Synthesizer, device: torch.device, part: PartText, by_host: bool
) -> PartCost:
    for fill in fills_for(device):
        try:
            given = _copies(synthesizer, device, part, fill)
            race = Race.of(part, given)
            refused = race.difference()
        except _REFUSALS:
            continue
        if refused:
            return PartCost(0.0, 0.0, 0, refused)
        return _cost(synthesizer.graph, device, part, race, by_host)
    return PartCost(0.0, 0.0, 0, "cannot be run alone")


def _copies(
    synthesizer: Synthesizer, device: torch.device, part: PartText, fill: Fill
) -> list[Given]:
    """Return arguments of a function, as often as caches do not hold them."""
    graph = synthesizer.graph
    read = {graph.tensors[name].storage for name in part.tensors}
    nbytes = sum(graph.storages[name].nbytes for name in (*read, *part.made))
    newest = newest_of(graph, part.tensors, part.operations[-1])
    copies = [_tensors(synthesizer, part, fill) for _ in range(copies_of(nbytes, device))]
    values = tuple(tensor.clone() for tensor in copies[0].values())
    return [
        Given((*copy.values(), *part.lengths), values, copy[newest] if newest else None)
        for copy in copies
    ]


def _tensors(synthesizer: Synthesizer, part: PartText, fill: Fill) -> dict[str, torch.Tensor]:
    made = synthesizer.inputs(_reader_of(part.tensors), fill)
    for mask in (t for t in made.values() if t.dtype is torch.bool and t.dim()):
        mask[..., mask.shape[-1] // 2 :] = True  # as a causal one: what it costs depends on it
    return {name: made[name] for name in part.tensors}


def _cost(
    graph: Graph, device: torch.device, part: PartText, race: Race, by_host: bool
) -> PartCost:
    apart_us, fused_us = race.times_us(device, by_host=by_host)

    def prepare() -> Callable[[], object]:
        return functools.partial(race.fused, *race.given[0].args)

    inside = inside_bytes({part.sha256: prepare}, device)[part.sha256]
    results = sum(graph.storages[name].nbytes for name in part.made)
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


def modelled_parts(
    graph: Graph, target: Hardware, costs: Costs, parts: Sequence[PartText]
) -> dict[str, PartCost]:
    """Return the cost of each part by hash, from the rates of a device that is not here.

    A part reads what it is given and writes what it returns, once; what dies inside never is in
    memory.
    """
    return {p.sha256: _modelled(graph, target, costs, p) for p in parts}


def _modelled(graph: Graph, target: Hardware, costs: Costs, part: PartText) -> PartCost:
    apart_us = sum(costs.operations[name].time_us for name in part.operations)
    written = _nbytes(graph, part.made)
    outside = [n for n in part.tensors if graph.storage_of(n).kind.outside]
    inside = [n for n in part.tensors if n not in outside]
    # of a table that rows are picked from, no more is read than is made of it
    moved = written + _nbytes(graph, inside) + min(written, _nbytes(graph, outside))
    time_us = target.rates.launch_us + moved / target.rates.bytes_per_us
    return PartCost(round_time_us(apart_us), round_time_us(time_us), 0)


def _nbytes(graph: Graph, tensors: Iterable[str]) -> int:
    return sum(graph.storage_of(name).nbytes for name in tensors)
