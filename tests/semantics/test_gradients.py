"""How backward is called: subsets, accumulation, twice, differentiated, in several orders."""

from __future__ import annotations

import gc
from collections import Counter
from functools import partial

import pytest
import torch
from pairs import Pair, make_pair_of
from sources import model_source
from steps import kept_for_backward, same
from torch import Tensor, nn
from torch.utils import _pytree as pytree


def _forward(model: nn.Module, pair: Pair, seed: int = 5) -> Tensor:
    torch.manual_seed(seed)
    loss = model(*pair.inputs()[0])
    assert isinstance(loss, Tensor)
    return loss


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_forwards_before_two_backwards(deep: Pair, order: tuple[int, int]) -> None:
    original, planned = deep.models()
    for model in (original, planned):
        losses = [_forward(model, deep, seed) for seed in (5, 6)]
        for i in order:
            losses[i].backward()
    _assert_same_gradients(original, planned)


@pytest.mark.parametrize(
    "names",
    [
        ("head.bias",),
        ("layers.0.up.weight",),
        ("layers.9.down.weight", "layers.3.norm.weight"),
        ("layers.5.up.bias",),
    ],
)
def test_gradients_of_some_parameters(deep: Pair, names: tuple[str, ...]) -> None:
    original, planned = deep.models()
    expected, actual = (
        torch.autograd.grad(_forward(m, deep), [m.get_parameter(n) for n in names])
        for m in (original, planned)
    )
    assert all(map(same, expected, actual))
    assert all(p.grad is None for p in planned.parameters())


def test_gradient_of_the_input_alone(open_ended: Pair) -> None:
    gradients = []
    for model in open_ended.models():
        (x,), _ = open_ended.inputs()
        torch.manual_seed(5)
        outputs = model(x)
        gradients.append(torch.autograd.grad(outputs, x, [torch.ones_like(o) for o in outputs]))
    assert torch.equal(gradients[0][0], gradients[1][0])


def test_gradient_of_an_unused_parameter_is_none(mixed: Pair) -> None:
    _, planned = mixed.models()
    loss = _forward(planned, mixed)
    (gradient,) = torch.autograd.grad(loss, [planned.unused.weight], allow_unused=True)
    assert gradient is None


class _Stop(torch.autograd.Function):
    """Lets no gradient through."""

    @staticmethod
    def forward(_ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(_ctx: object, _gradient: Tensor) -> None:
        return None


@pytest.mark.parametrize("name", ["deep", "open_ended", "wide"])
def test_where_no_gradient_comes_there_are_none(name: str, request: pytest.FixtureRequest) -> None:
    """Zeros would move weights: an optimizer lets them decay."""
    pair: Pair = request.getfixturevalue(name)
    for model in pair.models():
        outputs = pytree.tree_leaves(model(*pair.inputs()[0]))
        sum(_Stop.apply(output).sum() for output in outputs).backward()
        assert all(p.grad is None for p in model.parameters())


def test_hooks_of_parameters_that_get_no_gradient_are_not_called() -> None:
    """The target of self-supervision, say, behind a `detach()`."""
    pair = make_pair_of(
        model_source(
            "return (self.head(self.body(x)) - self.target(x).detach()).square().mean()",
            init="        self.target = nn.Linear(8, 4)",
        )
    )
    for model in pair.models():
        called = Counter[str]()
        for name, p in model.named_parameters():
            hook = partial(called.update, [name])
            p.register_hook(lambda _, hook=hook: hook())
            p.register_post_accumulate_grad_hook(lambda _, hook=hook: hook())
        model(*pair.inputs()[0]).backward()
        trained = (n for n, _ in model.named_parameters() if not n.startswith("target"))
        assert called == dict.fromkeys(trained, 2)


def test_inputs_of_backward(deep: Pair) -> None:
    original, planned = deep.models()
    for model in (original, planned):
        _forward(model, deep).backward(inputs=[model.layers[4].up.weight])
    _assert_same_gradients(original, planned)


def test_scaled_losses_accumulate(deep: Pair) -> None:
    original, planned = deep.models()
    for model in (original, planned):
        for seed in (5, 6, 7):
            (_forward(model, deep, seed) / 3).backward()
    _assert_same_gradients(original, planned)


@pytest.mark.limit(
    "a second backward through the same step, also under `retain_graph=True`",
    "an error; run forward again",
)
def test_a_second_backward_is_refused_as_pytorch_does(deep: Pair) -> None:
    _, planned = deep.models()
    loss = _forward(planned, deep)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match=r"the graph a second time .*ZeroBubble"):
        loss.backward()


def test_a_second_backward_without_retain_graph_is_refused(deep: Pair) -> None:
    _, planned = deep.models()
    loss = _forward(planned, deep)
    loss.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


@pytest.mark.limit(
    "gradients of one step asked for in parts, one call after the other",
    "an error; ask for all in one call",
)
def test_a_graph_is_not_differentiated_in_parts(deep: Pair) -> None:
    _, planned = deep.models()
    loss = _forward(planned, deep)
    torch.autograd.grad(loss, planned.head.weight, retain_graph=True)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, planned.layers[0].up.weight)


@pytest.mark.limit(
    "gradients of gradients (`create_graph=True`)",
    "an error; call `forward_eager()`",
)
def test_a_gradient_penalty_is_refused(open_ended: Pair) -> None:
    _, planned = open_ended.models()
    (x,), _ = open_ended.inputs()
    output, _ = planned(x)
    with pytest.raises(RuntimeError, match="cannot be differentiated"):
        torch.autograd.grad(output.sum(), x, create_graph=True)


@pytest.mark.limit(
    "`torch.func.grad`, `vmap` and `jvp` over the planned model",
    "an error; call `forward_eager()`",
)
def test_functional_gradients_are_refused(deep: Pair) -> None:
    _, planned = deep.models()
    args, _ = deep.inputs()
    parameters = dict(planned.named_parameters())

    def loss(given: dict[str, Tensor]) -> Tensor:
        result = torch.func.functional_call(planned, given, args)
        assert isinstance(result, Tensor)
        return result

    with pytest.raises((RuntimeError, ValueError)):
        torch.func.grad(loss)(parameters)


def test_the_loss_does_not_hold_the_step_after_backward(deep: Pair) -> None:
    _, planned = deep.models()
    gc.collect()
    loss = _forward(planned, deep)
    step = kept_for_backward(loss)
    loss.backward()
    values = [value for kept in step for value in vars(kept).values()]
    assert not any(isinstance(value, Tensor) for value in values)


def _assert_same_gradients(original: nn.Module, planned: nn.Module) -> None:
    theirs = dict(planned.named_parameters())
    wrong = [n for n, p in original.named_parameters() if not same(p.grad, theirs[n].grad)]
    assert not wrong
