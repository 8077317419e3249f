"""Gradients that leave in the middle of a block's backward: eager's, and none waits longer."""

from __future__ import annotations

import gc
import re
import weakref
from collections import Counter
from typing import Any

import pytest
import torch
from pairs import Pair, make_pair_of
from steps import assert_right
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from remat_gen.verification.peak import activation_peak
from remat_gen.verification.step import training_step

LARGE = 256 * 1024


@pytest.fixture(scope="module")
def two(wide: Pair) -> tuple[nn.Module, nn.Module]:
    return wide.models()


def test_layers_hand_over_large_gradients(wide: Pair) -> None:
    blocks = [t for t in wide.text.split("\nclass ") if "(PlannedBlock):" in t]
    assert sum("\n    turns = " in block for block in blocks) >= 2
    for block in blocks:
        start = block.find("\n    turns = ")
        turns = block[start:].partition("\n\n")[0] if start >= 0 else ""
        assert block.count("        yield  # hand over ") == turns.count('".split()')
        assert ("-> Iterator[None]:" in block) == bool(turns)


def test_steps_are_eagers(wide: Pair) -> None:
    assert wide.reruns
    assert_right(wide)


def test_the_peak_is_the_predicted_one(wide: Pair) -> None:
    _, planned = wide.models()
    args, kwargs = wide.inputs()
    peak = activation_peak(lambda: training_step(planned, args, kwargs), torch.device("cpu"))
    assert peak.peak_bytes == wide.plan.predicted.peak_bytes


class _Large(TorchDispatchMode):
    """Notes when a large gradient is computed."""

    def __init__(self, seen: list[str]) -> None:
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        transposed = func is torch.ops.aten.mm.default and result.numel() == LARGE
        if transposed:
            self.seen.append("computed")
        return result


def _order(model: nn.Module, inputs: tuple[Any, ...]) -> list[str]:
    """Return in order when large gradients were computed, and when they were accumulated."""
    seen: list[str] = []
    handles = [
        p.register_post_accumulate_grad_hook(lambda p: seen.append("left"))
        for p in model.parameters()
        if p.numel() == LARGE and p.requires_grad
    ]
    loss = model(*inputs)
    with _Large(seen):
        loss.backward()
    for handle in handles:
        handle.remove()
    model.zero_grad()
    return seen


def _waiting(seen: list[str]) -> int:
    """Return how many large gradients waited at most."""
    counts, most = Counter[str](), 0
    for event in seen:
        counts[event] += 1
        most = max(most, counts["computed"] - counts["left"])
    return most


def test_none_waits_for_the_next_large_one(wide: Pair, two: tuple[nn.Module, nn.Module]) -> None:
    (args, _), (eager, planned) = wide.inputs(), two
    expected, found = _order(eager, args), _order(planned, args)
    assert Counter(expected) == Counter(found) == {"computed": 9, "left": 9}
    assert _waiting(found) == _waiting(expected) == 1


@pytest.mark.parametrize("names", [["layers.1.down"], ["layers.1.up.weight"], ["scale"]])
def test_gradients_of_some_parameters(
    two: tuple[nn.Module, nn.Module], wide: Pair, names: list[str]
) -> None:
    args, _ = wide.inputs()
    found = []
    for model in two:
        torch.manual_seed(5)
        loss = model(*args)
        found.append(torch.autograd.grad(loss, [model.get_parameter(n) for n in names]))
    assert all(map(torch.equal, *found))


def test_a_backward_that_is_left_off_holds_nothing(
    wide: Pair, two: tuple[nn.Module, nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    (args, _), (_, planned) = wide.inputs(), two
    blocks: list[weakref.ref[Any]] = []

    def noted(self: Any, **fields: Any) -> None:
        blocks.append(weakref.ref(self))
        vars(self).update(fields)

    monkeypatch.setattr(wide.planned.PlannedBlock, "__init__", noted)
    gc.collect()
    gc.disable()
    try:
        loss = planned(*args)
        torch.autograd.grad(loss, [planned.get_parameter("layers.2.down")])
        assert any(block() is not None for block in blocks)
        del loss
        assert not any(block() for block in blocks)
    finally:
        gc.enable()


def test_hooks_of_parameters_are_called_once(wide: Pair, two: tuple[nn.Module, nn.Module]) -> None:
    args, _ = wide.inputs()
    for model in two:
        called = Counter[str]()

        def note(grad: Tensor, name: str, called: Counter[str] = called) -> Tensor:
            called[name] += 1
            return grad * 2

        trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
        handles = [
            p.register_hook(lambda grad, n=n, note=note: note(grad, n)) for n, p in trained.items()
        ]
        torch.manual_seed(7)
        model(*args).backward()
        assert called == dict.fromkeys(trained, 1)
        for handle in handles:
            handle.remove()
    expected, found = ({n: p.grad for n, p in model.named_parameters()} for model in two)
    for name, gradient in expected.items():
        other = found[name]
        assert (gradient is None) == (other is None), name
        assert gradient is None or (other is not None and torch.equal(gradient, other)), name
    for model in two:
        model.zero_grad()


_READ_AGAIN = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x, shift):
        return x + self.b(nn.functional.gelu(self.a(nn.functional.gelu(x + shift))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.big = nn.Parameter(torch.randn(64, 64) * 0.05)
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = block(x, self.big.detach()[:1])
        return (x @ self.big).mean()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(512, 64),)
"""


@pytest.fixture(scope="module")
def read_again() -> Pair:
    """Layers that read in forward, without its gradient, what the head has the gradient of."""
    return make_pair_of(_READ_AGAIN, "50%")


def test_a_gradient_waits_for_the_last_block_that_reads_its_parameter(read_again: Pair) -> None:
    assert re.search(r"p\.big\[:1\]\)  # re-run", read_again.text)
    assert re.search(r"g\.big = (\w+\.\w+)\n +del \1\b", read_again.text)
    assert_right(read_again)
    test_the_peak_is_the_predicted_one(read_again)


@pytest.mark.parametrize("data", [False, True])
@pytest.mark.parametrize("pair", ["wide", "read_again"])
def test_an_optimizer_may_step_as_each_gradient_comes(
    request: pytest.FixtureRequest, pair: str, data: bool
) -> None:
    """A weight changes as its gradient leaves: nothing behind that may read it."""
    planned: Pair = request.getfixturevalue(pair)
    args, _ = planned.inputs()
    found = []
    for model in planned.models():
        gradients: dict[str, Tensor] = {}
        for name, parameter in model.named_parameters():

            def step(p: Tensor, name: str = name, into: dict[str, Tensor] = gradients) -> None:
                assert p.grad is not None
                into[name] = p.grad.clone()
                with torch.no_grad():
                    (p.data if data else p).sub_(p.grad, alpha=0.1)
                p.grad = None

            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(step)
        torch.manual_seed(5)
        model(*args).backward()
        found.append(gradients)
    assert found[0].keys() == found[1].keys()
    assert all(torch.equal(gradient, found[1][name]) for name, gradient in found[0].items())


def test_a_weight_that_was_written_over_is_seen(wide: Pair) -> None:
    _, planned = wide.models()
    args, _ = wide.inputs()
    loss = planned(*args)
    with torch.no_grad():
        planned.get_parameter("layers.1.up.weight").mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_second_backward_is_refused(wide: Pair) -> None:
    _, planned = wide.models()
    args, _ = wide.inputs()
    loss = planned(*args)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="a second time"):
        loss.backward()


def test_small_gradients_leave_with_the_block(wide: Pair) -> None:
    source = wide.original.__loader__.get_source(wide.original.__name__)  # type: ignore[union-attr]
    pair = make_pair_of(source.replace("HIDDEN = 1024", "HIDDEN = 64"))
    assert "        yield  #" not in pair.text and "PlannedTurn" not in pair.text
