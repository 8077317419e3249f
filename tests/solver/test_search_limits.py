"""What bounds a search: counts, and with them processor time on graphs of up to 1,000 nodes."""

from __future__ import annotations

import time
from random import Random

import pytest

from remat_gen.solver.blocks.partition import partition
from remat_gen.solver.chain import program_front
from remat_gen.solver.law.bare_graph import BareGraph, Node
from remat_gen.solver.solve import InfeasibleError, Solver

LIMIT_S = 60


def deep_chain(length: int) -> BareGraph:
    """Return layers that all differ; backward reads what a layer reads and makes."""
    random = Random(1)
    nodes: list[Node] = []

    def add(name: str, *inputs: int) -> None:
        time_us, nbytes = float(random.randint(1, 10)), random.randint(1, 16)
        nodes.append(Node(name, time_us, nbytes, name.startswith("b"), inputs))

    for i in range(length + 1):
        add(f"f{i}", *range(i)[-1:])
    for i in reversed(range(length)):
        add(f"b{i}", *dict.fromkeys((len(nodes) - 1, i, i + 1)))
    return BareGraph(tuple(nodes))


def test_z3_solves_one_chain_of_what_is_a_chain_of_single_operations() -> None:
    problem = deep_chain(40).staged()[0]
    (chain,) = program_front._solved_chains(problem, partition(problem))
    assert max(block.stop - block.start for block in chain.blocks) <= 12


def test_rockmate_is_the_same_where_it_begins_with_what_rotor_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = deep_chain(12).staged()[0]
    anew = program_front.build_front(problem, "rockmate")
    rotor = program_front.build_front(problem, "rotor")
    monkeypatch.delattr(program_front, "simple_choices")
    begun = program_front.build_front(problem, "rockmate", rotor=rotor)
    assert begun.grid.candidates == anew.grid.candidates


@pytest.mark.alone
def test_a_thousand_nodes_within_a_minute_where_nothing_fits() -> None:
    heard: list[str] = []
    solver = Solver(deep_chain(500), "auto", lambda what, _done, _all: heard.append(what))
    begun = time.process_time()
    with pytest.raises(InfeasibleError) as error:
        solver.solve(solver.plain.peak_bytes // 100)
    assert time.process_time() - begun < LIMIT_S
    assert heard.count("smallest budget") > 1
    assert error.value.smallest_bytes < solver.plain.peak_bytes // 15
