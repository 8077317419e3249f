"""What stands alone between layers is no block of its own, and layers that are alike stay alike."""

from __future__ import annotations

from solver_problems import Builder

from remat_gen.solver.blocks.partition import SMALL_LAYER, partition
from remat_gen.solver.law.problem import Problem


def step(rows: list[tuple[str, str]]) -> Problem:
    """Return a chain of operations (kind, layer), each with a backward that needs its result."""
    b = Builder()
    x = b.value("x", 8)
    b.given.append(x)
    made = []
    for i, (kind, layer) in enumerate(rows):
        (x,) = b.op(f"f{i}.{kind}", [x], [8], layer=layer)
        made.append(x)
    (d,) = b.op("d", [x], [8], backward=True)
    for i, value in reversed(list(enumerate(made))):
        (d,) = b.op(f"b{i}", [value, d], [8], backward=True)
    return b.problem()


def blocks(rows: list[tuple[str, str]]) -> list[int]:
    """Return the number of operations of each block."""
    return [block.stop - block.start for block in partition(step(rows)).blocks]


DOWN = [("conv", "down.0"), ("norm", "down.0")]


def test_a_pooling_joins_the_layer_behind_it() -> None:
    other = [("wide", "down.1"), ("norm", "down.1")]
    assert blocks([*DOWN, ("pool", ""), *other]) == [2, 3]


def test_two_operations_join_it_and_three_do_not() -> None:
    other = [("wide", "down.1"), ("norm", "down.1")]
    assert blocks([*DOWN, ("pool", ""), ("cat", ""), *other]) == [2, 4]
    assert blocks([*DOWN, ("pool", ""), ("cat", ""), ("add", ""), *other]) == [2, 3, 2]


def test_layers_that_are_alike_stay_alike() -> None:
    again = [(kind, "down.1") for kind, _ in DOWN]
    assert blocks([*DOWN, ("pool", ""), *again]) == [2, 1, 2]


def test_layers_behind_the_joined_one_merge_with_it_as_before() -> None:
    up = [("wide", "down.1"), ("grow", "grow.0")]
    assert blocks([*DOWN, ("pool", ""), *up]) == [2, 3]


def test_layers_of_some_size_are_blocks_of_their_own() -> None:
    large = [(f"kind{i}", "h.0") for i in range(SMALL_LAYER + 1)]
    again = [(kind, "h.1") for kind, _ in large]
    assert blocks([*large, *again]) == [len(large)] * 2
    down = [("norm", "h.2"), ("down", "h.2")]
    assert blocks([*large, *down, *again]) == [len(large), 2, len(large)]


def test_a_layer_of_a_single_operation_joins_what_is_before_it() -> None:
    large = [(f"kind{i}", "h.0") for i in range(SMALL_LAYER + 1)]
    again = [(kind, "h.2") for kind, _ in large]
    assert blocks([*large, ("grow", "h.1"), *again]) == [len(large) + 1, len(large)]


def test_small_layers_are_put_together() -> None:
    rows = [(f"kind{i}", f"h.{i}") for i in range(SMALL_LAYER + 3)]
    assert blocks(rows) == [len(rows)]
