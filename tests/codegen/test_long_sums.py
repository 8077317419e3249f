"""Long sums of compiled functions: in two steps, at every length, and about as exact as eager's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from emitting import HEAD, emit
from hypothesis import given
from hypothesis import strategies as st

from remat_gen.compile.part_text import write_operations
from remat_gen.ir.graph import Ref
from remat_gen.ir.size import LENGTH, Layout, Size, divisor, evaluate

MODEL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 24)

    def forward(self, x):
        return self.second(F.gelu(self.first(x))).square().mean()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(ROWS),)
"""


def bias_sums(tmp_path: Path, rows: str) -> list[str]:
    """Return the functions that a model's sums over rows are compiled as."""
    graph = emit(tmp_path, HEAD + MODEL.replace("ROWS", rows)).traced.graph
    sums = [o for o in graph.operations if o.target == "aten.sum.dim_IntList"]
    return [write_operations(graph, (each,)).code for each in sums]


@pytest.mark.parametrize(("rows", "step"), [("4096, 8", 64), ("16, 64, 8", 32), ("900, 8", 30)])
def test_many_rows_are_summed_in_two_steps(tmp_path: Path, rows: str, step: int) -> None:
    codes = bias_sums(tmp_path, rows)
    assert len(codes) == 2
    assert all(f".unflatten(0, (-1, {step})).sum(1).sum(0)" in code for code in codes)


@pytest.mark.parametrize("rows", ["32, 8", "3989, 8"])
def test_few_rows_or_a_prime_number_of_them_are_summed_at_once(tmp_path: Path, rows: str) -> None:
    codes = bias_sums(tmp_path, rows)
    assert len(codes) == 2
    assert not any("unflatten" in code for code in codes)


def test_two_steps_are_the_same_sum_and_closer_to_the_exact_one_than_row_after_row() -> None:
    x = torch.randn(1 << 14, 8, generator=torch.Generator().manual_seed(0))
    exact = x.double().sum(0)
    both = x.unflatten(0, (-1, 128)).sum(1).sum(0)
    one_by_one = torch.zeros(8)
    for row in x:
        one_by_one += row
    assert both.shape == exact.shape
    assert (both - exact).abs().max() < (one_by_one - exact).abs().max() / 2


sizes = st.recursive(
    st.one_of(st.integers(0, 30), st.just(Size(LENGTH, ("batch",), 0))),
    lambda inner: st.builds(
        lambda operator, a, b: Size(operator, (a, b), 0),
        st.sampled_from(["+", "*", "//", "%"]),
        inner,
        inner.filter(lambda size: size != 0),
    ),
    max_leaves=6,
)


@given(sizes, st.integers(1, 50))
def test_a_divisor_divides_at_every_length(size: Size | int, batch: int) -> None:
    try:
        value = evaluate(size, {"batch": batch})
    except ZeroDivisionError:
        return
    common = divisor(size)
    assert value == 0 if common == 0 else value % common == 0


@pytest.mark.parametrize(("times", "two_steps"), [(64, True), (1, False)])
def test_the_rows_of_a_step_divide_their_number_at_every_length(
    tmp_path: Path, times: int, two_steps: bool
) -> None:
    """Of `64 * batch` rows 32 at once; of `batch` rows none can be."""
    graph = emit(tmp_path, HEAD + MODEL.replace("ROWS", "1024, 8")).traced.graph
    (last, *_) = [o for o in graph.operations if o.target == "aten.sum.dim_IntList"]
    batch = Size(LENGTH, ("batch",), 1024 // times)
    rows = Size("*", (times, batch), 1024) if times > 1 else batch
    summed = last.args[0]
    assert isinstance(summed, Ref)
    width = graph.tensors[summed.name].shape[1]
    varying = replace(graph, layouts={summed.name: Layout((rows, width), (width, 1), 0)})
    code = write_operations(varying, (last,)).code
    assert (".unflatten(0, (-1, 32))" in code) == two_steps
