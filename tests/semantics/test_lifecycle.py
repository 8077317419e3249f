"""Nothing stays alive: each tensor made in a step dies by counting references alone."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from pairs import Pair
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode


class _Made(TorchDispatchMode):
    """Remembers every tensor that an operation returns, weakly."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[weakref.ref[Tensor]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        leaves = torch.utils._pytree.tree_leaves(result)
        self.made += [weakref.ref(leaf) for leaf in leaves if isinstance(leaf, Tensor)]
        return result

    def alive(self, model: nn.Module) -> list[tuple[int, ...]]:
        known = {id(t) for t in (*model.parameters(), *model.buffers())}
        known |= {id(p.grad) for p in model.parameters()}
        tensors = (reference() for reference in self.made)
        return [tuple(t.shape) for t in tensors if t is not None and id(t) not in known]


@contextmanager
def _without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _forward_only(model: nn.Module, args: tuple[Any, ...]) -> None:
    model(*args)


def _step(model: nn.Module, args: tuple[Any, ...]) -> None:
    model(*args).backward()


def _two_steps_at_once(model: nn.Module, args: tuple[Any, ...]) -> None:
    one, other = model(*args), model(*args)
    one.backward()
    other.backward()


def _subset(model: nn.Module, args: tuple[Any, ...]) -> None:
    torch.autograd.grad(model(*args), _trained(model)[5])


def _trained(model: nn.Module) -> list[Tensor]:
    return [p for p in model.parameters() if p.requires_grad]


def _error_in_backward(model: nn.Module, args: tuple[Any, ...]) -> None:
    loss = model(*args)
    with torch.no_grad():
        next(model.parameters()).mul_(1.5)
    with pytest.raises(RuntimeError):
        loss.backward()


def _error_in_a_hook(model: nn.Module, args: tuple[Any, ...]) -> None:
    def fail(gradient: Tensor) -> None:
        raise ArithmeticError

    handle = _trained(model)[8].register_hook(fail)
    with pytest.raises(ArithmeticError):
        model(*args).backward()
    handle.remove()


@pytest.mark.parametrize(
    "use",
    [_forward_only, _step, _two_steps_at_once, _subset, _error_in_backward],
)
@pytest.mark.parametrize("name", ["deep", "mixed"])
def test_nothing_is_left(
    name: str, use: Callable[[nn.Module, tuple[Any, ...]], None], request: pytest.FixtureRequest
) -> None:
    pair: Pair = request.getfixturevalue(name)
    _, planned = pair.models()
    args, _ = pair.inputs()
    made = _Made()
    with _without_collector():
        with made:
            use(planned, args)
        alive = made.alive(planned)
    assert len(made.made) > 50
    assert not alive


def test_an_error_in_a_hook_leaves_no_more_than_eagers_does(deep: Pair) -> None:
    """PyTorch's engine keeps what it had ready when Python raised; that is not the plan's."""
    left = []
    for model in deep.models():
        args, _ = deep.inputs()
        made = _Made()
        with _without_collector():
            with made:
                _error_in_a_hook(model, args)
            left.append(len(made.alive(model)))
    assert left[1] <= left[0]


def test_the_model_itself_keeps_nothing_but_how_it_looked(deep: Pair) -> None:
    _, planned = deep.models()
    before = {name: set(vars(module)) for name, module in planned.named_modules()}
    before[""].add("_planned_watch")
    loss = planned(*deep.inputs()[0])
    assert {name: set(vars(module)) for name, module in planned.named_modules()} == before
    loss.backward()
