"""Deep calls find room for their frames, at whatever depth they begin."""

from __future__ import annotations

import resource
from collections.abc import Callable

import pytest

from remat_gen.capture.process.frames import in_large_chunk

CALLS = 2000
DEPTHS = range(250)  # in steps of about 100 bytes: more than a chunk of 16 KiB in all
MANY = ", ".join(f"a{i}=0" for i in range(60))  # a frame of more than such a step
callee = eval(f"lambda n, {MANY}: n")


def loop() -> int:
    """Call so often that a page for each call is seen."""
    return sum(map(callee, range(CALLS)))


def at_depth(depth: int, function: Callable[[], int]) -> int:
    return at_depth(depth - 1, function) if depth else function()


def most_faults(function: Callable[[], int]) -> int:
    """Return the most pages that the loop fetches, of all depths at which it may begin."""
    found = []
    for depth in DEPTHS:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        at_depth(depth, function)
        found.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return max(found)


def test_no_depth_fetches_a_page_for_each_call() -> None:
    if most_faults(loop) < CALLS:
        pytest.skip("this Python keeps frames in another way")
    assert most_faults(in_large_chunk(loop)) < CALLS / 10


def test_arguments_results_and_errors_pass() -> None:
    @in_large_chunk
    def divided(a: int, *, by: int) -> float:
        """Divide."""
        return a / by

    assert divided(6, by=3) == 2
    assert divided.__doc__ == "Divide."
    with pytest.raises(ZeroDivisionError):
        divided(1, by=0)
