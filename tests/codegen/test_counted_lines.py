"""Calls that differ in a number of their paths are written as a loop that runs the same calls."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remat_gen.codegen.expressions.counted_lines import looped
from remat_gen.codegen.module.schedule_table import _together


def ran(lines: list[str]) -> list[tuple[str, ...]]:
    """Return what lines of code call, as the arguments that each call has."""
    found: list[tuple[str, ...]] = []
    names: dict[str, Any] = {"run": lambda *given: found.append(given)}
    exec("\n".join(lines), names)
    return found


@pytest.mark.parametrize(
    ("calls", "written"),
    [
        (['run("h.0")', 'run("h.1")', 'run("h.2")'], None),
        (["run('A')"] * 3, None),
        ([f'run("h.{i}")' for i in range(4)], ["for i in range(4):", '    run(f"h.{i}")']),
        ([f'run("h.{i}")' for i in range(3, 9)], ["for i in range(3, 9):", '    run(f"h.{i}")']),
        (
            [f'run("{"ab"[i % 2]}", "h.{i}.x")' for i in range(6)],
            [
                "for i in range(0, 6, 2):",
                '    run("a", f"h.{i}.x")',
                '    run("b", f"h.{i + 1}.x")',
            ],
        ),
        (['run("core.0")'] * 5, ["for i in range(5):", '    run("core.0")']),
        ([f'run("h.{i}", "0.{i}")' for i in (5, 3, 1, 0)], None),
        ([f"run({i}.5)" for i in range(5)], None),
        (
            [f"self.h[{i}].rows = batch" for i in range(4)],
            ["for i in range(4):", "    self.h[i].rows = batch"],
        ),
        (
            [f'self.h[{i}].kept["1"] = self.of[{i + 1}]' for i in range(1, 5)],
            ["for i in range(1, 5):", '    self.h[i].kept["1"] = self.of[i + 1]'],
        ),
        ([f"self.rows = (batch, {i})" for i in range(4)], None),
        (
            [f'run("h.0", index={i + 1}, before={i})' for i in range(4)],
            ["for i in range(4):", '    run("h.0", index=i + 1, before=i)'],
        ),
        ([f'run("h.0", index={i}, scale=0.{i})' for i in range(4)], None),
        ([f'run("h.0", index={i}, before={2 * i})' for i in range(4)], None),
    ],
)
def test_what_is_a_loop(calls: list[str], written: list[str] | None) -> None:
    assert list(looped(calls, "i")) == (written or calls)


paths = st.tuples(st.sampled_from(["h.{}", "s.{}.b.2", "s.1.b.{}", "x"]), st.integers(0, 6))
texts = st.lists(paths.map(lambda p: p[0].format(p[1])), min_size=1, max_size=2)
calls = st.lists(texts.map(lambda given: f"run({', '.join(map(repr, given))})"), max_size=3)
counted = st.builds(
    lambda cycle, times, rise: [
        f'run("A{k}", "h.{t * rise + k}")' for t in range(times) for k in range(cycle)
    ],
    st.integers(1, 3),
    st.integers(1, 6),
    st.integers(0, 3),
)


@given(st.lists(counted | calls, max_size=5))
def test_a_loop_runs_the_same_calls(groups: list[list[str]]) -> None:
    lines = [line.replace("'", '"') for group in groups for line in group]
    written = list(looped(lines, "i"))
    assert ran(written) == ran(lines)
    assert len(written) <= len(lines)


def test_rows_of_a_table() -> None:
    rows = [(f"h.{i}.ln … {'xy'[i % 2]}", "up", "-", "2 MiB") for i in range(8)]
    assert list(_together(rows)) == [
        ("h.0,2-6.ln … x", "up", "-", "2 MiB each"),
        ("h.1,3-7.ln … y", "up", "-", "2 MiB each"),
    ]
    others = [(f"h.{i}.ln … x", "up", "-", "-") for i in range(4)]
    last = ("h.4.ln … x", "up", "-", "1 MiB")
    assert list(_together([*others, last])) == [("h.0-3.ln … x", "up", "-", "-"), last]
