"""What backward needs must not have been written in place since forward."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import torch
from pairs import Pair, make_pair_of
from sources import model_source
from torch import Tensor

from remat_gen.ir.plan import Plan
from remat_gen.ir.steps import runs_in

CHANGED = "modified by an inplace operation"
RERUN = r"layers\.\d+\.up"
BACKWARD = r"layers\.\d+\.up\.d_up_weight"
NEEDED = [
    "head.weight",
    "layers.0.up.weight",
    "layers.4.up.weight",
    "layers.4.norm.weight",
    "layers.9.down.weight",
    "layers.4.scale",
]


@pytest.mark.parametrize("name", NEEDED)
def test_a_changed_parameter_or_buffer_is_noticed(deep: Pair, name: str) -> None:
    _, planned = deep.models()
    loss = planned(*deep.inputs()[0])
    with torch.no_grad():
        planned.state_dict(keep_vars=True)[name].mul_(2)
    with pytest.raises(RuntimeError, match=CHANGED):
        loss.backward()


def reruns_elsewhere(plan: Plan) -> Iterator[tuple[int, int]]:
    """Yield (layer whose `up` runs again, layer whose backward runs in that segment)."""
    for segment in plan.schedule:
        runs = runs_in(segment.steps)
        reruns = [int(name.split(".")[1]) for name in runs if re.fullmatch(RERUN, name)]
        backward = {int(name.split(".")[1]) for name in runs if re.fullmatch(BACKWARD, name)}
        for layer in reruns:
            if backward and layer not in backward:
                yield layer, max(backward)


def test_a_parameter_that_only_a_rerun_in_another_block_reads_is_noticed(deep: Pair) -> None:
    """Eager's backward needs no bias at all; here one layer runs again in another's block."""
    layer, other = next(reruns_elsewhere(deep.plan))
    for model in deep.models():
        loss = model(*deep.inputs()[0])
        with torch.no_grad():
            model.layers[layer].up.bias.mul_(2)
        wanted = model.layers[other].up.weight
        if "forward_eager" not in vars(type(model)):
            torch.autograd.grad(loss, wanted)
            continue
        with pytest.raises(RuntimeError, match=CHANGED):
            torch.autograd.grad(loss, wanted)


@pytest.mark.parametrize("which", [0, 1])
def test_a_changed_input_is_noticed(deep: Pair, which: int) -> None:
    _, planned = deep.models()
    args, _ = deep.inputs()
    loss = planned(*args)
    args[which].add_(1)
    with pytest.raises(RuntimeError, match=CHANGED):
        loss.backward()


def test_a_changed_output_is_noticed_where_backward_reads_it() -> None:
    source = model_source("h = self.head(torch.exp(self.body(x)))\nreturn torch.exp(h)")
    pair = make_pair_of(source, "1GB", "per-layer")
    _, planned = pair.models()
    output = planned(*pair.inputs()[0])
    output.mul_(2)
    with pytest.raises(RuntimeError, match=CHANGED):
        output.sum().backward()


def test_an_output_that_backward_does_not_read_may_change() -> None:
    pair = make_pair_of(model_source("return self.head(self.body(x))"), "1GB", "per-layer")
    gradients: list[Tensor | None] = []
    for model in pair.models():
        torch.manual_seed(0)
        output = model(*pair.inputs()[0])
        output.mul_(2)
        output.sum().backward()
        gradients.append(model.head.weight.grad)
    assert gradients[0] is not None
    assert torch.equal(gradients[0], gradients[1])


def test_a_changed_reshape_is_right() -> None:
    source = model_source("h = self.head(self.body(x))\nreturn h.view(-1), h.sum(1)")
    pair = make_pair_of(source, "1GB", "per-layer")
    gradients = []
    for model in pair.models():
        flat, sums = model(*pair.inputs()[0])
        flat.mul_(2)
        (flat.square().sum() + sums.sum()).backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert all(map(torch.equal, *gradients))
