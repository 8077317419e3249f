"""Arithmetic on lengths: what is written is what is meant."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from remat_gen.capture.fx.symbolic_sizes import Sizes
from remat_gen.ir.errors import GraphError, UnwrittenSizeError
from remat_gen.ir.size import LENGTH, Length, Operand, Size, evaluate, lengths_in, write

NAMES = {"batch": "b", "length": "t"}
LENGTHS = {"batch": 7, "length": 3}
BATCH = Size(LENGTH, ("batch",), 7)


def size(operator: str, *operands: Operand) -> Size:
    made = Size(operator, operands, 0)
    return Size(operator, operands, evaluate(made, LENGTHS))


leaves = st.one_of(st.integers(-9, 9), st.sampled_from(sorted(NAMES)))
operands = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda op, a, b: size(op, a, b), st.sampled_from("+*"), inner, inner),
        st.builds(lambda a, b, c: size("+", a, b, c), inner, inner, inner),
        st.builds(
            lambda op, a, b: size(op, a, b),
            st.sampled_from(("//", "%", "/")),
            inner,
            st.integers(1, 5),
        ),
        st.builds(lambda a, b: size("max", a, b), inner, inner),
        st.builds(lambda a: size("**", a, 2), inner),
    ),
    max_leaves=8,
)


@given(operands)
def test_what_is_written_is_the_number(operand: Operand) -> None:
    text = write(operand, NAMES.__getitem__)
    assert eval(text, {"b": 7, "t": 3, "math": math}) == evaluate(operand, LENGTHS)


@pytest.mark.parametrize(
    ("operand", "text"),
    [
        (BATCH, "b"),
        (size("*", 8, "batch"), "8 * b"),
        (size("*", 8, "batch", "length"), "8 * b * t"),
        (size("+", "batch", -1), "b - 1"),
        (size("+", "batch", size("*", -1, size("//", "batch", 2))), "b - b // 2"),
        (size("+", "batch", size("*", -3, "length")), "b - 3 * t"),
        (size("//", size("+", "batch", 1), 2), "(b + 1) // 2"),
        (size("*", 2, size("//", "batch", 2)), "2 * (b // 2)"),
        (size("/", 1.0, size("float", "batch")), "1.0 / float(b)"),
        (size("+", size("/", "batch", 3), size("+", "length", 1)), "b / 3 + (t + 1)"),
        (size("math.sqrt", size("float", "batch")), "math.sqrt(float(b))"),
        (size("math.log2", size("float", "batch")), "math.log2(float(b))"),
        (size("**", size("float", "batch"), -0.5), "float(b) ** (-0.5)"),
        (size("math.ceil", size("/", "batch", 2)), "math.ceil(b / 2)"),
        (size("int", size("/", "length", 1.5)), "int(t / 1.5)"),
    ],
)
def test_how_a_size_is_written(operand: Operand, text: str) -> None:
    assert write(operand, NAMES.__getitem__) == text


def test_an_unknown_operator_is_refused() -> None:
    with pytest.raises(GraphError, match="unknown operator '@'"):
        evaluate(Size("@", ("batch", 2), 0), LENGTHS)


def test_lengths_are_found_in_tuples() -> None:
    assert list(lengths_in((3, (BATCH, "batch"), size("+", "length", 1)))) == ["batch", "length"]


def test_a_length_says_its_range() -> None:
    assert str(Length("batch", 1, 8, ())) == "batch <= 8"
    assert str(Length("batch", 2, 8, ())) == "2 <= batch <= 8"


def test_what_no_node_computes_in_an_order_is_refused() -> None:
    shapes = ShapeEnv()
    symbol = shapes.create_symbol(7, ConstantSource("n"), DimDynamic.DUCK)
    batch = shapes.create_symintnode(symbol, hint=7)
    sizes = Sizes({symbol: "batch"}, {"batch": Length("batch", 1, 7, ())})
    assert sizes.size(batch) == BATCH
    with pytest.raises(UnwrittenSizeError, match=r"follows from 3\.0\*ToFloat\(.*7 \* n // 10"):
        sizes.size(torch.sym_int(1.5 * batch * 2))
