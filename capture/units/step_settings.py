"""What torch is set to where a unit is called: units are traced as the step around them begins."""

from __future__ import annotations

import torch
import torch.backends.cuda as attention

from remat_gen.capture.units.boundary import UnfitUnitError


def settings(kind: str) -> dict[str, object]:
    """Return what decides which kernels run, by a name for people; `kind` is of device."""
    kernels = ("flash", "mem_efficient", "math", "cudnn")
    chosen = [name for name in kernels if getattr(attention, f"{name}_sdp_enabled")()]
    autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else "off"
    return {
        "autocast": str(autocast).removeprefix("torch."),
        "sdpa_kernel": ", ".join(chosen),
        "torch.backends.mkldnn.flags": torch.backends.mkldnn.is_available()
        and torch._C._get_mkldnn_enabled(),
        "torch.get_float32_matmul_precision()": torch.get_float32_matmul_precision(),
        "torch.get_default_dtype()": torch.get_default_dtype(),
    }


def refuse_set_aside(path: str, outside: dict[str, object], inside: dict[str, object]) -> None:
    """Refuse a unit that the model calls with torch set otherwise than the step around it."""
    for name, value in inside.items():
        if outside.get(name, value) != value:
            mending = "let step_context() return it, or " * (name == "autocast")
            raise UnfitUnitError(
                f"--units: the model calls {path} with {name} {value}, and its step begins with "
                f"{outside[name]}, which units are planned with: {mending}set it in the unit's own "
                "forward",
                path,
            )
