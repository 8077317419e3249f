"""Hooks on what the model returns: seen where they are right, refused where they are not."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from pairs import make_pair_of
from sources import model_source
from steps import assert_right
from torch.utils._pytree import tree_leaves

READ_ON = model_source("h = self.body(x)\nreturn self.head(h), h")
ASKED: dict[str, Callable[[torch.Tensor], object]] = {
    "retain_grad": lambda h: h.retain_grad(),
    "a hook": lambda h: h.register_hook(lambda g: None),
}


@pytest.mark.limit(
    "hooks and `retain_grad()` on an output that `forward` itself goes on reading, or that another "
    "one is a view of: autograd does not see that part of its gradient",
    "an error, behind a call of the hook with None; call `forward_eager()`",
)
@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_an_output_that_forward_goes_on_reading(ask: Callable[[torch.Tensor], object]) -> None:
    pair = make_pair_of(READ_ON, "1GB", "per-layer")
    assert_right(pair)
    _, planned = pair.models()
    out, h = planned(*pair.inputs()[0])
    ask(h)
    with pytest.raises(RuntimeError, match=r"itself goes on reading(.|\n)*forward_eager"):
        (out.sum() + h.sum()).backward()


BEHIND_VIEWS = {
    "a view": "h = self.body(x)\nreturn h, h.view(-1)",
    "the same twice and a view": "h = self.body(x)\nreturn [h, h], {'rows': h[1:]}",
    "written through a view": "h = self.body(x)\npart = h[:2]\npart.mul_(2)\nreturn h, part",
    "a reshape that the loss reads reshaped": "h = self.head(self.body(x).view(2, 3, 8))\n"
    "return h, F.cross_entropy(h.view(-1, 4), torch.zeros(6, dtype=torch.long))",
}


@pytest.mark.parametrize("source", BEHIND_VIEWS.values(), ids=BEHIND_VIEWS)
@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_an_output_that_others_are_views_of(
    source: str, ask: Callable[[torch.Tensor], object]
) -> None:
    pair = make_pair_of(model_source(source), "1GB", "per-layer")
    _, planned = pair.models()
    *others, last = tree_leaves(planned(*pair.inputs()[0]))
    ask(others[0])
    with pytest.raises(RuntimeError, match=r"itself goes on reading(.|\n)*forward_eager"):
        last.sum().backward()


def test_a_hook_on_an_output_that_nobody_holds() -> None:
    pair = make_pair_of(READ_ON, "1GB", "per-layer")
    _, planned = pair.models()
    out, h = planned(*pair.inputs()[0])
    h.register_hook(lambda g: None)
    del h
    with pytest.raises(RuntimeError, match="itself goes on reading"):
        out.sum().backward()


HOOKED = {
    "only read detached": "h = self.body(x)\nreturn h, self.head(x + h.detach())",
    "its own view": "h = self.body(x)\nreturn h.view(-1), h",
    "parts": "h = self.body(x)\nreturn h.split(3)",
}


@pytest.mark.parametrize("source", HOOKED.values(), ids=HOOKED)
def test_outputs_that_no_other_is_made_of_may_have_hooks(source: str) -> None:
    pair = make_pair_of(model_source(source), "1GB", "per-layer")
    found = []
    for model in pair.models():
        torch.manual_seed(3)
        first, other = model(*pair.inputs()[0])
        first.retain_grad()
        first.register_hook(lambda g: g * 2)
        (first.sin().sum() + other.cos().sum()).backward()
        found.append((first.grad, model.layers[0].up.weight.grad))
    assert all(map(torch.equal, *found))


@pytest.mark.limit(
    "`torch.autograd.grad` of one output by another that it is made of",
    "PyTorch's error: it appears to not have been used; call `forward_eager()`",
)
def test_a_gradient_between_outputs() -> None:
    pair = make_pair_of(READ_ON, "1GB", "per-layer")
    _, planned = pair.models()
    out, h = planned(*pair.inputs()[0])
    with pytest.raises(RuntimeError, match="appears to not have been used"):
        torch.autograd.grad(out.sum(), h)


def test_outputs_that_nothing_reads_may_have_hooks() -> None:
    source = model_source("h = self.body(x)\nreturn self.head(h), h.tanh()")
    pair = make_pair_of(source, "1GB", "per-layer")
    found = []
    for model in pair.models():
        torch.manual_seed(3)
        out, h = model(*pair.inputs()[0])
        h.retain_grad()
        h.register_hook(lambda g: g * 2)
        (out.sum() + h.sum()).backward()
        found.append((h.grad, model.layers[0].up.weight.grad))
    assert all(map(torch.equal, *found))


def test_hooks_of_frameworks_may_be_anywhere() -> None:
    """FSDP1 and Lightning's Fabric put one on each output, as a functools.partial."""
    pair = make_pair_of(READ_ON, "1GB", "per-layer")
    found = []
    for model in pair.models():
        torch.manual_seed(3)
        out, h = model(*pair.inputs()[0])
        for output in (out, h):
            output.register_hook(functools.partial(torch.nn.functional.dropout, p=0.0))
        (out.sum() + h.sum()).backward()
        found.append([p.grad for p in model.parameters()])
    assert all(map(torch.equal, *found))
    with pytest.raises(RuntimeError, match="itself goes on reading"):
        _, planned = pair.models()
        out, h = planned(*pair.inputs()[0])
        h.register_hook(functools.partial(lambda _, g: g, 2))
        out.sum().backward()
