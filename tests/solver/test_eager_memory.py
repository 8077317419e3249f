"""Eager's problem: nodes hold what they use, expressions their temporaries."""

from __future__ import annotations

from dataclasses import replace

from remat_gen.solver.law.eager_memory import of_eager
from remat_gen.solver.law.problem import Held, Operation, Problem, Value

SAVED, GIVEN, POWER, FACTOR, PRODUCT, WIDE, SUM = range(7)


def backward(name: str, inputs: tuple[int, ...], output: int, node: int | None = 1) -> Operation:
    return Operation(name, 1.0, 0, inputs, (output,), backward=True, node=node)


def problem(*operations: Operation) -> Problem:
    sizes = [8, 8, 8, 8, 8, 8, 4]
    values = [Value(str(v), nbytes, Held.FREE) for v, nbytes in enumerate(sizes)]
    values[SUM] = Value("sum", 4, Held.SEGMENT)
    forward = Operation("forward", 1.0, 0, (), (SAVED,), backward=False)
    return Problem((forward, *operations), tuple(values), given=(GIVEN,))


def read(made: Problem) -> list[set[int]]:
    return [set(operation.inputs) for operation in made.operations[1:]]


def test_an_expression_holds_its_temporaries_to_its_result() -> None:
    """As in `grad * (exponent * self.pow(exponent - 1))`."""
    made = problem(
        backward("power", (SAVED,), POWER),
        backward("factor", (POWER,), FACTOR),
        backward("product", (GIVEN, FACTOR), PRODUCT),
        backward("reader", (PRODUCT,), SUM, node=2),
    )
    assert read(of_eager(made)) == [
        {SAVED},
        {POWER},
        {GIVEN, FACTOR, POWER, SAVED},  # and what was saved for the node
        {PRODUCT},
    ]


def test_what_is_behind_a_node_holds_no_temporaries() -> None:
    """Autograd sums up a broadcast gradient when the formula's own temporaries are gone."""
    made = problem(
        backward("power", (SAVED,), POWER),
        backward("wide", (GIVEN, POWER), WIDE),
        backward("sum", (WIDE,), SUM),
    )
    assert read(of_eager(made)) == [{SAVED}, {GIVEN, POWER}, {WIDE, GIVEN, SAVED}]


def test_expressions_that_share_nothing_end_apart() -> None:
    made = problem(
        backward("power", (SAVED,), POWER),
        backward("product", (GIVEN, POWER), PRODUCT),
        backward("factor", (SAVED,), FACTOR),
        backward("wide", (GIVEN, FACTOR), WIDE),
        backward("reader", (PRODUCT, WIDE), SUM, node=2),
    )
    assert read(of_eager(made)) == [
        {SAVED},
        {GIVEN, POWER},
        {SAVED},
        {GIVEN, FACTOR, SAVED},
        {PRODUCT, WIDE},
    ]


def test_what_belongs_to_no_node_is_left_alone() -> None:
    made = problem(backward("add", (SAVED, GIVEN), PRODUCT, None), backward("sum", (PRODUCT,), SUM))
    assert of_eager(made) == made


def test_what_a_node_saves_and_does_not_read_it_holds() -> None:
    gradient = replace(backward("power", (GIVEN,), POWER), saved=(SAVED,))
    made = problem(gradient, backward("sum", (POWER,), SUM, node=2))
    assert read(of_eager(made)) == [{GIVEN, SAVED}, {POWER}]


def test_zeros_that_a_node_fills_are_there_once() -> None:
    filling = replace(backward("fill", (POWER, GIVEN), FACTOR), fills=POWER)
    made = of_eager(
        problem(backward("zeros", (GIVEN,), POWER), filling, backward("sum", (FACTOR,), SUM))
    )
    assert made.operations[2].over == POWER
    assert read(made) == [{GIVEN}, {POWER, GIVEN}, {FACTOR, GIVEN}]
