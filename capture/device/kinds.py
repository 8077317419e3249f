"""The kinds of devices that are known: another one is a file beside, and a place in this tuple."""

from __future__ import annotations

import torch

from remat_gen.capture.device.cpu import CPU
from remat_gen.capture.device.cuda import CUDA
from remat_gen.capture.device.kind import DeviceKind

KINDS: tuple[DeviceKind, ...] = (CUDA, CPU)  # in the order in which `auto` takes them
TYPES = tuple(kind.type for kind in KINDS)


def kind_of(device: torch.device | str) -> DeviceKind:
    """Return the kind of a device, or of its name ("cuda:1").

    What is neither of them ("meta") runs nothing, and gets the CPU's answers.
    """
    word = str(device).partition(":")[0]
    return next((kind for kind in KINDS if kind.type == word), CPU)


def kind_of_plan(name: str) -> DeviceKind:
    """Return the kind of the device that a plan names (`DeviceKind.name`): "cpu", or a GPU's name.

    A GPU of another maker than the first says its kind before its name ("xpu: …").
    """
    return kind_of(name) if name.partition(":")[0] in TYPES else KINDS[0]
