"""A chain of blocks over the forward operations, and which values must outlive their segment.

Frontier f_i is the set of storages made before block i and used in it or after it (DESIGN: a cut's
frontier); f_0 and f_n are empty. Three kinds of value are in no frontier, since no schedule decides
about them: those held until the step ends, those that a forward operation makes which cannot run
again while backward needs them (*pinned*), and those that only leave the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from remat_gen.solver.law.problem import Held, Problem


@dataclass(frozen=True, slots=True)
class ChainBlock:
    """Forward operations start … stop-1 and the backward operations that go with them."""

    start: int
    stop: int
    backward: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Chain:
    """Blocks in forward order; `frontiers[i]` enters block i, `pinned` stays once it is made.

    Backward, or a re-run for it, may read `needed`; the rest of a frontier is for the first run.
    """

    blocks: tuple[ChainBlock, ...]
    frontiers: tuple[frozenset[int], ...]
    pinned: frozenset[int]
    needed: frozenset[int]


def build_chain(problem: Problem, cuts: Sequence[int]) -> Chain:
    """Cut the forward operations at `cuts` (positions, increasing) and assign the backward ones."""
    bounds = (0, *cuts, problem.forward_count)
    n = len(bounds) - 1
    pinned = pinned_values(problem)
    made: dict[int, int] = {}  # of each value that a frontier may hold, the block
    used: dict[int, int] = {}  # and the last one that reads it
    for b, (start, stop) in enumerate(pairwise(bounds)):
        for operation in problem.operations[start:stop]:
            used.update({v: b for v in operation.inputs if v in made})
            free = (v for v in operation.outputs if v not in pinned)
            made.update({v: b for v in free if problem.values[v].held is not Held.STEP})
    used = {**made, **used}
    backward = _assign_backward(problem, made, used, n)
    frontiers: list[set[int]] = [set() for _ in range(n + 1)]
    for v in made:
        for i in range(made[v] + 1, used[v] + 1):
            frontiers[i].add(v)
    blocks = tuple(
        ChainBlock(a, b, tuple(backward[i])) for i, (a, b) in enumerate(pairwise(bounds))
    )
    return Chain(blocks, tuple(map(frozenset, frontiers)), pinned, needed_values(problem))


def gradient_bytes(problem: Problem) -> list[int]:
    """Return for each forward operation the bytes of parameter gradients made for it.

    Of an operation that shares its block with others they stay until the whole block's backward
    returns; eager adds each to its parameter at once.
    """
    values, alone = problem.values, build_chain(problem, range(1, problem.forward_count))
    made = ([v for t in b.backward for v in problem.operations[t].outputs] for b in alone.blocks)
    return [sum(values[v].nbytes for v in vs if values[v].held is Held.SEGMENT) for vs in made]


def needed_values(problem: Problem) -> frozenset[int]:
    """Return the forward values that backward, or a re-run for it, may read."""
    producers = problem.producers()
    forward = problem.forward_count
    stack = [v for operation in problem.operations[forward:] for v in operation.inputs]
    needed: set[int] = set()
    while stack:
        v = stack.pop()
        p = producers.get(v, forward)
        if p >= forward or v in needed:
            continue
        needed.add(v)
        if problem.operations[p].rerunnable:
            stack.extend(problem.operations[p].inputs)
    return frozenset(needed)


def pinned_values(problem: Problem) -> frozenset[int]:
    """Return the forward values that backward may need and no re-run can give back."""
    producers = problem.producers()
    return frozenset(
        v
        for v in needed_values(problem)
        if problem.values[v].held is Held.SEGMENT
        or (problem.values[v].held is Held.FREE and not problem.operations[producers[v]].rerunnable)
    )


def _assign_backward(
    problem: Problem, made: dict[int, int], used: dict[int, int], n: int
) -> list[list[int]]:
    """Give each backward operation a block, never rising; extend `used` where a value is missing.

    An operation's own place is the largest block k whose frontier and own values hold all that it
    reads. One that stands before operations that need values of higher blocks waits for none of
    them: it runs with them, and what it reads is carried there. One that reads nothing of forward
    follows its predecessor, or goes with what comes next where fewer bytes are handed on then. What
    a later operation *could* run with (a rotary table that all blocks share) holds nobody back:
    only what it cannot do without does. The last gradients, of parameters that meet the step's
    inputs (an embedding's), go with block 0.
    """
    start = problem.forward_count
    reads = [[v for v in o.inputs if v in made] for o in problem.operations[start:]]
    newest = [max((made[v] for v in read), default=-1) for read in reads]
    needed = [-1] * (len(reads) + 1)  # the highest block that this operation or a later one needs
    for t in range(len(reads) - 1, -1, -1):
        needed[t] = max(newest[t], needed[t + 1])
    current = n - 1
    last = _last_gradients(problem, reads)
    places: list[int] = []
    for t, read in enumerate(reads):
        if t == last:
            current = 0
        if read:
            current = min(current, max(_own_place(read, made, used), needed[t + 1]))
        places.append(current)
        for v in read:
            used[v] = max(used[v], current)
    _hand_on_least(places, [bool(read) for read in reads[:last]], _handed_on(problem))
    backward: list[list[int]] = [[] for _ in range(n)]
    for t, place in enumerate(places):
        backward[place].append(start + t)
    return backward


def _hand_on_least(places: list[int], reads: Sequence[bool], handed_on: Sequence[int]) -> None:
    """Let what reads nothing of forward go with what comes next, as far as that hands on less.

    Less than the next block hands on in its turn is no gain: layers that are alike stay so.
    """
    then = 0  # what the next block hands on
    for t in range(len(reads) - 1, 0, -1):
        if places[t] < places[t - 1]:
            begin = t  # of the row of such operations that ends here
            while begin > 0 and not reads[begin - 1]:
                begin -= 1
            cuts = range(begin, t + 1) if begin else (t,)
            cut = min(cuts, key=lambda c: (max(handed_on[c], then), -c))
            places[cut:t] = [places[t]] * (t - cut)
            then = handed_on[cut]


def _handed_on(problem: Problem) -> list[int]:
    """Return the bytes of gradients that are there before each backward operation.

    A parameter's gradient is one of them as long as an operation to come reads its parameter.
    """
    start = problem.forward_count
    backward = problem.operations[start:]
    last = {v: t for t, o in enumerate(backward) for v in (*o.inputs, *o.keeps)}
    change = [0] * (len(backward) + 1)
    for t, operation in enumerate(backward):
        for v in operation.outputs:
            if last.get(v, t) > t:
                change[t + 1] += problem.values[v].nbytes
                change[last[v] + 1] -= problem.values[v].nbytes
    return list(accumulate(change))


def _last_gradients(problem: Problem, reads: list[list[int]]) -> int:
    """Return where the gradients begin behind which backward reads nothing of forward any more."""
    start = problem.forward_count
    found = len(reads)
    for t in range(len(reads) - 1, -1, -1):
        if reads[t]:
            break
        outputs = problem.operations[start + t].outputs
        if any(problem.values[v].held is Held.SEGMENT for v in outputs):
            found = t
    return found


def _own_place(read: list[int], made: dict[int, int], used: dict[int, int]) -> int:
    """Return the largest block at which all of `read` are there; -1 where nothing is read."""
    if not read:
        return -1
    newest = max(made[v] for v in read)
    return max(newest, min(used[v] for v in read))
