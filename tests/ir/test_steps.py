"""The lines of a plan's schedule, written and read again."""

from __future__ import annotations

import pytest

from remat_gen.ir.steps import FREE, RUN, read_step, runs_in, step_line


@pytest.mark.parametrize(
    ("verb", "names", "line"),
    [(RUN, ("h.0.up",), "run h.0.up"), (FREE, ("x", "h.0.free"), "free x h.0.free")],
)
def test_a_line_is_read_as_it_was_written(verb: str, names: tuple[str, ...], line: str) -> None:
    assert step_line(verb, names) == line
    assert read_step(line) == (verb, names)


def test_what_runs_in_order_and_again() -> None:
    lines = ("run up", "free x", "run run", "free up run", "run up", "up", "")
    assert runs_in(lines) == ("up", "run", "up")
