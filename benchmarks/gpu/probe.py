"""Facts about this GPU and this torch that plans rest on, an object each; none can stop the others.

python benchmarks/gpu/probe.py [--small]
"""

from __future__ import annotations

import json
import os
import platform
import sys
import threading
import time
import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from kernels import norms, repeats, same_masks
from torch import Tensor

from remat_gen.capture.profile.timing import Effort, median_time_us

DEVICE = torch.device("cuda")
SMALL = "--small" in sys.argv
aten = torch.ops.aten
_VARIABLES = ("PYTORCH", "CUBLAS", "TORCH_", "NVIDIA_TF32", "CUDA_")


def versions() -> dict[str, object]:
    """Return what is installed, and what is set."""
    found = torch.cuda.get_device_properties(0)
    order = getattr(torch._C, "_get_sdp_priority_order", lambda: None)
    return {
        "torch": torch.__version__,
        "CUDA": torch.version.cuda,
        "cuDNN": torch.backends.cudnn.version(),
        "python": platform.python_version(),
        "device": found.name,
        "memory": found.total_memory,
        "L2": getattr(found, "L2_cache_size", None),
        "allocator": torch.cuda.get_allocator_backend(),
        "counts requested bytes": "requested_bytes.all.peak" in torch.cuda.memory_stats(),
        "TF32": [torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32],
        "attention's order": order(),
        "variables": {k: v for k, v in os.environ.items() if k.startswith(_VARIABLES)},
    }


def workspaces() -> list[int]:
    """Return bytes allocated after: nothing, a product, its backward, again, another product."""
    factor = torch.randn(256, 256, device=DEVICE, requires_grad=True)
    found = [torch.cuda.memory_allocated()]
    product = factor @ factor
    found.append(torch.cuda.memory_allocated())
    for made in (product, factor @ factor, torch.addmm(factor[0], factor, factor)):
        made.sum().backward()
        found.append(torch.cuda.memory_allocated())
    return found


def backward_thread() -> dict[str, object]:
    """Return what a backward finds: its thread, its stream, what is on in it."""
    seen: dict[str, object] = {}
    caller = threading.get_ident()

    class Look(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: object, grad: Tensor) -> Tensor:
            seen["another thread"] = threading.get_ident() != caller
            seen["gradients"] = torch.is_grad_enabled()
            seen["autocast"] = torch.is_autocast_enabled("cuda")
            seen["stream"] = torch.cuda.current_stream().cuda_stream
            seen["generator's bytes"] = torch.cuda.get_rng_state().numel()
            return grad

    with torch.cuda.stream(torch.cuda.Stream()):
        here = torch.cuda.current_stream().cuda_stream
        Look.apply(torch.ones(4, device=DEVICE, requires_grad=True)).sum().backward()
    return seen | {"same stream": seen["stream"] == here}


def attention() -> dict[str, object]:
    """Return which attention eager takes, how its results lie, and what it warns of."""
    found: dict[str, object] = {}
    for dtype in (torch.bfloat16, torch.float32):
        for probability in (0.0, 0.1):
            x = torch.randn(2, 64, 3, 4, 64, device=DEVICE, dtype=dtype, requires_grad=True)
            q, k, v = x.permute(2, 0, 3, 1, 4).unbind(0)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=probability)
                y.transpose(1, 2).reshape(2, 64, 256).float().square().sum().backward()
            node, finite = y.grad_fn, x.grad is not None and bool(x.grad.isfinite().all())
            kernel = node.name() if node else None
            key = f"{dtype} {probability}"
            found[key] = [kernel, list(y.stride()), finite, [str(w.message)[:120] for w in told]]
    return found


def seeds() -> dict[str, object]:
    """Return where each fused attention leaves its seed, sums and counts."""
    q = torch.randn(2, 4, 64, 64, device=DEVICE, dtype=torch.bfloat16)
    calls: dict[str, Callable[[float], object]] = {
        "flash": lambda p: aten._scaled_dot_product_flash_attention(q, q, q, p, True, False),
        "efficient": lambda p: aten._scaled_dot_product_efficient_attention(
            q, q, q, None, True, p, True
        ),
        "cudnn": lambda p: aten._scaled_dot_product_cudnn_attention(
            q, q, q, None, True, p, True, False
        ),
    }
    return {
        f"{name} {p}": attempted(lambda f=call, p=p: list(map(_told, f(p))))
        for name, call in calls.items()
        for p in (0.0, 0.1)
    }


def _told(value: object) -> object:
    if not isinstance(value, Tensor):
        return value
    return [str(value.device), str(value.dtype)[6:], list(value.shape), list(value.stride())]


def host_us() -> dict[str, float]:
    """Return what calls cost the host, in microseconds: a step of small kernels is bound by it."""
    x, state = torch.randn(64, 64, device=DEVICE), torch.cuda.get_rng_state()
    calls: dict[str, Callable[[], object]] = {
        "add": lambda: x + x,
        "aten.add": lambda: aten.add.Tensor(x, x),
        "relu": lambda: F.relu(x),
        "get_rng_state": torch.cuda.get_rng_state,
        "set_rng_state": lambda: torch.cuda.set_rng_state(state),
        "tensor of a list": lambda: torch.tensor([1.0, 2.0], device=DEVICE),
        "synchronize": torch.cuda.synchronize,
        "memory_stats": torch.cuda.memory_stats,
    }
    return {name: _host_us(call) for name, call in calls.items()}


def _host_us(call: Callable[[], object], repeats: int = 100) -> float:
    call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    spent = time.perf_counter() - start
    torch.cuda.synchronize()
    return round(spent / repeats * 1e6, 2)


def device_us() -> dict[str, float]:
    """Return what the device takes by events, in microseconds, as plans are timed."""
    side, numbers = (64, 1 << 10) if SMALL else (8192, 1 << 28)
    tiny, block = torch.ones(1, device=DEVICE), torch.randn(numbers, device=DEVICE)
    drawn = torch.randn(side, side, device=DEVICE, dtype=torch.bfloat16)
    ones = torch.ones_like(drawn)
    calls: dict[str, Callable[[], object]] = {
        "nothing": lambda: None,
        "add of one": lambda: tiny + tiny,
        "copy": block.clone,
        f"product of {side}, drawn": lambda: drawn @ drawn,
        f"product of {side}, ones": lambda: ones @ ones,
    }
    effort = Effort(most=20)
    return {name: round(median_time_us(call, DEVICE, effort), 2) for name, call in calls.items()}


def attempted(look: Callable[[], object]) -> object:
    """Return what is found, or why it is not."""
    try:
        return look()
    except Exception as error:  # the next fact is as good as this one
        return {"error": f"{type(error).__name__}: {error}"[:300]}


FACTS: dict[str, Callable[[], object]] = {
    "versions": versions,
    "workspaces": workspaces,
    "backward's thread": backward_thread,
    "attention": attention,
    "seeds": seeds,
    "host's time": host_us,
    "device's time": device_us,
    "equal twice": lambda: repeats(DEVICE),
    "same masks": lambda: same_masks(DEVICE),
    "batch norms [cuDNN's us, torch's us, reserve]": lambda: norms(DEVICE, small=SMALL),
}


def main() -> None:
    """Print each fact."""
    torch.ones(1, device=DEVICE)
    for name, look in FACTS.items():
        start = time.perf_counter()
        found = attempted(look)
        spent = round(time.perf_counter() - start, 2)
        print(json.dumps({"fact": name, "found": found, "s": spent}, default=str), flush=True)


if __name__ == "__main__":
    main()
