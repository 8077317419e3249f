"""The strategies without a search: nothing re-run, and every layer re-run as a whole."""

from __future__ import annotations

from collections.abc import Sequence

from remat_gen.solver.blocks.block_chain import Chain
from remat_gen.solver.law.problem import Held, Problem
from remat_gen.solver.law.program import Program


def keep_all(problem: Problem, chain: Chain) -> Program:
    """Return strategy `none`: traced order, each operation once."""
    return _with_reruns(chain, {})


def per_layer(problem: Problem, chain: Chain) -> Program:
    """Return what torch.utils.checkpoint around every layer does.

    What enters or leaves a layer is retained; before the first backward operation that reads a
    value from inside, the layer's operations run again, those whose results backward reads.
    """
    inside = _inside_of_layers(problem)
    reruns: dict[int, list[int]] = {}
    started: set[str] = set()
    for block in reversed(chain.blocks):
        for t in block.backward:
            for v in problem.operations[t].inputs:
                layer = inside.get(v, "")
                if layer and layer not in started:
                    started.add(layer)
                    reruns.setdefault(t, []).extend(_rerun_of(problem, layer, inside))
    return _with_reruns(chain, reruns)


def in_segments(problem: Problem, chain: Chain | None, runs: Sequence[int]) -> Program:
    """Return runs in the segments of a chain, or in one where there is none (a bare graph's).

    A re-run goes to the segment of the backward operation that follows it.
    """
    if chain is None:
        return Program(((), tuple(runs)))
    n = len(chain.blocks)
    forward = problem.forward_count
    segments: list[list[int]] = [list(range(b.start, b.stop)) for b in chain.blocks]
    segments += [[] for _ in chain.blocks]
    segment_of = {t: 2 * n - 1 - i for i, b in enumerate(chain.blocks) for t in b.backward}
    pending: list[int] = []
    for p in runs[forward:]:
        pending.append(p)
        if p in segment_of:
            segments[segment_of[p]] += pending
            pending = []
    return Program(tuple(tuple(segment) for segment in segments))


def _with_reruns(chain: Chain, reruns: dict[int, list[int]]) -> Program:
    forward = [tuple(range(block.start, block.stop)) for block in chain.blocks]
    backward = [
        tuple(p for t in block.backward for p in (*reruns.get(t, ()), t))
        for block in reversed(chain.blocks)
    ]
    return Program((*forward, *backward))


def _inside_of_layers(problem: Problem) -> dict[int, str]:
    """Return the layer of each value that only its own layer's forward reads, and can remake."""
    inside = {
        v: operation.layer
        for operation in problem.operations[: problem.forward_count]
        if operation.layer and operation.rerunnable
        for v in operation.outputs
        if problem.values[v].held is Held.FREE
    }
    for operation in problem.operations[: problem.forward_count]:
        for v in operation.inputs:
            if inside.get(v, operation.layer) != operation.layer:
                del inside[v]
    return inside


def _rerun_of(problem: Problem, layer: str, inside: dict[int, str]) -> list[int]:
    """Return the layer's operations that backward's reads of values inside it depend on."""
    forward = problem.forward_count
    wanted = {v for o in problem.operations[forward:] for v in o.inputs if inside.get(v) == layer}
    needed = []
    for p in range(forward - 1, -1, -1):
        operation = problem.operations[p]
        if operation.layer == layer and not wanted.isdisjoint(operation.outputs):
            needed.append(p)
            wanted.update(v for v in operation.inputs if inside.get(v) == layer)
    return needed[::-1]
