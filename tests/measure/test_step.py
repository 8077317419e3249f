"""A training step differentiates the loss, or else every output that requires grad."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from remat_gen.verification.step import clear_gradients, leaves_of, structure_of, training_step


@dataclass
class Output:
    loss: Tensor | None
    hidden: tuple[Tensor, ...]


class Scaled(nn.Module):
    """Returns what `form` makes of two products with separate parameters."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.a = nn.Parameter(torch.tensor([1.0, 2.0]))
        self.b = nn.Parameter(torch.tensor([3.0, 4.0]))
        self.c = nn.Parameter(torch.tensor(5.0))

    def forward(self, x: Tensor) -> object:
        a, b = self.a * x, self.b * x
        return {
            "loss": (a.sum(), b),
            "dataclass": Output(a.sum(), (b,)),
            "both": [a, {"b": b, "text": "t"}],
            "two scalars": (a.sum(), b.sum()),
            "none": (a.detach(), 3),
            "twice": (loss := a.sum(), loss, b),
            "handed on": (a.sum(), self.c, self.c.view(1), x),
        }[self.form]


X = torch.tensor([5.0, 7.0])


@pytest.mark.parametrize("form", ["loss", "dataclass", "twice", "handed on"])
def test_only_the_loss_is_differentiated(form: str) -> None:
    model = Scaled(form)
    training_step(model, (X,), {})
    assert model.a.grad is not None and torch.equal(model.a.grad, X)
    assert model.b.grad is None


@pytest.mark.parametrize("form", ["both", "two scalars"])
def test_without_one_loss_every_output_is_differentiated(form: str) -> None:
    model, again = Scaled(form), Scaled(form)
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)

    training_step(model, (), {"x": X})
    training_step(again, (), {"x": X})

    assert torch.equal(torch.rand(2), expected)  # the global stream was left alone
    for parameter, other in ((model.a, again.a), (model.b, again.b)):
        assert parameter.grad is not None and other.grad is not None
        assert torch.equal(parameter.grad, other.grad)
        assert parameter.grad.abs().min() > 0
    assert not torch.equal(model.a.grad, model.b.grad)  # type: ignore[arg-type]


def test_gradients_accumulate_and_clear() -> None:
    model = Scaled("loss")
    x = X.clone().requires_grad_()
    training_step(model, (x,), {})
    training_step(model, (x,), {})
    assert torch.equal(model.a.grad, 2 * X)  # type: ignore[arg-type]
    assert x.grad is not None
    clear_gradients(model, (x,), {})
    assert model.a.grad is None and x.grad is None


def test_a_sparse_buffer_is_in_nobodys_way() -> None:
    model = Scaled("both")
    model.register_buffer("sparse", torch.eye(2).to_sparse())
    training_step(model, (X,), {})
    assert model.a.grad is not None and model.b.grad is not None


def test_nothing_to_differentiate() -> None:
    assert isinstance(training_step(Scaled("none"), (X,), {}), tuple)


def test_leaves_and_structure_see_into_dataclasses() -> None:
    value = [Output(None, (X, X)), {"k": 1}]
    assert [leaf if leaf is not X else "X" for leaf in leaves_of(value)] == [None, "X", "X", 1]
    assert structure_of(value) == (
        "list(Output(loss=NoneType, hidden=tuple(tensor, tensor)), dict('k': int))"
    )
    assert structure_of({"a": X}) != structure_of({"b": X})
