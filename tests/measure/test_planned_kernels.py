"""Eager runs a plan's kernels while it is compared on a GPU, and its own otherwise."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend

from remat_gen.capture.device.absent import AbsentDevice
from remat_gen.verification.planned_kernels import planned_kernels

CUDA, CPU = torch.device("cuda"), torch.device("cpu")
H200, A100 = AbsentDevice("cuda", (9, 0)), AbsentDevice("cuda", (8, 0))


def called(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, modelled: AbsentDevice | None = H200
) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Return what reaches torch from a module, and from a call with keywords."""
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    kernel = torch.batch_norm

    def heard(*args: Any, **kwargs: Any) -> torch.Tensor:
        calls.append((args, kwargs))
        return kernel(*args, **kwargs)

    monkeypatch.setattr(torch, "batch_norm", heard)
    x, mean, var = torch.randn(4, 3, 2, 2), torch.zeros(3), torch.ones(3)
    with planned_kernels(device, modelled=modelled):
        nn.BatchNorm2d(3)(x)
        torch.batch_norm(
            x, None, None, mean, var, training=True, momentum=0.1, eps=1e-5, cudnn_enabled=True
        )
    assert torch.batch_norm is heard
    return calls


def test_batch_norm_takes_pytorchs_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    (first, _), (_, keywords) = called(CUDA, monkeypatch)
    assert first[8] is False and first[5] is True
    assert keywords["cudnn_enabled"] is False


def test_cudnns_is_taken_where_it_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A measured plan has it, but for a norm that updates nothing."""
    (first, _), (_, keywords) = called(CUDA, monkeypatch, modelled=None)
    assert first[8] is torch.backends.cudnn.enabled and keywords["cudnn_enabled"] is True
    calls: list[bool] = []
    monkeypatch.setattr(torch, "batch_norm", lambda *args: calls.append(args[8]) or args[0])
    with planned_kernels(CUDA, modelled=None):
        nn.BatchNorm2d(3).eval()(torch.randn(4, 3, 2, 2))
        nn.BatchNorm2d(3, track_running_stats=False)(torch.randn(4, 3, 2, 2))
    assert calls == [False, False]


def test_on_the_cpu_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    (first, _), (_, keywords) = called(CPU, monkeypatch)
    assert first[8] is torch.backends.cudnn.enabled
    assert keywords["cudnn_enabled"] is True


def test_modelled_plans_are_compared_with_the_attention_of_their_device() -> None:
    def enabled() -> tuple[bool, bool, bool]:
        cuda = torch.backends.cuda
        return cuda.cudnn_sdp_enabled(), cuda.flash_sdp_enabled(), cuda.math_sdp_enabled()

    before = torch._C._get_sdp_priority_order()
    with planned_kernels(CUDA, modelled=A100):
        assert enabled() == (False, True, True)
    with planned_kernels(CUDA, modelled=H200):
        assert enabled() == (True, True, True)
        assert torch._C._get_sdp_priority_order()[0] == SDPBackend.CUDNN_ATTENTION.value
    assert torch._C._get_sdp_priority_order() == before
    with planned_kernels(CUDA, modelled=None):
        assert enabled()[0]


def test_instance_norm_too(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []
    kernel = torch.instance_norm

    def heard(*args: Any) -> torch.Tensor:
        calls.append(args[-1])
        return kernel(*args)

    monkeypatch.setattr(torch, "instance_norm", heard)
    with planned_kernels(CUDA, modelled=None):
        nn.InstanceNorm2d(3)(torch.randn(4, 3, 2, 2))
    nn.InstanceNorm2d(3)(torch.randn(4, 3, 2, 2))
    assert calls == [False, torch.backends.cudnn.enabled]
