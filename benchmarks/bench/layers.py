"""What people put around their layers: torch.utils.checkpoint, whole or selective."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from remat_gen.ir.paths import OUTERMOST

_ATEN = torch.ops.aten
PRODUCTS = (
    _ATEN.mm.default,
    _ATEN.addmm.default,
    _ATEN.bmm.default,
    _ATEN.baddbmm.default,
    _ATEN.linear.default,
    _ATEN.convolution.default,
    _ATEN._scaled_dot_product_flash_attention.default,
    _ATEN._scaled_dot_product_flash_attention_for_cpu.default,
    _ATEN._scaled_dot_product_efficient_attention.default,
    _ATEN._scaled_dot_product_cudnn_attention.default,
)


def repeated_layers(model: nn.Module) -> list[nn.Module]:
    """Return the layers that `remat-gen sweep` means too: members of a list with parts, outermost.

    One alone repeats nothing: then there are none.
    """
    named = model.named_modules()
    layers = [m for name, m in named if name and OUTERMOST.of(name) == name and any(m.children())]
    return layers if len(layers) > 1 else []


def checkpoint_layers(model: nn.Module, every: int) -> bool:
    """Checkpoint every so many-th layer of a model; return whether it has any."""
    return _wrap(model, every, partial(checkpoint, use_reentrant=False))


def checkpoint_selectively(model: nn.Module) -> bool:
    """Checkpoint every layer of a model but for its products; return whether it has any."""
    contexts = partial(create_selective_checkpoint_contexts, list(PRODUCTS))
    return _wrap(model, 1, partial(checkpoint, use_reentrant=False, context_fn=contexts))


def _wrap(model: nn.Module, every: int, around: Callable[..., object]) -> bool:
    layers = repeated_layers(model)
    for layer in layers[::every]:
        layer.forward = partial(around, layer.forward)
    return bool(layers)
