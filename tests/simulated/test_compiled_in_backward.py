"""A part of backward is compiled when it is first called: on a GPU in autograd's device thread."""

from __future__ import annotations

import os
import shutil
import threading
from typing import Any

import pytest
import torch
from on_gpu_steps import simulated_only
from torch import Tensor

from remat_gen.compile.fused_functions import compiled

pytestmark = [
    pytest.mark.cuda,
    simulated_only,
    pytest.mark.skipif(
        shutil.which(os.environ.get("CXX", "g++")) is None, reason="needs a C++ compiler"
    ),
]


@compiled
def fused_gradient(grad: Tensor, x: Tensor, rows: int) -> Tensor:
    """The gradient of sin(x) * x, of the host: nothing compiles for the simulated GPU."""
    return (torch.cos(x) * x + torch.sin(x)) * grad.view(rows, -1)


class Product(torch.autograd.Function):
    """sin(x) * x, with threads and compiled functions of backward noted."""

    threads: tuple[int, ...] = ()

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.sin(x) * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        Product.threads = (*Product.threads, threading.get_ident())
        (x,) = ctx.saved_tensors
        return fused_gradient(grad.cpu(), x.cpu(), x.shape[0]).to(x.device)


def test_what_backward_calls_first_is_compiled_there() -> None:
    Product.threads = ()
    for rows in (8, 8, 5, 3):  # compiled, called, compiled for all other lengths, called
        x = torch.randn(rows, 16, device="cuda", requires_grad=True)
        Product.apply(x).square().sum().backward()
        host = x.detach().cpu().requires_grad_(True)
        (torch.sin(host) * host).square().sum().backward()
        assert x.grad is not None and host.grad is not None
        # the compiler's sin and cos are others than torch's
        torch.testing.assert_close(x.grad.cpu(), host.grad, rtol=1e-5, atol=1e-5)
    assert len(Product.threads) == 4 and threading.get_ident() not in Product.threads
