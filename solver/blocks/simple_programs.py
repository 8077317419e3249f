"""The strategies without a search: nothing re-run, and every layer re-run as a whole."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from remat_gen.solver.blocks.block_chain import Chain
from remat_gen.solver.law.problem import Held, Problem
from remat_gen.solver.law.program import Program


def keep_all(problem: Problem, chain: Chain) -> Program:
    """Return strategy `none`: traced order, each operation once."""
    return in_segments(problem, chain, range(len(problem.operations)))


def per_layer(problem: Problem, chain: Chain) -> Program:
    """Return what torch.utils.checkpoint around every layer does.

    What enters or leaves a layer is retained; before the first backward operation that reads a
    value from inside, the layer's operations run again, those whose results backward reads.
    """
    return in_segments(problem, chain, run_again_as_wholes(problem, _inside_of_layers(problem)))


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


def run_again_as_wholes(
    problem: Problem, group_of: Mapping[int, Hashable], *, but_first: bool = False
) -> tuple[int, ...]:
    """Return the runs that make each group of dropped values again where one is read first.

    `group_of` has the dropped values. With `but_first` the group that backward reads first is not
    run again: it would be made anew the moment it was freed.
    """
    forward = problem.forward_count
    again = _makers(problem, group_of)
    runs = list(range(forward))
    started: set[Hashable] = set()
    for t in range(forward, len(problem.operations)):
        for v in problem.operations[t].inputs:
            if v in group_of and group_of[v] not in started:
                if started or not but_first:
                    runs += again[group_of[v]]
                started.add(group_of[v])
        runs.append(t)
    return tuple(runs)


def _makers(problem: Problem, group_of: Mapping[int, Hashable]) -> dict[Hashable, list[int]]:
    """Return each group's operations that backward's reads of its values depend on."""
    forward = problem.forward_count
    reads = (v for operation in problem.operations[forward:] for v in operation.inputs)
    wanted = {v for v in reads if v in group_of}
    again: dict[Hashable, list[int]] = {group: [] for group in group_of.values()}
    for p in range(forward - 1, -1, -1):
        made = [v for v in problem.operations[p].outputs if v in wanted]
        if made:
            again[group_of[made[0]]].append(p)
            wanted.update(v for v in problem.operations[p].inputs if v in group_of)
    return {group: operations[::-1] for group, operations in again.items()}


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
