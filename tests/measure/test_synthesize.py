"""Synthetic inputs look exactly like the traced tensors, and share what those shared."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from measure_graphs import Builder

from remat_gen.capture.profile.synthesize import Fill, Synthesizer

dimensions = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 7)), max_size=4)
dtypes = st.sampled_from(["float32", "bfloat16", "complex64", "int64", "bool"])


@given(dimensions, st.integers(0, 9), dtypes)
def test_geometry_is_reproduced(dims: list[tuple[int, int]], offset: int, dtype: str) -> None:
    shape, stride = [size for size, _ in dims], [step for _, step in dims]
    build = Builder()
    x = build.tensor("x", shape, dtype, stride, offset)
    operation = build.operation("aten.clone.default", [x], ["y"])

    made = Synthesizer(build.graph(), {}).inputs(operation)["x"]

    assert list(made.shape) == shape
    assert list(made.stride()) == stride
    assert made.storage_offset() == offset
    assert made.dtype is getattr(torch, dtype)


def test_floats_are_normal_and_probabilities_are_not_outside_0_1() -> None:
    build = Builder()
    operation = build.operation("aten.clone.default", [build.tensor("x", (300, 300))], ["y"])
    synthesizer = Synthesizer(build.graph(), {})

    normal = synthesizer.inputs(operation)["x"]
    probability = synthesizer.inputs(operation, Fill.PROBABILITY)["x"]

    assert abs(normal.mean().item()) < 0.05 and abs(normal.std().item() - 1) < 0.05
    assert probability.min() >= 0 and probability.max() <= 1
    assert torch.equal(normal, Synthesizer(build.graph(), {}).inputs(operation)["x"])


def test_tensors_of_one_storage_share_bytes() -> None:
    build = Builder()
    q = build.tensor("q", (4, 2), stride=(6, 1), offset=0, storage="qkv")
    v = build.tensor("v", (4, 2), stride=(6, 1), offset=4, storage="qkv")
    operation = build.operation("aten.cat.default", [(q, v), 1], ["y"])

    made = Synthesizer(build.graph(), {}).inputs(operation)

    assert made["q"].untyped_storage().data_ptr() == made["v"].untyped_storage().data_ptr()
    assert made["v"].untyped_storage().nbytes() == 4 * 24


def test_the_users_integers_are_used_also_through_a_view_and_never_handed_out() -> None:
    build = Builder()
    build.tensor("targets", (2, 3), "int64")
    flat = build.tensor("targets:view", (5,), "int64", offset=1, storage="targets")
    operation = build.operation("aten.neg_.default", [flat], ["y"])
    users = torch.arange(6).reshape(2, 3)

    made = Synthesizer(build.graph(), {"targets": users}).inputs(operation)["targets:view"]

    assert made.tolist() == [1, 2, 3, 4, 5]
    made.neg_()
    assert users.flatten().tolist() == [0, 1, 2, 3, 4, 5]


def test_integers_without_an_example_are_zeros() -> None:
    build = Builder()
    operation = build.operation("aten.neg.default", [build.tensor("i", (3,), "int64")], ["y"])
    assert Synthesizer(build.graph(), {}).inputs(operation)["i"].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("target", "found"),
    [("aten.argsort.default", [2, 0, 1]), ("aten._to_copy.default", [0, 0, 0])],
)
def test_positions_that_an_operation_has_made_are_used(target: str, found: list[int]) -> None:
    """The backward of an EmbeddingBag takes more where its bags are not all empty.

    What floats become is any number here, which others may refuse.
    """
    build = Builder()
    makes = build.operation(target, [build.tensor("x", (3,))], ["i"])
    reads = build.operation("aten.neg.default", [build.tensor("i", (3,), "int64")], ["y"])
    synthesizer = Synthesizer(build.graph(), {})

    synthesizer.keep([makes], [torch.tensor([2, 0, 1])])

    assert synthesizer.inputs(reads)["i"].tolist() == found
    assert synthesizer.inputs(reads, Fill.ZEROS)["i"].tolist() == [0, 0, 0]


def test_the_global_stream_stays() -> None:
    build = Builder()
    operation = build.operation("aten.neg.default", [build.tensor("x", (3,))], ["y"])
    before = torch.get_rng_state()
    Synthesizer(build.graph(), {}).inputs(operation)
    assert torch.equal(before, torch.get_rng_state())
