"""Rotor's dynamic program, from its paper (Beaumont et al., RR-9302, theorem 1): the rival.

C(s, t, m) is the least time to run stages s … t forward and backward within m slots beside x_s, the
gradient behind t among them. Either s runs with its tape, which stays until its own backward; or
x_j is retained, for some j, and s … j - 1 run again when their turn comes.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from remat_gen.bare.rotor_file import ChainProfile

Times = NDArray[np.float64]


def least_time(profile: ChainProfile, memory: int, slots: int, *, tapes: bool = False) -> float:
    """Return the time of the program that takes the least, infinite where none fits.

    Memory is counted in `slots`, and what does not fill one is rounded up, as rotor does. With
    `tapes` every forward makes its tape, as in our problem.
    """
    unit = memory / slots

    def in_slots(sizes: tuple[int, ...]) -> list[int]:
        return [int(-(-size // unit)) for size in sizes]

    x, whole = [*in_slots(profile.cw), 0], [*in_slots(profile.cbw), 0]
    made = whole if tapes else x
    up, down = [*in_slots(profile.ftmp), 0], in_slots(profile.btmp)
    forward, stages = [*profile.fw, 0.0], len(profile.fw)
    before = list(accumulate(forward, initial=0.0))
    best: dict[tuple[int, int], Times] = {}
    for s in range(stages + 1):
        alone = max(x[s + 1] + whole[s + 1] + up[s], x[s] + x[s + 1] + whole[s + 1] + down[s])
        best[s, s] = _from(alone, np.full(slots + 1, forward[s] + profile.bw[s]))
    for length in range(1, stages + 1):
        for s in range(stages + 1 - length):
            t = s + length
            kept = best[s, s] + _within(best[s + 1, t], whole[s + 1])
            inside = [made[s + 1] + up[s]]
            inside += [x[j] + made[j + 1] + up[j] for j in range(s + 1, t)]
            again = [
                before[j] - before[s] + _within(best[j, t], x[j]) + best[s, j - 1]
                for j in range(s + 1, t + 1)
            ]
            rerun = _from(x[t + 1] + max(inside), np.min(again, axis=0))
            best[s, t] = np.minimum(kept, rerun)
    return float(_within(best[0, stages], x[0])[slots])


def _from(least: int, times: Times) -> Times:
    """Return times that take at least so many slots."""
    return np.where(np.arange(len(times)) >= least, times, np.inf)


def _within(times: Times, taken: int) -> Times:
    """Return the times in what is left where so many slots are taken."""
    taken = min(taken, len(times))
    return np.concatenate([np.full(taken, np.inf), times[: len(times) - taken]])
