"""What a step does on the host, which a CUDA graph does not do again."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from remat_gen.ir.errors import UsageError

_TORCH = str(Path(torch.__file__).parent)
_READS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default)
_SEEDS = "aten._scaled_dot_product_efficient_attention"  # on the host, in a graph on the GPU


class HostWatch(TorchDispatchMode):
    """Refuses operations that read, make or write tensors of the host, or wait for a number."""

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and look where its tensors are.

        Raises:
            UsageError: some are on the host, or it is `.item()` or `torch.equal`.
        """
        made = func(*args, **(kwargs or {}))
        leaves = pytree.tree_leaves((args, kwargs, made))
        on_host = any(isinstance(leaf, Tensor) and leaf.device.type == "cpu" for leaf in leaves)
        reads = func in _READS
        if reads or (on_host and not str(func).startswith(_SEEDS)):
            what = "waits for a number" if reads else "has a tensor on the host"
            raise UsageError(
                f"a CUDA graph cannot do this step again: {func} {what} ({_place()}); a graph runs "
                "what the GPU does, and nothing of the host"
            )
        return made


def _place() -> str:
    """Return the line of the innermost call that is neither torch's nor ours."""
    ours = str(Path(__file__).parent)
    for frame in reversed(traceback.extract_stack()):
        if not frame.filename.startswith((_TORCH, ours)):
            return f"{Path(frame.filename).name}:{frame.lineno}"
    return "in backward"
