"""Chain profiles: rotor's dynamic program, as published, beside ours.

python benchmarks/rotor_chains.py [PROFILE …] > benchmarks/results/rotor_chains.md

Without PROFILEs, files of rotor's `Chain`: the ResNets of its paper, their blocks as stages, with
bytes and FLOPs by formula (rotor's repository measures its profiles and holds none), and a random
chain. Rotor rounds sizes up to 500 slots; the finer column has 10 times as many.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

from planned import print_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "solver"))

from rotor_recurrence import least_time

from remat_gen.bare.rotor_file import ChainProfile, parse_chain, problem_of
from remat_gen.solver.solve import InfeasibleError, Solver

SHARES = (90, 70, 50, 40)
SLOTS, FINER = 500, 5_000
IMAGES, RATE = 32, 10e6  # images of 224 x 224; FLOPs a microsecond
DEPTHS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
DEPTHS |= {152: (3, 8, 36, 3)}
BASIC = 34  # the deepest ResNet of two convolutions a block; then three, four times as wide
HEAD = ("chain", "stages", "budget", "rotor", "finer", "our rotor", "auto", "bound", "s")


def resnet(depth: int) -> ChainProfile:
    """Return a ResNet: the stem, a stage for each block, and the head with the loss."""
    stages = [(64 * 56**2, 3 * 64 * 112**2, 3 * 64 * 49 * 112**2)]  # made, saved, multiplications
    channels, side = 64, 56
    for level, blocks in enumerate(DEPTHS[depth]):
        for block in range(blocks):
            width, stride = 64 * 2**level, 2 if level and not block else 1
            out = width * (1 if depth <= BASIC else 4)
            stages.append(_block(depth, channels, width, side, side // stride))
            channels, side = out, side // stride
    stages.append((1000, channels, channels * 1000))
    x = [3 * 224**2, *(made for made, _, _ in stages)]
    whole = [x[0], *(made + saved for made, saved, _ in stages)]
    forward = tuple(2 * count * IMAGES / RATE for _, _, count in stages)
    inside = tuple(max(a, b) for a, b in pairwise(x))
    return ChainProfile(
        forward,
        (*(2 * t for t in forward), 0.0),
        tuple(4 * IMAGES * n for n in x),
        tuple(4 * IMAGES * n for n in whole),
        (0,) * len(stages),
        (*(4 * IMAGES * n for n in inside), 0),
    )


def _block(depth: int, channels: int, width: int, side: int, new: int) -> tuple[int, int, int]:
    """Return what a block makes and saves beside it, in numbers, and its multiplications."""
    small, out = width * new**2, width * (1 if depth <= BASIC else 4)
    if depth <= BASIC:
        saved, count = 3 * small, (channels + width) * 9 * small
    else:
        saved = 2 * width * side**2 + 2 * small + out * new**2
        count = channels * width * side**2 + (9 * width + out) * small
    if channels != out or side != new:
        saved, count = saved + out * new**2, count + channels * out * new**2
    return out * new**2, saved, count


def heterogeneous(stages: int, seed: int) -> ChainProfile:
    """Return a chain whose stages all differ, with temporaries."""
    random = Random(seed)

    def numbers(least: int, most: int, count: int) -> tuple[int, ...]:
        return tuple(random.randint(least, most) for _ in range(count))

    x = numbers(1, 100, stages + 1)
    whole = tuple(n + more for n, more in zip(x, numbers(0, 400, stages + 1), strict=True))
    times = numbers(1, 50, stages), (*numbers(2, 100, stages), 0)
    return ChainProfile(*times, x, whole, numbers(0, 50, stages), (*numbers(0, 50, stages), 0))


def chains(files: list[str]) -> Iterator[tuple[str, ChainProfile]]:
    """Yield the profiles."""
    for name in files:
        yield Path(name).stem, parse_chain(Path(name).read_text(encoding="utf-8"))
    if not files:
        yield from ((f"ResNet-{depth}", resnet(depth)) for depth in DEPTHS)
        yield "random, seed 1", heterogeneous(24, 1)


def ours(solver: Solver, budget: int) -> tuple[float, float]:
    """Return the time and the bound of a strategy of ours, infinite where nothing fits."""
    try:
        found = solver.solve(budget)
    except InfeasibleError:
        return float("inf"), float("inf")
    return found.replay.time_us, found.lower_bound_us


def rows(name: str, profile: ChainProfile) -> Iterator[tuple[str, ...]]:
    """Yield a line for each budget."""
    problem = problem_of(profile)
    rotor = Solver(problem, "rotor")
    for share in SHARES:
        budget = rotor.plain.peak_bytes * share // 100
        start = time.process_time()
        auto, bound = ours(Solver(problem, "auto"), budget)
        seconds = time.process_time() - start
        theirs = [least_time(profile, budget, slots) for slots in (SLOTS, FINER)]
        times = [*theirs, ours(rotor, budget)[0], auto, bound]
        cells = [f"{t / rotor.plain.time_us:.4f}" if t < float("inf") else "-" for t in times]
        yield name, str(len(profile.fw)), f"{share} %", *cells, f"{seconds:.1f}"


def main() -> None:
    """Print the table."""
    print("# Rotor's chains\n")
    print("Times over running each stage once; budgets are shares of the plain peak, x₀ inside;")
    print("processor seconds of `auto`. `-`: nothing fits, or nothing was found.\n")
    print_table(HEAD, [row for chain in chains(sys.argv[1:]) for row in rows(*chain)])


if __name__ == "__main__":
    main()
