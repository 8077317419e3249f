"""What operations take where they are fused into the one that reads them.

A re-run that fuses into its reader makes nothing in memory and is nearly free. How nearly is
measured: a function of both against a function of the reader alone, each compiled. The search gets
the difference as the operation's time; what a schedule takes is measured again, part by part.
"""

from __future__ import annotations

from dataclasses import replace

from remat_gen.capture.profile.timing import round_time_us
from remat_gen.compile.fusible import fusible_in
from remat_gen.compile.part_text import write_operations
from remat_gen.ir.costs import Cost, Costs, PartCost
from remat_gen.ir.graph import Graph, Operation, Phase
from remat_gen.plan.fusion import Measure

_LEAST = 0.01  # of its time alone: nothing is quite free


def marginal_costs(graph: Graph, costs: Costs, measure: Measure) -> Costs:
    """Return costs in which operations that fuse into a reader have the time that this adds."""
    pairs = {
        maker.name: [write_operations(graph, runs) for runs in ((maker, reader), (reader,))]
        for maker, reader in _readers(graph)
    }
    found = measure(list({text.sha256: text for pair in pairs.values() for text in pair}.values()))
    marginal = {
        name: _marginal(costs.operations[name], *(found[text.sha256] for text in pair))
        for name, pair in pairs.items()
    }
    return replace(costs, operations={**costs.operations, **marginal})


def _readers(graph: Graph) -> list[tuple[Operation, Operation]]:
    """Return each forward operation that can fuse into a reader, with the first one of backward.

    What only forward reads is run again for another re-run: it has its first reader there.
    """
    pairs = zip(graph.operations, fusible_in(graph), strict=True)
    fusible = [o for o, is_fusible in pairs if is_fusible]
    makers = {s: o for o in fusible if o.phase is Phase.FORWARD for s in graph.writes(o)}
    readers: dict[str, tuple[Operation, Operation]] = {}
    for phase in (Phase.BACKWARD, Phase.FORWARD):
        for reader in (o for o in fusible if o.phase is phase):
            for maker in (makers[s] for s in graph.reads(reader) if s in makers):
                readers.setdefault(maker.name, (maker, reader))
    return list(readers.values())


def _marginal(cost: Cost, both: PartCost, reader: PartCost) -> Cost:
    """Return the cost of an operation that runs with its reader; both, and that one, compiled."""
    alone_us = both.apart_us - reader.apart_us
    if both.refused or reader.refused or alone_us <= 0:
        return cost
    added_us = min(both.time_us, both.apart_us) - min(reader.time_us, reader.apart_us)
    share = min(1.0, max(_LEAST, added_us / alone_us))
    time_us, host_us = (round_time_us(us * share) for us in (cost.time_us, cost.host_us))
    return replace(cost, time_us=time_us, host_us=host_us)
