"""Layers that differ in a number or two are one class; each of its blocks is handed its own."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from emitting import HEAD, assert_bitwise, at_share, blocks_run, emit
from hypothesis import given
from hypothesis import strategies as st

from remat_gen.capture.lower.signature import signature
from remat_gen.codegen.classes.layer_numbers import handed, together, without_numbers
from remat_gen.codegen.expressions.marks import fill, value
from remat_gen.codegen.statements.statements import Body, Function, Statement

STOCHASTIC_DEPTH = """
class Layer(nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.rate = rate
        self.norm = nn.LayerNorm(16)
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)

    def forward(self, x, rate=None):
        y = self.down(F.gelu(self.up(self.norm(x))))
        keep = torch.empty(x.shape[0], 1, 1).bernoulli_(1 - self.rate)
        return x + y * keep / (1 - self.rate)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer(rate) for rate in RATES)
        self.head = nn.Linear(16, 4)

    def forward(self, probability):
        x = probability
        for layer in self.layers:
            x = layer(x)
        return self.head(x).square().mean()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(8, 12, 16),)
"""


def text_of(rates: tuple[float, ...]) -> str:
    return f"{HEAD}RATES = {rates}\n{STOCHASTIC_DEPTH}"


@pytest.mark.parametrize("share", [None, 0.0, 0.4])
def test_layers_of_other_rates_are_one_class(tmp_path: Path, share: float | None) -> None:
    rates = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35)
    choose = () if share is None else (at_share("per-layer", share),)
    emitted = emit(tmp_path, text_of(rates), *choose)
    assert_bitwise(emitted)
    called = [name for name, *_ in blocks_run(emitted.text)]
    assert len(set(called[1:6])) == 1, "but for the first, which hands on less"
    handed_on = re.findall(r"probability=(0\.\d+)\)", emitted.text)
    assert handed_on == [repr(1 - rate) for rate in rates[1:]], "its own alone"
    assert "self.probability" in emitted.text


def test_equal_rates_are_written_where_they_are_used(tmp_path: Path) -> None:
    emitted = emit(tmp_path, text_of((0.1,) * 4))
    assert_bitwise(emitted)
    assert not re.search(r"(probability|scale)=\d", emitted.text)


PREFIX = """
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.kv = nn.Linear(16, 16)
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)

    def forward(self, x, past):
        k = torch.cat([past, self.kv(x)], 1)
        x = x + F.softmax(x @ k.transpose(1, 2), -1) @ k
        return x + self.down(F.gelu(self.up(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(6))
        self.prefix = nn.Embedding(3, 6 * 16)

    def forward(self, x):
        prefix = self.prefix(torch.arange(3)).view(1, 3, 6, 16).expand(len(x), -1, -1, -1)
        prefix = prefix.permute(2, 0, 1, 3)
        for i, layer in enumerate(self.layers):
            x = layer(x, prefix[i])
        return x.square().mean()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(8, 12, 16),)
"""


def test_layers_that_read_parts_of_one_tensor_are_one_class(tmp_path: Path) -> None:
    """Prefixes, scales and embeddings of layers: each had a class for its index alone."""
    emitted = emit(tmp_path, HEAD + PREFIX)
    assert_bitwise(emitted)
    assert re.search(r"for i in range\(1, 5\):\n +step\.run\(\w+, .*\bindex=i\)", emitted.text)
    assert "select(0, self.index)" in emitted.text


NUMBERS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 16)

    def forward(self, x):
        x = self.head(x)
        x = x * 0.3 + x * 0.7 + x * 2.0
        return (x**1.5 + x**2.5).mean()


def build_model():
    return Net()


def example_inputs():
    return (torch.rand(8, 16),)
"""


def test_numbers_that_take_as_long_are_measured_once(tmp_path: Path) -> None:
    graph = emit(tmp_path, HEAD + NUMBERS).traced.graph
    kinds: dict[str, set[str]] = {}
    for operation in graph.operations:
        if operation.target in ("aten.mul.Tensor", "aten.pow.Tensor_Scalar"):
            key = f"{operation.phase.value} {operation.target}"
            kinds.setdefault(key, set()).add(signature(graph, operation))
    assert len(kinds["forward aten.mul.Tensor"]) == 2, "0.3 and 0.7 are one, 2.0 another"
    assert len(kinds["forward aten.pow.Tensor_Scalar"]) == 2, "powers have kernels of their own"


# -- texts ------------------------------------------------------------------------------------

FLOATS = st.floats(min_value=0, allow_infinity=False, allow_nan=False)
WORDS = st.sampled_from(
    ["torch.mul(", ", ", ")", " - ", "(64, 3)", "conv1", "x_2", "norm.0", " 7 ", "v1e5 "]
    + [str(value(name)) for name in ("layers.0.1", "0.1", "1e-05", "h.2.attn 0.5")]
)


def body(block: int, *texts: str) -> Body:
    half = len(texts) // 2
    halves = [tuple(map(Statement, part)) for part in (texts[:half], texts[half:])]
    forward, backward = (Function(statements, {}) for statements in halves)
    return Body(block, forward, backward, ())


def texts_of(one: Body) -> list[str]:
    return [s.text for s in one.forward.statements + one.backward.statements]


@given(st.lists(WORDS, min_size=2), FLOATS, FLOATS)
def test_only_numbers_are_taken_out(words: list[str], one: float, other: float) -> None:
    def written(number: float) -> str:
        return f"{words[0]}, {number!r}, {''.join(words[1:])}"

    assert without_numbers(written(one)) == without_numbers(written(other))
    assert without_numbers(written(one)).count("<number>") == 1
    assert without_numbers("".join(words)) == "".join(words)


@pytest.mark.parametrize("text", ['float("1.5e400")', "torch.einsum('0.5')"])
def test_numbers_in_texts_are_none(text: str) -> None:
    assert without_numbers(text) == text


@given(st.lists(st.lists(st.sampled_from([0.1, 0.2, 0.3]), min_size=3, max_size=3), min_size=1))
def test_each_body_is_handed_what_it_had(rows: list[list[float]]) -> None:
    wanted = [
        [f"a = mul(x, {one}, {other})", f"b = bernoulli({third})"] for one, other, third in rows
    ]
    bodies = [body(i, *texts) for i, texts in enumerate(wanted)]
    written, numbers = handed(bodies, {"scale"})
    assert "scale" not in numbers
    assert len({tuple(texts_of(b)) for b in written}) == 1
    for i, texts in enumerate(wanted):
        assert [fill(t, lambda m, i=i: numbers[m.name][i]) for t in texts_of(written[i])] == texts
    assert all(len(set(column)) > 1 for column in numbers.values())


def test_many_numbers_stay_where_they_are() -> None:
    bodies = [body(i, *(f"x{k} = mul(y, {i}.{k}5)" for k in range(4))) for i in (1, 2)]
    twins = [replace(b, block=b.block + 2) for b in bodies]
    assert together(bodies) == [[b] for b in bodies]
    assert together([*bodies, *twins]) == [[b, t] for b, t in zip(bodies, twins, strict=True)]
