"""Where a planned step differs from eager's without an error, beside what it reads."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from pairs import make_pair_of
from sources import install_library, model_source
from torch import Tensor, nn
from torch.nn.utils import parametrize


def step_context():  # type: ignore[no-untyped-def]
    return torch.autocast("cpu", torch.bfloat16)


PLAIN = model_source("return self.head(self.body(x)).square().mean()")


def _loss(model: nn.Module, *args: Tensor) -> Tensor:
    torch.manual_seed(0)
    loss: Tensor = model(*args)
    return loss


@pytest.mark.untold(
    "A hook of a parameter from which nothing leads to the outputs that the loss is made of, but "
    "to another output, is called with None, where eager does not call it."
)
def test_hooks_that_are_called_with_none() -> None:
    lines = "h = self.body(x)\nreturn self.head(h), self.other(h)"
    pair = make_pair_of(model_source(lines, init="self.other = nn.Linear(8, 4)"))
    called: list[list[Any]] = []
    for model in pair.models():
        called.append([])
        model.other.weight.register_hook(called[-1].append)
        model(*pair.inputs()[0])[0].sum().backward()
        assert model.other.weight.grad is None
    assert called == [[], [None]]


@pytest.mark.untold(
    "Hooks of parameters run in the order in which a block hands its gradients over, which may be "
    "another than eager's within the block: those that draw (gradient noise) draw other numbers."
)
def test_the_order_of_hooks() -> None:
    pair = make_pair_of(PLAIN)
    called: list[list[str]] = []
    for model in pair.models():
        called.append(names := [])
        for name, p in model.named_parameters():
            p.register_hook(functools.partial(lambda name, _, to: to.append(name), name, to=names))
        _loss(model, *pair.inputs()[0]).backward()
    assert sorted(called[0]) == sorted(called[1])
    assert called[0] != called[1]


@pytest.mark.untold(
    "`print` and other Python that `forward` runs beside its tensors and that leaves nothing "
    "behind runs when the model is planned, not in a planned step. (What it counts or appends is "
    "refused.)"
)
def test_prints(capsys: pytest.CaptureFixture[str]) -> None:
    pair = make_pair_of(model_source('print("in forward")\nreturn self.head(self.body(x)).sum()'))
    capsys.readouterr()
    spoken = []
    for model in pair.models():
        model(*pair.inputs()[0])
        spoken.append(capsys.readouterr().out)
    assert spoken == ["in forward\n", ""]


@pytest.mark.untold(
    "A table that `forward` makes where there is none and keeps on a module (`self.cos`), and "
    "another one that somebody puts there: a planned step computes its own."
)
def test_another_table_than_forward_makes() -> None:
    lines = """
        if self.cos is None:
            self.cos = torch.arange(8.0).cos()
        return self.head(self.body(x) * self.cos).square().mean()
    """
    pair = make_pair_of(model_source(lines, init="self.cos = None"))
    losses = []
    for model in pair.models():
        losses.append(_loss(model, *pair.inputs()[0]))
        model.cos = torch.ones(8)
        losses.append(_loss(model, *pair.inputs()[0]))
    assert losses[0] == losses[2] == losses[3] != losses[1]


@pytest.mark.untold(
    "`parametrize.cached()` and the cache of casts of one `autocast` region around several calls "
    "of a planned model, between which weights change: eager reads the cached ones, a planned "
    "step the weights."
)
@pytest.mark.parametrize("within", [parametrize.cached, step_context])
def test_what_eager_caches_over_several_calls(
    within: Callable[[], AbstractContextManager[object]],
) -> None:
    init = "self.last = torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))"
    source = model_source("return self.last(self.head(self.body(x))).square().mean()", init=init)
    if within is step_context:
        source += inspect.getsource(step_context)
    pair = make_pair_of(source)
    args, _ = pair.inputs()
    losses = []
    for model in pair.models():
        with within():
            _loss(model, *args)
            with torch.no_grad():
                model.last.parametrizations.weight.original0.mul_(2)
                model.head.weight.mul_(2)
            losses.append(float(_loss(model, *args).detach()))
        with step_context() if within is step_context else contextlib.nullcontext():
            losses.append(float(_loss(model, *args).detach()))
    assert losses[1] == losses[2] == losses[3] != losses[0]


@pytest.mark.untold(
    "Two steps in one `autocast` region before one backward (two views; a discriminator's real and "
    "fake): eager casts weights once for both, and adds their gradients in 16 bits; planned steps "
    "add them in 32. In a region each they are eager's to the bit."
)
@pytest.mark.parametrize("apart", [False, True])
def test_gradients_of_two_steps_in_one_region_of_autocast(apart: bool) -> None:
    pair = make_pair_of(PLAIN + inspect.getsource(step_context))
    views = [pair.inputs(seed)[0][0] for seed in (1, 2)]
    found = []
    for model in pair.models():
        with contextlib.nullcontext() if apart else step_context():
            losses = []
            for view in views:
                with step_context() if apart else contextlib.nullcontext():
                    losses.append(_loss(model, view))
        sum(losses).backward()
        found.append([p.grad for p in model.parameters()])
    assert all(map(torch.equal, *found)) == apart
    assert all(torch.allclose(a, b, rtol=0.01, atol=1e-3) for a, b in zip(*found, strict=True))


@pytest.mark.untold(
    "What `copy.deepcopy` makes of a library's function that holds a tensor (x-transformers' tied "
    "head): eager's copy goes on with the original's, a planned one with its own."
)
def test_copies_of_what_a_function_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "def by_bias(head):\n    return lambda t: t * head.bias.mean()\n"
    install_library("library_of_functions", text, tmp_path, monkeypatch)
    pair = make_pair_of(
        model_source(
            "return self.scale(self.head(self.body(x))).square().mean()",
            prelude="from library_of_functions import by_bias",
            init="self.scale = by_bias(self.head)",
        )
    )
    (args, _), losses = pair.inputs(), []
    for model in pair.models():
        before, copied = _loss(model, *args), copy.deepcopy(model)
        with torch.no_grad():
            model.head.bias.fill_(7)
        losses += before, _loss(copied, *args)
    assert losses[0] == losses[2] == losses[3] != losses[1]


@pytest.mark.untold(
    "A hook on an output that is then changed in place (`h.register_hook(…); h.mul_(2)`): where "
    "eager's is a view, as a linear layer's in three dimensions, PyTorch forgets the hook; here it "
    "is called."
)
def test_a_hook_on_an_output_that_is_changed() -> None:
    pair = make_pair_of(model_source("return self.head(self.body(x)[:, None])"))
    called: list[list[Tensor]] = []
    for model in pair.models():
        called.append([])
        output = model(*pair.inputs()[0])
        output.register_hook(called[-1].append)
        output.mul_(2)
        output.sum().backward()
    assert [len(found) for found in called] == [0, 1]


@pytest.mark.untold(
    "An output into which no gradient comes (the keys and values beside the logits), or one in "
    "another layout than the output's (a loss of `y.transpose(1, 2)`): gradients are laid out as "
    "for one that comes as the output is, and sums over them go in another order than eager's "
    "(last bits). A model that returns its loss is not affected."
)
def test_gradients_in_another_layout() -> None:
    init, inputs = "self.scale = nn.Parameter(torch.ones(8))", "(torch.randn(4, 133, 8),)"
    pair = make_pair_of(model_source("return self.body(x) * self.scale", init=init, inputs=inputs))
    (args, _), found = pair.inputs(), []
    for model in pair.models():
        torch.manual_seed(0)
        model(*args).transpose(1, 2).contiguous().pow(3).square().mean().backward()
        found.append(model.scale.grad)
    assert not torch.equal(*found)
    assert torch.allclose(*found)


@pytest.mark.untold(
    "A thread that draws random numbers while backward draws a dropout's again, from the state "
    "that their generator had: either may get the other's. Masks that are kept are safe."
)
def test_a_thread_that_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = make_pair_of(PLAIN, "1GB", "per-layer")
    _, model = pair.models()
    draw, drawn = pair.planned.draw_mask, []

    def draw_beside_another(*args: Any) -> Tensor:
        thread = threading.Thread(target=lambda: drawn.append(torch.rand(())))
        thread.start()
        thread.join()
        mask: Tensor = draw(*args)
        return mask

    gradients = []
    for draws in (draw, draw_beside_another):
        loss = _loss(model, *pair.inputs()[0])
        monkeypatch.setattr(pair.planned, "draw_mask", draws)
        loss.backward()
        gradients.append(model.layers[0].up.weight.grad)
        model.zero_grad()
    assert len(drawn) == 2
    assert not torch.equal(*gradients)


@pytest.mark.untold(
    "`torch.func.functional_call` of a model that runs part of itself again in backward "
    "(`checkpoint`, a reversible layer): eager's backward, behind the call, runs it with the "
    "model's own parameters, a planned one goes on with those that were given."
)
def test_functional_calls_of_what_runs_again() -> None:
    again = "h = torch.utils.checkpoint.checkpoint(self.body, x, use_reentrant=False)"
    lines = f"{again}\nreturn self.head(h.tanh()).square().mean()"
    eager, planned = (pair := make_pair_of(model_source(lines))).models()
    plain, _ = make_pair_of(model_source(lines.replace(again, "h = self.body(x)"))).models()
    found = []
    for model in (plain, planned, eager):
        given = {n: (p * 2).detach().requires_grad_() for n, p in eager.named_parameters()}
        torch.manual_seed(0)
        loss = torch.func.functional_call(model, given, pair.inputs()[0])
        found.append([loss, *torch.autograd.grad(loss, [*given.values()])])
    assert all(map(torch.equal, found[0], found[1]))
    assert torch.equal(found[0][0], found[2][0])
    assert not all(map(torch.equal, found[0], found[2]))


@pytest.mark.untold(
    "A default of a layer's `forward` that is changed where it stands "
    "(`Layer.forward.__defaults__ = …`): a planned step has the one that it was planned with."
)
def test_defaults_of_a_layers_forward() -> None:
    prelude = """
        class Scaled(nn.Module):
            def forward(self, x, gain=2.0):
                return x * gain
    """
    lines = "return self.head(self.scaled(self.body(x))).square().mean()"
    pair = make_pair_of(model_source(lines, init="self.scaled = Scaled()", prelude=prelude))
    losses = []
    for model in pair.models():
        losses.append(_loss(model, *pair.inputs()[0]))
        type(model.scaled).forward.__defaults__ = (3.0,)
        losses.append(_loss(model, *pair.inputs()[0]))
    assert losses[0] == losses[2] == losses[3] != losses[1]
