"""Fake results have the strides of the CPU's kernels, in forward and in backward."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from remat_gen.capture.device.absent import AbsentDevice
from remat_gen.capture.layouts.real_layouts import ALSO_ON_GPUS, RULES, layouts_of_kernels

SHAPES = {3: (4, 8, 6), 4: (2, 4, 6, 8), 5: (2, 4, 4, 4, 4)}
FUNCTIONS: dict[str, tuple[int, Callable[[Tensor], Tensor]]] = {
    "batch_norm": (3, nn.BatchNorm1d(8)),
    "batch_norm, evaluated": (3, nn.BatchNorm1d(8).eval()),
    "batch_norm without statistics": (3, nn.BatchNorm1d(8, track_running_stats=False)),
    "batch_norm of images": (4, nn.BatchNorm2d(4)),
    "batch_norm of volumes": (5, nn.BatchNorm3d(4)),
    "convolution of images": (4, nn.Conv2d(4, 6, 3)),
    "convolution without bias": (4, nn.Conv2d(4, 6, 3, bias=False)),
    "convolution of volumes": (5, nn.Conv3d(4, 6, 1)),
    "transposed convolution of volumes": (5, nn.ConvTranspose3d(4, 2, (1, 2, 2), (1, 2, 2))),
    "layer_norm": (3, nn.LayerNorm(6)),
    "log_softmax": (3, lambda x: x.log_softmax(1)),
    "log_softmax of images": (4, lambda x: x.log_softmax(1)),
    "layer_norm of images": (4, nn.LayerNorm([6, 8])),
    "elu of images": (4, F.elu),
    "mse_loss of images": (4, lambda x: F.mse_loss(x, ones(x), reduction="none")),
    "elu": (3, F.elu),
    "hardswish": (3, F.hardswish),
    "softplus": (3, F.softplus),
    "hardsigmoid": (3, F.hardsigmoid),
    "hardtanh": (3, F.hardtanh),
    "logit": (3, lambda x: x.sigmoid().logit()),
    "xlogy": (3, lambda x: torch.xlogy(x.abs(), x.abs() + 1)),
    "logsigmoid": (3, F.logsigmoid),
    "logsigmoid of images": (4, F.logsigmoid),
    "rrelu, evaluated": (4, lambda x: F.rrelu(x, training=False)),
    "rrelu": (3, lambda x: F.rrelu(x, training=True)),
    "binary_cross_entropy": (
        3,
        lambda x: F.binary_cross_entropy(x.sigmoid(), ones(x), None, None, None, "none"),
    ),
    "binary_cross_entropy, its mean": (3, lambda x: F.binary_cross_entropy(x.sigmoid(), ones(x))),
    "mse_loss": (3, lambda x: F.mse_loss(x, ones(x), reduction="none")),
    "smooth_l1_loss": (3, lambda x: F.smooth_l1_loss(x, ones(x), reduction="none")),
    "huber_loss": (3, lambda x: F.huber_loss(x, ones(x))),
    "glu": (4, lambda x: F.glu(x, 1)),
    "channel_shuffle": (4, lambda x: F.channel_shuffle(x, 2)),
    "roll": (4, lambda x: x.roll((1, 1), (2, 3))),
    "roll of all in a row": (4, lambda x: x.roll(3)),
    "roll along one": (4, lambda x: x.roll(1, 2)),
    "max_unpool2d": (4, lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)),
    "reflection_pad2d": (4, lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect")),
    "replication_pad2d": (4, lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate")),
    "replication_pad3d": (5, lambda x: F.pad(x, (1,) * 6, mode="replicate")),
    "bicubic": (4, lambda x: F.interpolate(x, size=(3, 5), mode="bicubic")),
    "bicubic, antialiased": (
        4,
        lambda x: F.interpolate(x, size=(3, 5), mode="bicubic", antialias=True),
    ),
}


def ones(x: Tensor) -> Tensor:
    return torch.ones(x.shape)


def laid_out(shape: tuple[int, ...], order: tuple[int, ...]) -> Tensor:
    """Return a tensor whose dimensions lie in memory in an order."""
    inverse = [order.index(dim) for dim in range(len(shape))]
    return torch.randn([shape[dim] for dim in order]).permute(inverse).detach()


class Compared(TorchDispatchMode):
    """Compares each operation's results with those on fake tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.other: list[str] = []
        self.ruled: set[object] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        mode = FakeTensorMode()
        fakes = pytree.tree_map_only(Tensor, mode.from_tensor, (args, kwargs or {}))
        real = func(*args, **(kwargs or {}))
        with mode, layouts_of_kernels():
            fake = func(*fakes[0], **fakes[1])
        self.ruled |= {func} & RULES.keys()
        for one, two in zip(pytree.tree_leaves(real), pytree.tree_leaves(fake), strict=True):
            if isinstance(one, Tensor) and one.numel() > 1 and strides(one) != strides(two):
                self.other.append(f"{func}: {strides(one)}, fake {strides(two)}")
        return real


def strides(tensor: Tensor) -> list[int]:
    return [n for n, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]


def orders(dims: int) -> Iterable[tuple[int, ...]]:
    """Return orders of dimensions in memory: all, of volumes the usual ones."""
    return itertools.permutations(range(dims)) if dims < 5 else [(0, 1, 2, 3, 4), (0, 2, 3, 4, 1)]


def gradients(y: Tensor) -> Iterable[Tensor]:
    """Yield incoming gradients as they may lie: contiguous, channels last, the other way round."""
    around = tuple(range(y.ndim))
    yield laid_out(tuple(y.shape), around)
    yield laid_out(tuple(y.shape), around[::-1])
    if y.ndim == 4:
        yield laid_out(tuple(y.shape), (0, 2, 3, 1))


@pytest.mark.parametrize("shape", [(2, 4, 1, 1), (2, 1, 6, 8), (2, 4, 6, 1), (2, 4, 1, 8)])
def test_batch_norm_keeps_the_layout_of_ones(shape: tuple[int, ...]) -> None:
    """Strides of dimensions of length 1 decide in which format an upsampling goes on."""
    ones = torch.ones(shape[1])
    for order in orders(4):
        x = laid_out(shape, order)
        real = F.batch_norm(x, None, None, ones, ones, training=True)
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        with mode, layouts_of_kernels():
            fake = F.batch_norm(mode.from_tensor(x), None, None, ones, ones, training=True)
        assert fake.stride() == real.stride(), order


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_what_is_cut_holds_its_memory(mode: str) -> None:
    """A bag's numbers are made one longer: eight bytes above a budget that was eager's peak."""
    table, rows, starts = torch.randn(9, 4), torch.tensor([3, 1, 4, 1, 5]), torch.tensor([0, 2])
    kind = ["sum", "mean", "max"].index(mode)
    real = torch.ops.aten._embedding_bag(table, rows, starts, False, kind)
    with FakeTensorMode() as fakes, layouts_of_kernels():
        given = map(fakes.from_tensor, (table, rows, starts))
        fake = torch.ops.aten._embedding_bag(*given, False, kind)
    for one, two in zip(real, fake, strict=True):
        assert one.shape == two.shape
        assert one.untyped_storage().nbytes() == two.untyped_storage().nbytes()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_strides_are_those_of_the_kernels(name: str) -> None:
    dims, function = FUNCTIONS[name]
    with Compared() as compared:
        for order in orders(dims):
            y = function(laid_out(SHAPES[dims], order).requires_grad_())
            for gradient in gradients(y):
                y.backward(gradient, retain_graph=True)
    assert not compared.other
    assert compared.ruled, "no rule was needed"


@pytest.mark.parametrize(("device", "stands_for"), [("cpu", AbsentDevice("cuda")), ("cuda", None)])
def test_what_a_gpu_allocates_likewise(device: str, stands_for: AbsentDevice | None) -> None:
    """LayerNorm's gradient of a transposed tensor: a view of it was taken for one, and none is."""
    assert RULES.keys() >= ALSO_ON_GPUS.keys()
    with FakeTensorMode(), layouts_of_kernels(stands_for):
        x = torch.empty(4, 6, 8, device=device).transpose(1, 2)
        mean = torch.empty(4, 8, 1, device=device)
        weight = torch.empty(6, device=device)
        found = torch.ops.aten.native_layer_norm_backward(
            x, x, [6], mean, mean, weight, weight, [True, True, True]
        )
    assert found[0].stride() == (48, 6, 1)


def test_rules_of_the_cpu_alone_are_not_for_gpus() -> None:
    x = laid_out((4, 8, 6), (0, 2, 1))
    with FakeTensorMode() as mode, layouts_of_kernels("cuda"):
        fake = F.batch_norm(mode.from_tensor(x), None, None, training=True)
    assert fake.stride() == x.stride()
