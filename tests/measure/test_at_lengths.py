"""Workspace at smaller lengths: only what is more there is said, and refusals break nothing."""

from __future__ import annotations

from dataclasses import replace

import torch
from measure_graphs import Builder

from remat_gen.capture.profile.at_lengths import at_all_lengths
from remat_gen.capture.profile.profile import profile
from remat_gen.ir.costs import Cost, Smaller
from remat_gen.ir.graph import Graph, Kind, Ref
from remat_gen.ir.size import LENGTH, Layout, Length, Size

CPU = torch.device("cpu")
LARGEST = 4
_CUBE = (4, 8, 8)  # of a 3-D convolution with 4 channels: 4 KiB a sample, 108 KiB of columns


def times(factor: int) -> Size:
    return Size("*", (factor, Size(LENGTH, ("batch",), LARGEST)), factor * LARGEST)


def varying(build: Builder, layouts: dict[str, Layout], minimum: int = 1) -> Graph:
    lengths = (Length("batch", minimum, LARGEST, (("x", 0),)),)
    return replace(build.graph(), lengths=lengths, layouts=layouts)


def convolution(minimum: int = 1) -> Graph:
    build = Builder()
    batch = Size(LENGTH, ("batch",), LARGEST)
    x = build.tensor("x", (LARGEST, 4, *_CUBE))
    weight = build.tensor("w", (4, 4, 3, 3, 3))
    build.storages["w"] = replace(build.storages["w"], kind=Kind.PARAMETER)
    y = build.tensor("y", (LARGEST, 4, *_CUBE))
    options = ((1, 1, 1), (1, 1, 1), (1, 1, 1), False, (0, 0, 0), 1)
    build.operation("aten.convolution.default", [x, weight, None, *options], [y.name], name="conv")
    build.tensor("z", (LARGEST, 4, *_CUBE))
    build.operation("aten.relu.default", [y], ["z"], name="relu")
    layout = Layout((batch, 4, *_CUBE), (1024, 256, 64, 8, 1), 0)
    return varying(build, {"x": layout, "y": layout, "z": layout}, minimum)


def costs(graph: Graph) -> dict[str, Cost]:
    return dict(profile(graph, CPU, {}).operations)


def test_columns_of_one_sample_are_found() -> None:
    measured = costs(convolution())
    (there,) = measured["conv"].smaller
    assert there == Smaller((1,), 27 * 4 * 4 * 256)
    assert measured["conv"].workspace_bytes < there.workspace_bytes
    assert measured["relu"].smaller == ()


def test_lengths_below_the_smallest_are_not_looked_at() -> None:
    assert costs(convolution(minimum=2))["conv"].smaller == ()


def test_without_lengths_nothing_is_looked_at() -> None:
    graph = replace(convolution(), lengths=(), layouts={})
    assert costs(graph)["conv"].smaller == ()


def test_a_refusal_at_a_smaller_length_is_no_news() -> None:
    """Rows that do not vary are put beside rows that do: `cat` refuses elsewhere."""
    build = Builder()
    a, b = build.tensor("a", (LARGEST, 4)), build.tensor("b", (LARGEST, 4))
    build.tensor("y", (LARGEST, 8))
    build.operation("aten.cat.default", [(a, b), 1], ["y"], name="cat")
    measured = costs(varying(build, {"a": Layout((times(1), 4), (4, 1), 0)}))
    assert not measured["cat"].modelled
    assert measured["cat"].smaller == ()


def test_a_length_where_a_size_has_no_value_is_passed_over() -> None:
    graph = convolution()
    less = Size("+", (Size(LENGTH, ("batch",), LARGEST), -1), LARGEST - 1)
    none_at_1 = Size("//", (12, less), LARGEST)
    layout = Layout((none_at_1, 4, *_CUBE), (1024, 256, 64, 8, 1), 0)
    measured = costs(replace(graph, layouts={**graph.layouts, "z": layout}))
    assert not measured["conv"].modelled
    assert measured["conv"].smaller == ()


def test_what_grows_as_the_length_falls_is_found() -> None:
    """Zeros up to a fixed length: 5 - batch rows, one for the example."""
    build = Builder()
    batch = Size(LENGTH, ("batch",), LARGEST)
    rows = Size("+", (5, Size("*", (-1, batch), -LARGEST)), 1)
    build.tensor("y", (1, 64))
    build.operation("aten.zeros.default", [(rows, 64)], ["y"], name="zeros")
    graph = varying(build, {"y": Layout((rows, 64), (64, 1), 0)})
    found = costs(graph)["zeros"].smaller
    assert [there.lengths for there in found] == [(2,), (1,)]
    assert all(there.workspace_bytes == 0 for there in found)


def test_sizes_that_are_arguments_follow_the_length() -> None:
    build = Builder()
    x = build.tensor("x", (LARGEST, 4))
    build.tensor("y", (LARGEST * 4,))
    whole = times(4)
    build.operation("aten.reshape.default", [Ref(x.name), (whole,)], ["y"], name="reshape")
    graph = varying(build, {"x": Layout((times(1), 4), (4, 1), 0), "y": Layout((whole,), (1,), 0)})
    assert costs(graph)["reshape"].smaller == ()


def test_the_examples_integers_number_no_rows_that_are_not_there() -> None:
    build = Builder()
    x, rows = build.tensor("x", (LARGEST, 4)), build.tensor("rows", (LARGEST,), "int64")
    build.tensor("y", (LARGEST, 4))
    picked = build.operation("aten.index.Tensor", [x, (rows,)], ["y"], name="picked")
    layouts = {n: Layout((times(1), 4), (4, 1), 0) for n in ("x", "y")}
    graph = varying(build, {**layouts, "rows": Layout((times(1),), (1,), 0)})
    examples = {"rows": torch.arange(LARGEST).flip(0)}
    example, smaller = at_all_lengths(graph, examples)
    assert example.synthesizer.inputs(picked)["rows"].tolist() == [3, 2, 1, 0]
    assert [place.numbers for place in smaller] == [(2,), (1,)]
    for place in smaller:
        made = place.synthesizer.inputs(place.operations["picked"])
        assert made["x"][made["rows"]].shape == (place.numbers[0], 4)
