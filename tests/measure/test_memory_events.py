"""Every byte that the CPU allocates is seen, exactly."""

import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remat_gen.capture.profile.memory_events import recorded_memory, running_sum


def test_spans_are_exact() -> None:
    old = torch.empty(5000)
    with recorded_memory() as recording:
        with recording.mark("make"):
            a = torch.empty(1000)
            b = torch.empty(100)
        del a
        with recording.mark("replace"):
            c = torch.empty(2000)
            del b
            d = torch.empty(10)
        del c, d
        with recording.mark("forget what is older"):
            del old

    make, replace, forget = recording.spans
    assert (make.before_bytes, make.highest_bytes, make.after_bytes) == (0, 4400, 4400)
    assert (replace.before_bytes, replace.highest_bytes, replace.after_bytes) == (400, 8400, 8040)
    assert (forget.before_bytes, forget.highest_bytes, forget.after_bytes) == (0, 0, 0)
    assert [e.nbytes for e in replace.events] == [8000, -400, 40]


def test_autograd_and_record_function_hide_nothing() -> None:
    x = torch.ones(256, requires_grad=True)
    with recorded_memory() as recording, recording.mark("step"):
        y = x.exp()  # 1024 bytes, kept for backward
        y.backward(torch.ones_like(y))
    assert recording.spans[0].highest_bytes == 3 * 1024  # y, its gradient, x.grad
    assert recording.spans[0].after_bytes == 2 * 1024


def test_the_profilers_own_lines_are_kept_off_stderr_and_nothing_else_is(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with recorded_memory():
        torch.empty(1)
        os.write(2, b"a line of the user's\n")
    assert capfd.readouterr().err == "a line of the user's\n"


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 100)), max_size=30))
def test_running_sum_equals_what_is_live(pairs: list[tuple[int, int]]) -> None:
    """Each address is allocated when dead, freed when live; a model of what lives must agree."""
    live: dict[int, int] = {}
    events, totals = [], []
    for time_ns, (address, nbytes) in enumerate(pairs):
        if address in live:
            events.append((time_ns, address, -live.pop(address)))
        else:
            live[address] = nbytes
            events.append((time_ns, address, nbytes))
        totals.append(sum(live.values()))
    assert [e.total_bytes for e in running_sum(events)] == totals


def test_stale_frees_count_nothing() -> None:
    events = running_sum([(0, 1, -64), (1, 2, 100), (2, 2, 30), (3, 2, -30)])
    assert [(e.nbytes, e.total_bytes) for e in events] == [(100, 100), (-70, 30), (-30, 0)]
