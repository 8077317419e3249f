"""The smallest budget of the chain recurrence, without slots.

P(i, j) is the least m for which T(i, j, m) is finite: the same moves, each worth the larger of what
it needs itself and what the ranges inside it need. It is the smallest budget of this strategy, no
proof about all schedules.
"""

from __future__ import annotations

from remat_gen.solver.moves import Moves
from remat_gen.solver.plan import Checkpoint, Inner, Leaf, Plan


def smallest_plan(moves: Moves) -> Plan:
    """Return the plan of least peak; of equal ones the quickest by its own moves."""
    n = moves.costs.n
    best: dict[tuple[int, int], tuple[int, float, Plan]] = {}
    for length in range(1, n + 1):
        for i in range(n - length + 1):
            best[i, i + length] = _best(moves, best, i, i + length)
    return best[0, n][2]


def _best(
    moves: Moves, best: dict[tuple[int, int], tuple[int, float, Plan]], i: int, j: int
) -> tuple[int, float, Plan]:
    found: list[tuple[int, float, int]] = []
    if j == i + 1:
        found = [(move.need_bytes, move.time_us, move.number) for move in moves.leaves(i, j)]
        need, time_us, number = min(found)
        return need, time_us, Leaf(i, moves.leaf_options(i, j)[number])
    for move in moves.inners(i, j):
        need, time_us, _ = best[i + 1, j]
        need = max(move.need_bytes, move.held_bytes + need)
        found.append((need, move.time_us + time_us, move.number))
    for move in moves.checkpoints(i, j):
        later, again = best[-move.number, j], best[i, -move.number]
        need = max(move.need_bytes, move.held_bytes + later[0], again[0])
        found.append((need, move.time_us + later[1] + again[1], move.number))
    need, time_us, number = min(found)
    if number >= 0:
        option = moves.choices[i].options[number]
        return need, time_us, Inner(i, option, best[i + 1, j][2])
    return need, time_us, Checkpoint(i, -number, best[-number, j][2], best[i, -number][2])
