"""The graph at smaller lengths is the one that is traced there; which lengths are looked at."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from varying_models import GPT, RESNET, UNET

from remat_gen.capture.load.load import load
from remat_gen.capture.lower.shorter_steps import sized, smaller_lengths
from remat_gen.capture.trace.trace import trace_loaded
from remat_gen.ir.graph import Graph
from remat_gen.ir.size import Length

SOURCES = {"gpt": GPT, "resnet": RESNET, "unet": UNET}


def traced(folder: Path, source: str, dynamic: tuple[str, ...] | None) -> Graph:
    path = folder / "net.py"
    path.write_text(source, encoding="utf-8")
    return trace_loaded(load(path, device="cpu"), dynamic).graph


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_it_is_the_graph_that_is_traced_there(tmp_path: Path, source: str) -> None:
    varying = traced(tmp_path, source, None)
    (length,) = varying.lengths
    there = sized(varying, (3,))
    fixed = traced(tmp_path, source.replace(f"({length.maximum}, ", "(3, "), ())
    assert there.storages == fixed.storages
    for name, tensor in fixed.tensors.items():
        at = there.tensors[name]
        assert (at.shape, at.stride, at.offset) == (tensor.shape, tensor.stride, tensor.offset)


def test_at_the_examples_lengths_nothing_changes(tmp_path: Path) -> None:
    graph = traced(tmp_path, UNET, None)
    assert sized(graph, (graph.lengths[0].maximum,)) == graph


def lengths_of(*ranges: tuple[int, int]) -> tuple[Length, ...]:
    return tuple(Length(f"n{i}", low, high, ()) for i, (low, high) in enumerate(ranges))


@pytest.mark.parametrize(
    ("ranges", "numbers"),
    [
        ((), ()),
        (((1, 2),), ((1,),)),
        (((1, 9),), ((4,), (2,), (1,))),
        (((3, 9),), ((4,), (3,))),
        (((8, 8),), ()),
        (((2, 4), (1, 2)), ((4, 1), (2, 2), (2, 1))),
    ],
)
def test_each_is_halved_down_to_its_smallest(
    ranges: tuple[tuple[int, int], ...], numbers: tuple[tuple[int, ...], ...]
) -> None:
    assert smaller_lengths(lengths_of(*ranges)) == numbers


_RANGES = st.lists(
    st.tuples(st.integers(1, 9), st.integers(0, 5000)).map(lambda pair: (pair[0], sum(pair))),
    max_size=4,
)


@given(_RANGES)
def test_lengths_are_in_their_range_and_few(ranges: list[tuple[int, int]]) -> None:
    found = smaller_lengths(lengths_of(*ranges))
    assert len(set(found)) == len(found) <= 64
    assert tuple(high for _, high in ranges) not in found
    for numbers in found:
        assert all(low <= n <= high for n, (low, high) in zip(numbers, ranges, strict=True))
    for i, (low, high) in enumerate(ranges):
        alone = {n[i] for n in found if all(m == r[1] for m, r in _others(n, ranges, i))}
        assert low == high or low in alone
        assert sum(alone) <= high + math.ceil(math.log2(high)) * low
    smallest = tuple(low for low, _ in ranges)
    assert smallest in found or all(low == high for low, high in ranges)


def _others(
    numbers: tuple[int, ...], ranges: list[tuple[int, int]], i: int
) -> list[tuple[int, tuple[int, int]]]:
    pairs = list(zip(numbers, ranges, strict=True))
    return pairs[:i] + pairs[i + 1 :]
