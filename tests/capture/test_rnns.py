"""RNNs as single operations: to the bit what torch's modules make, and their gradients."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from tracing import source, traced

from remat_gen.capture.rnn.run_whole import (
    RUNS,
    TWO_STATES,
    lstm_layer,
    rnn_backward,
    run_rnn,
    two_state_gru_cell,
)
from remat_gen.capture.rnn.step_by_step import STEPS, run_steps, steps_backward
from remat_gen.ir.graph import Graph

# T, B, C, H; of 3 by 7 numbers a step's state begins where no vector of a processor does
SIZES = ((1, 3, 5, 7), (2, 1, 5, 24), (13, 3, 24, 7), (6, 16, 24, 24))
LAYERS = {"gru": nn.GRU, "rnn_tanh": nn.RNN, "rnn_relu": nn.RNN, "lstm": nn.LSTM}
ENDS = ("made", "last", "both")


def layer_of(run: str, sizes: Sequence[int], biases: bool, bidirectional: bool) -> nn.RNNBase:
    torch.manual_seed(0)
    how = {"nonlinearity": run.removeprefix("rnn_")} if run.startswith("rnn_") else {}
    *_, width, hidden = sizes
    return LAYERS[run](width, hidden, bias=biases, bidirectional=bidirectional, **how)


def states_of(layer: nn.RNNBase, batch: int) -> list[Tensor]:
    directions = 2 if layer.bidirectional else 1
    count = 2 if isinstance(layer, nn.LSTM) else 1
    shape = directions, batch, layer.hidden_size
    return [torch.randn(shape, requires_grad=True) for _ in range(count)]


def of_torch(layer: nn.RNNBase, x: Tensor, states: list[Tensor]) -> list[Tensor]:
    made, last = layer(x, tuple(states) if len(states) > 1 else states[0])
    return [made, *(last if isinstance(last, tuple) else (last,))]


def one_direction(
    run: str,
    given: Sequence[Tensor],
    gradients: Sequence[Tensor | None],
    count: int,
    reverse: bool,
) -> tuple[list[Tensor], list[Tensor]]:
    """Run forward and backward; return what both make."""
    x, states, weights = given[0], given[1 : 1 + count], given[1 + count :]
    wanted = range(len(given))
    if run == "lstm":
        how = {"reverse": reverse}
        made = list(run_rnn(lstm_layer, x, states, weights, **how))
        back = rnn_backward(lstm_layer, gradients, x, states, weights, wanted, **how)
        return made, list(back)
    state, step = *states, STEPS[run]
    with torch.no_grad():
        made = list(run_steps(step, x, state, weights, reverse))
    return made, steps_backward(step, *gradients, x, state, made[0], weights, wanted, reverse)


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("run", LAYERS)
def test_a_layer_and_its_gradients_are_torchs(run: str, biases: bool, ends: str) -> None:
    """In one direction and two, sequences or batches first, of outputs, of last states, of both."""
    for sizes, bidirectional, batch_first in itertools.product(SIZES, (True, False), (True, False)):
        steps, batch, width, hidden = sizes
        layer = layer_of(run, sizes, biases, bidirectional)
        x = torch.randn(batch, steps, width) if batch_first else torch.randn(steps, batch, width)
        x = (x.transpose(0, 1) if batch_first else x).requires_grad_()
        states = states_of(layer, batch)
        outputs = of_torch(layer, x, states)
        count = {"made": slice(0, 1), "last": slice(1, None), "both": slice(None)}[ends]
        came: list[Tensor | None] = [None] * len(outputs)
        came[count] = [torch.randn_like(output) for output in outputs[count]]
        weights = list(layer.parameters())
        expected = torch.autograd.grad(outputs[count], [x, *states, *weights], came[count])
        directions = [
            one_direction(
                run,
                [x, *(state[i] for state in states), *weights[i * many : (i + 1) * many]],
                [
                    d if d is None else d[..., i * hidden : (i + 1) * hidden] if not k else d[i]
                    for k, d in enumerate(came)
                ],
                len(states),
                bool(i),
            )
            for many in [len(weights) // len(states[0])]
            for i in range(len(states[0]))
        ]
        made, found = zip(*directions, strict=True)
        assert torch.equal(torch.cat([m[0] for m in made], -1), outputs[0])
        for k, output in enumerate(outputs[1:], start=1):
            assert torch.equal(torch.stack([m[k] for m in made]), output)
        # autograd goes back through the second direction first
        d_x = found[-1][0] + found[0][0] if bidirectional else found[0][0]
        d_states = [torch.stack([f[1 + k] for f in found]) for k in range(len(states))]
        d_weights = [d for f in found for d in f[1 + len(states) :]]
        assert all(map(torch.equal, [d_x, *d_states, *d_weights], expected))
        assert all(t.is_contiguous() for t in itertools.chain(*made, *found))  # as fakes are


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize(
    "run", [name for name in RUNS if name.endswith("_cell") and name != TWO_STATES]
)
def test_a_cell_and_its_gradients_are_torchs(run: str, biases: bool) -> None:
    torch.manual_seed(0)
    gates = {"gru_cell": 3, "lstm_cell": 4}.get(run, 1)
    shapes = [(gates * 7, 5), (gates * 7, 7), *[(gates * 7,)] * (2 * biases)]
    x, *states = (torch.randn(3, n) for n in (5, 7, 7)[: 3 if run == "lstm_cell" else 2])
    weights = [torch.randn(shape) for shape in shapes]
    leaves = [t.clone().requires_grad_() for t in (x, *states, *weights)]
    count = 1 + len(states)
    held = leaves[1:count] if count > 2 else leaves[1]
    outputs = RUNS[run](leaves[0], held, *leaves[count:])
    outputs = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    came = [torch.randn_like(output) for output in outputs]
    wanted = [0, *range(2, len(leaves))]
    expected = torch.autograd.grad(outputs, [leaves[i] for i in wanted], came)
    made = run_rnn(RUNS[run], x, states, weights)
    assert all(map(torch.equal, made, outputs)) and not any(t.requires_grad for t in made)
    found = rnn_backward(RUNS[run], came, x, states, weights, wanted)
    assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("biases", [True, False])
def test_a_gru_cell_has_the_gradient_of_each_reader_of_its_state(biases: bool) -> None:
    """Eager adds them one by one to what else comes into the state, which is added first."""
    torch.manual_seed(0)
    cell = nn.GRUCell(5, 7, bias=biases)
    x, before, other, d_next = torch.randn(3, 5), *torch.randn(3, 3, 7)
    state = before.clone().requires_grad_()
    h = state * 1
    came = [d_next, other]
    made = cell(x, h)
    (expected,) = torch.autograd.grad([made, h.view_as(h)], state, came)
    weights = [p.detach() for p in cell.parameters()]
    found = rnn_backward(two_state_gru_cell, [d_next], x, [before, before], weights, [1, 2])
    assert torch.equal(other + found[0] + found[1], expected)
    assert torch.equal(run_rnn(two_state_gru_cell, x, [before, before], weights)[0], made)


@pytest.mark.parametrize("wanted", [(2, 3), (0,), (1, 5), (4,)])
def test_only_gradients_that_are_wanted_are_made(wanted: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    layer = nn.GRU(5, 7)
    given = [torch.randn(6, 3, 5), torch.randn(3, 7), *(p.detach() for p in layer.parameters())]
    made, _ = run_steps(STEPS["gru"], given[0], given[1], given[2:])
    arguments = torch.randn_like(made), None, *given[:2], made, given[2:]
    every = steps_backward(STEPS["gru"], *arguments, range(6))
    found = steps_backward(STEPS["gru"], *arguments, wanted)
    assert len(found) == len(wanted)
    assert all(torch.equal(d, every[i]) for d, i in zip(found, wanted, strict=True))


def targets(graph: Graph) -> list[str]:
    return [o.target for o in graph.operations if o.target.startswith("remat.rnn")]


def graph_of(folder: Path, init: str, call: str = "return self.r(x)[0].sum()") -> Graph:
    return traced(folder, source(f"self.r = {init}", call, "(torch.randn(50, 4, 8),)")).graph


@pytest.mark.parametrize("kind", ["GRU", "RNN", "LSTM"])
def test_a_direction_is_two_operations_however_long_the_sequence(tmp_path: Path, kind: str) -> None:
    graph = graph_of(tmp_path, f"nn.{kind}(8, 6, 3, bidirectional=True, dropout=0.1)")
    assert len(targets(graph)) == 2 * 3 * 2
    assert len(graph.operations) < 60


@pytest.mark.parametrize(
    "init", ["nn.LSTM(8, 6).double()", "nn.LSTM(8, 6, proj_size=3)"], ids=["float64", "projected"]
)
def test_what_eager_has_no_kernel_for_is_traced_in_steps(tmp_path: Path, init: str) -> None:
    call = "return self.r(x.to(self.r.weight_ih_l0))[0].sum()"
    assert not targets(graph_of(tmp_path, init, call))


def test_autocast_is_traced_in_steps(tmp_path: Path) -> None:
    """It casts inside."""
    call = "with torch.autocast('cpu', torch.bfloat16):\n    return self.r(x)[0].float().sum()"
    assert not targets(graph_of(tmp_path, "nn.GRU(8, 6)", call))


def test_a_gradient_that_is_differentiated_is_made_of_steps(tmp_path: Path) -> None:
    call = """\
x = x.detach().requires_grad_()
y = self.r(x)[0]
(d_x,) = torch.autograd.grad(y.sum(), x, create_graph=True)
return d_x.square().sum()"""
    graph = graph_of(tmp_path, "nn.GRU(8, 6)", call)
    assert not any("backward" in target for target in targets(graph))


def test_frozen_weights_get_no_gradient(tmp_path: Path) -> None:
    init = "nn.GRU(8, 6); self.r.weight_hh_l0.requires_grad_(False)"
    graph = graph_of(tmp_path, init)
    (backward,) = (o for o in graph.operations if o.target.startswith("remat.rnn_steps_backward"))
    *_, wanted = backward.args
    assert wanted == (2, 4, 5)


def test_what_an_rnn_makes_of_its_parameters_is_no_state(tmp_path: Path) -> None:
    """Where forward looks at values, others stand in its parameters' place, and it notes those."""
    call = "if not torch.isfinite(x).all():\n    raise ValueError(x)\nreturn self.r(x)[0].sum()"
    assert targets(graph_of(tmp_path, "nn.LSTM(8, 6)", call))
