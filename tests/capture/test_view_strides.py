"""Views of fakes have the strides of real ones, also where a dimension is of length 1."""

from __future__ import annotations

from pathlib import Path

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from tracing import source, traced

import remat_gen
from remat_gen.capture.fx.view_strides import view_strides
from remat_gen.capture.layouts.real_layouts import layouts_of_kernels
from remat_gen.review.verifying import verify_file

LENGTHS = st.sampled_from([1, 1, 2, 3, 4])
INIT = "self.pool, self.fc = nn.Linear(32, 1), nn.Linear(32, 10)"
POOLED = (
    "weights = self.pool(x).squeeze(-1).softmax(1)\n"
    "return self.fc(torch.einsum('b n, b n d -> b d', weights, x))"
)
TEXT = source(INIT, POOLED, "(torch.randn(2, 16, 32, requires_grad=True),)")


@given(st.data())
def test_strides_are_torchs(data: st.DataObject) -> None:
    shape = data.draw(st.lists(LENGTHS, min_size=1, max_size=5))
    order = data.draw(st.permutations(range(len(shape))))
    x = torch.empty(shape).permute(order)[..., :: data.draw(st.sampled_from([1, 2]))]
    new = list(x.shape)
    if data.draw(st.booleans()):
        new = [length for length in new if length != 1]
    if len(new) > 1 and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(new) - 2))
        new[at : at + 2] = [new[at] * new[at + 1]]
    for at in data.draw(st.lists(st.integers(0, 5), max_size=2)):
        new.insert(at, 1)
    try:
        expected = list(x.view(new).stride())
    except RuntimeError:
        expected = None
    assert view_strides(x.shape, x.stride(), new) == expected
    if expected is not None:
        mode = FakeTensorMode()
        with layouts_of_kernels():
            fake = mode.from_tensor(x).view(new)
        assert [*fake.stride()] == expected


def test_a_row_lies_as_in_eagers_backward(tmp_path: Path) -> None:
    """The gradient of einsum's sum is a view of its own shape, of a row that was a column."""
    graph = traced(tmp_path, TEXT).graph
    rows = [
        graph.tensors[name]
        for operation in graph.operations
        if operation.target == "aten.bmm.default"
        for name in (argument.name for argument in operation.args)  # type: ignore[union-attr]
        if graph.tensors[name].shape == (2, 1, 32)
    ]
    assert rows and {row.stride for row in rows} == {(32, 32, 1)}


def test_its_gradients_are_eagers_to_the_bit(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(TEXT, encoding="utf-8")
    made = remat_gen.generate(path, budget="100%", effort="quick")
    assert made.output is not None
    report = verify_file(made.output)
    assert report.ok and report.bitwise, report.rows()
