"""Where memory runs out in forward the step goes on with the next schedule, and is eager's."""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from rung_files import Rungs, rungs_of
from varying_models import GPT, RESNET, model

from remat_gen.verification.compare import Match, compare

# writes into its input, draws, and has no buffers
WRITES = model(
    """
    self.up = nn.Linear(8, 32)
    self.down = nn.Linear(32, 8)
    """,
    """
    x.mul_(2)
    h = F.gelu(self.up(x))
    h = F.dropout(h, 0.5, self.training) * h.sigmoid()
    return self.down(F.gelu(h)).sum()
    """,
    "(torch.randn(64, 8),)",
)
CASES = {
    "gpt": (GPT, "60%", ("ids:1", "targets:1"), "length<=5, length<=8"),
    "resnet": (RESNET, "70%", ("x:0",), "batch<=6, batch<=11"),
    "writes": (WRITES, "70%", ("x:0",), "batch<=20, batch<=40"),
}


@pytest.fixture(scope="module", params=CASES)
def made(request: pytest.FixtureRequest) -> Rungs:
    return rungs_of(*CASES[request.param])


@pytest.fixture
def lengths(made: Rungs) -> dict[str, int]:
    return dict(made.generated.plan.rungs[0].limits)


@pytest.fixture
def programs(made: Rungs) -> list[list[str]]:
    """Return the classes that each program runs, in the order in which a step asks them."""
    names = re.findall(r"^        def (run_\w+)\(", made.generated.text, re.MULTILINE)
    return [made.written(name) for name in names]


@contextmanager
def out_of_memory(made: Rungs, at: set[int], method: str = "forward") -> Iterator[list[str]]:
    """Let memory run out at the end of some of the blocks that run; yield the names of all.

    When another block begins, nothing may be alive any more of what the failed step had retained.
    """
    ran: list[str] = []
    values: list[weakref.ref[torch.Tensor]] = []

    def failing(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
        def fails(block: Any, step: list[Any], *rest: Any) -> Any:
            assert not any(value() is not None for value in values)
            values.clear()
            result = run(block, step, *rest)
            ran.append(name)
            if len(ran) - 1 in at:
                kept = (value for b in step for value in vars(b).values())
                values.extend(weakref.ref(v) for v in kept if isinstance(v, torch.Tensor))
                raise torch.OutOfMemoryError("no memory is left")
            return result

        return fails

    module = vars(made.planned.module)
    kinds = [kind for kind in module.values() if isinstance(kind, type)]
    blocks = [kind for kind in kinds if "PlannedBlock" in {b.__name__ for b in kind.__bases__}]
    gc.collect()
    gc.disable()  # what is in a cycle would stay
    try:
        with pytest.MonkeyPatch.context() as patch:
            for kind in blocks:
                patch.setattr(kind, method, failing(kind.__name__, getattr(kind, method)))
            yield ran
    finally:
        gc.enable()


def assert_as_eager(made: Rungs, lengths: dict[str, int], at: set[int]) -> list[str]:
    """Assert that two steps, of which the first fails, leave what eager's do; return what ran."""
    eager = made.steps(made.original, **lengths)
    with out_of_memory(made, at) as ran, pytest.warns(UserWarning, match="memory ran out"):
        planned = made.steps(made.planned, **lengths)
    for wanted, got in zip(eager, planned, strict=True):
        assert wanted.keys() == got.keys()
        found = [compare(*key, wanted[key], got[key]) for key in wanted]
        assert [f for f in found if f.match is not Match.BITWISE] == []
    return ran


def test_the_next_schedule_is_taken_wherever_it_fails(
    made: Rungs, lengths: dict[str, int], programs: list[list[str]]
) -> None:
    first, second, _ = programs
    for i in range(len(first)):
        ran = assert_as_eager(made, lengths, {i})
        assert ran == [*first[: i + 1], *second, *first]


def test_the_last_schedule_is_taken_after_two(
    made: Rungs, lengths: dict[str, int], programs: list[list[str]]
) -> None:
    first, second, last = programs
    n, m = len(first), len(second)
    ran = assert_as_eager(made, lengths, {n - 1, n + m - 1})
    assert ran == [*first, *second, *last, *first]


def test_the_last_schedule_s_error_is_raised(
    made: Rungs, lengths: dict[str, int], programs: list[list[str]]
) -> None:
    first, second, last = map(len, programs)
    at = {first - 1, first + second - 1, first + second + last - 1}
    with (
        out_of_memory(made, at),
        pytest.warns(UserWarning, match="memory ran out"),
        pytest.raises(torch.OutOfMemoryError, match="no memory is left"),
    ):
        made.steps(made.planned, **lengths)


def test_memory_may_run_out_as_a_step_is_recorded(
    made: Rungs,
    lengths: dict[str, int],
    programs: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind = vars(made.planned.module)["NextIfOutOfMemory"]
    record = kind.record

    def fails(recording: Any) -> None:
        record(recording)
        raise torch.OutOfMemoryError("no memory is left")

    monkeypatch.setattr(kind, "record", fails)
    assert assert_as_eager(made, lengths, set()) == 2 * programs[-1]


def test_memory_that_runs_out_in_backward_is_named(made: Rungs, lengths: dict[str, int]) -> None:
    with (
        out_of_memory(made, {0}, "backward") as ran,
        pytest.raises(torch.OutOfMemoryError) as raised,
    ):
        made.steps(made.planned, **lengths)
    (note,) = raised.value.__notes__
    assert f"net_remat.py: in the backward of {ran[0]}; plan with a smaller budget: " in note


def test_another_error_is_raised_as_it_is(made: Rungs, lengths: dict[str, int]) -> None:
    args, kwargs = made.arguments(**lengths)
    made.planned.model(*args, **kwargs)
    bad = [a.double() if a.is_floating_point() else a.to(torch.int32) for a in args]
    with pytest.raises((ValueError, RuntimeError)):
        made.planned.model(*bad, **kwargs)
