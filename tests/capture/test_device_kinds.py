"""Kinds of devices: which one a name means, and what they leave as it was."""

from __future__ import annotations

import pytest
import torch

from remat_gen.capture.device.cpu import CPU
from remat_gen.capture.device.cuda import CUDA
from remat_gen.capture.device.kind import DeviceKind
from remat_gen.capture.device.kinds import KINDS, kind_of, kind_of_plan
from remat_gen.capture.load.load import resolve_device
from remat_gen.ir.errors import UsageError


def test_a_device_has_a_kind() -> None:
    assert kind_of(torch.device("cuda", 3)) is kind_of("cuda:0") is kind_of("cuda") is CUDA
    assert kind_of(torch.device("cpu")) is CPU and kind_of("meta") is CPU


def test_a_plan_names_its_device() -> None:
    assert kind_of_plan("cpu") is CPU
    assert kind_of_plan("NVIDIA H200") is CUDA


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.type)
def test_torch_has_what_generated_modules_call(kind: DeviceKind) -> None:
    module = getattr(torch, kind.type) if kind.is_accelerator else torch
    assert module.__name__ == kind.module
    called = ["get_rng_state", "current_device" if kind.is_accelerator else "set_rng_state"]
    assert hasattr(module, "default_generators" if kind.is_accelerator else "default_generator")
    assert all(callable(getattr(module, name)) for name in called)
    assert hasattr(torch.Tensor, f"is_{kind.type}")


def test_a_kind_says_everything_or_is_none() -> None:
    class Half(DeviceKind):
        __slots__ = ()

    with pytest.raises(TypeError, match="abstract"):
        Half("half", "torch.half", "", 1, 1, CPU.autograd_key, CPU.autocast_key)  # type: ignore[abstract]


def test_devices_that_are_not_there_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve_device("auto") == torch.device("cuda")
    assert resolve_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(UsageError, match=r"--device cuda:2: PyTorch sees 2 CUDA devices"):
        resolve_device("cuda:2")
    with pytest.raises(UsageError, match=r"--device meta: not supported; use auto, cpu or cuda"):
        resolve_device("meta")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == torch.device("cpu")


def test_states_of_gpus_in_use_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    states = [torch.zeros(16, dtype=torch.uint8)]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: [s.clone() for s in states])
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", lambda new: states.__setitem__(0, new[0]))
    with pytest.raises(ZeroDivisionError), CUDA.kept_generators():
        states[0] = torch.ones(16, dtype=torch.uint8)
        assert dict(CUDA.rng_states())["cuda:0"].sum() == 16
        raise ZeroDivisionError
    assert states[0].sum() == 0
