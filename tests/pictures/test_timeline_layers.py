"""The timeline's bands: together they are the replay's bytes, each is what it is called."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from remat_gen.picture.timeline_bands import MODULES, bands_of, total_bytes
from remat_gen.picture.timeline_owners import Part, bytes_by_run, residence_of
from remat_gen.picture.timeline_view import thinned
from remat_gen.review.retrace import Retraced
from remat_gen.solver.law.problem import Held, Operation, Problem, Value
from remat_gen.solver.law.replay import replay
from remat_gen.solver.solve import Solver


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Return a chain with skips, parameter gradients, an output and an incoming gradient."""
    length = draw(st.integers(2, 6))
    sizes = st.integers(0, 9)
    values: list[Value] = []
    operations: list[Operation] = []

    def value(held: Held = Held.FREE) -> int:
        values.append(Value(f"v{len(values)}", draw(sizes), held))
        return len(values) - 1

    def add(inputs: list[int], outputs: list[int], backward: bool, layer: str = "") -> None:
        read = tuple(dict.fromkeys(inputs))
        rerunnable = not backward and draw(st.integers(0, 4)) > 0
        name = f"o{len(operations)}"
        work = draw(st.integers(0, 3))
        new = Operation(name, 1.0, work, read, tuple(outputs), backward, rerunnable, "", layer)
        operations.append(new)

    forward: list[int] = []
    for i in range(length):
        read = forward[-1:] + ([draw(st.sampled_from(forward))] if forward else [])
        last = i == length - 1
        made = value(Held.STEP if last else Held.FREE)
        add(read, [made, value()], False, f"h.{i // 2}")
        forward.append(made)
    given_value = d = value(draw(st.sampled_from([Held.SEGMENT, Held.STEP])))
    for i in reversed(range(length)):
        d_next, d_weight = value(), value(Held.SEGMENT)
        add([d, draw(st.sampled_from(forward)), forward[i]], [d_next, d_weight], True)
        d = d_next
    return Problem(tuple(operations), tuple(values), (given_value,))


@settings(max_examples=60, deadline=None)
@given(problems(), st.sampled_from(["none", "rotor", "per-layer"]))
def test_the_stays_are_the_replays_bytes(problem: Problem, strategy: str) -> None:
    solver = Solver(problem, strategy)
    schedule = solver.solve(solver.smallest_budget().nbytes).schedule
    residence = residence_of(problem, schedule)
    resident = bytes_by_run(residence, residence.stays)
    inside = [n + run.own_bytes for n, run in zip(resident, residence.runs, strict=True)]
    replayed = replay(problem, schedule)
    assert inside == [moment.nbytes for moment in replayed.timeline]
    assert sum(run.again for run in residence.runs) == len(replayed.reruns)


def test_the_bands_of_a_model_are_the_replays_bytes(gpt: Retraced) -> None:
    residence = residence_of(gpt.problem, gpt.schedule)
    bands = bands_of(gpt.traced.graph, residence, "GPT")
    assert total_bytes(bands) == [moment.nbytes for moment in gpt.replay.timeline]
    retained = [band.label for band in bands if band.part is Part.RETAINED]
    assert [label for label in retained if "h." in label] == ["h.0", "h.1", "h.2", "h.3"]
    assert "GPT" in retained
    assert [band.part for band in bands[-3:]] == [Part.RERUN, Part.GRADIENT, Part.TRANSIENT]


def test_retained_bytes_are_the_plans(gpt: Retraced) -> None:
    """What the bands retain when backward begins is what the plan says its blocks retain."""
    residence = residence_of(gpt.problem, gpt.schedule)
    bands = bands_of(gpt.traced.graph, residence)
    crossing = sum(
        band.nbytes[residence.backward_at] for band in bands if band.part is Part.RETAINED
    )
    planned = gpt.existing.plan.blocks
    assert crossing == sum(n for block in planned for n in block.retained.values())


def test_nothing_is_run_again_in_forward(gpt: Retraced) -> None:
    residence = residence_of(gpt.problem, gpt.schedule)
    bands = {band.part: band for band in bands_of(gpt.traced.graph, residence)}
    assert not any(bands[Part.RERUN].nbytes[: residence.backward_at])
    assert any(bands[Part.RERUN].nbytes[residence.backward_at :])
    assert not any(bands[Part.GRADIENT].nbytes[: residence.backward_at])


def test_there_are_not_too_many_bands(gpt: Retraced) -> None:
    """Every operation a module of its own: neighbours are merged, no byte is lost."""
    graph = gpt.traced.graph
    operations = tuple(replace(o, module=f"m{i}") for i, o in enumerate(graph.operations))
    residence = residence_of(gpt.problem, gpt.schedule)
    bands = bands_of(replace(graph, operations=operations), residence)
    assert len(bands) == MODULES + 3
    assert all(" … " in band.label for band in bands if band.part is Part.RETAINED)
    assert total_bytes(bands) == [moment.nbytes for moment in gpt.replay.timeline]


@given(st.lists(st.integers(0, 100), min_size=1, max_size=200), st.integers(1, 20))
def test_thinning_keeps_the_peak(totals: list[int], most: int) -> None:
    kept = thinned([float(i) for i in range(len(totals) + 1)], totals, most)
    assert kept[0] == 0 and kept == sorted(set(kept)) and len(kept) <= max(most + 1, 1)
    assert max(totals[i] for i in kept) == max(totals)
