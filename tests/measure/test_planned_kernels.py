"""Eager runs a plan's kernels while it is compared on a GPU, and its own otherwise."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend

from remat_gen.capture.device.absent import AbsentDevice
from remat_gen.verification.planned_kernels import planned_kernels

CUDA, CPU = torch.device("cuda"), torch.device("cpu")
H200, A100 = AbsentDevice("cuda", (9, 0)), AbsentDevice("cuda", (8, 0))


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return whether torch may take cuDNN's kernel, for each norm that is called."""
    found: list[bool] = []
    for name in ("batch_norm", "instance_norm"):
        kernel = getattr(torch, name)

        def heard(*args: Any, kernel: Any = kernel, **kwargs: Any) -> torch.Tensor:
            found.append(torch.backends.cudnn.enabled)
            made: torch.Tensor = kernel(*args, **kwargs)
            return made

        monkeypatch.setattr(torch, name, heard)
    return found


def run_norms(device: torch.device, modelled: AbsentDevice | None) -> None:
    """Call norms from modules, with keywords, and two that update no statistics."""
    x, mean, var = torch.randn(4, 3, 2, 2), torch.zeros(3), torch.ones(3)
    before = torch.batch_norm
    with planned_kernels(device, modelled=modelled):
        nn.BatchNorm2d(3)(x)
        torch.batch_norm(
            x, None, None, mean, var, training=True, momentum=0.1, eps=1e-5, cudnn_enabled=True
        )
        nn.BatchNorm2d(3).eval()(x)
        nn.BatchNorm2d(3, track_running_stats=False)(x)
        nn.InstanceNorm2d(3)(x)
    assert torch.batch_norm is before and torch.backends.cudnn.enabled


@pytest.mark.parametrize("modelled", [None, H200])
def test_cudnns_norm_is_taken_where_it_is_planned(
    chosen: list[bool], modelled: AbsentDevice | None
) -> None:
    """Which is everywhere but for a norm that updates nothing."""
    run_norms(CUDA, modelled)
    assert chosen == [True, True, False, False, False]


def test_what_is_switched_off_stays_off(chosen: list[bool]) -> None:
    with torch.backends.cudnn.flags(enabled=False), planned_kernels(CUDA, modelled=None):
        nn.BatchNorm2d(3)(torch.randn(4, 3, 2, 2))
        assert not torch.backends.cudnn.enabled
    assert chosen == [False]


def test_on_the_cpu_nothing_is_changed(chosen: list[bool]) -> None:
    run_norms(CPU, H200)
    assert chosen == [True] * 5


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


def test_only_resampling_hears_of_the_algorithms_that_were_asked_for_before() -> None:
    """Dynamo compares what it hears with what is set."""
    asks = "torch.are_deterministic_algorithms_enabled()"
    with planned_kernels(CPU, modelled=None, deterministic=True):
        assert torch.are_deterministic_algorithms_enabled()
        assert not eval(asks, vars(F))
    assert not torch.are_deterministic_algorithms_enabled()
