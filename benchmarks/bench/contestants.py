"""Who takes part: each one builds a model whose step is trained on, or says why it cannot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._functorch import config as functorch_config

from bench.layers import checkpoint_layers, checkpoint_selectively
from remat_gen.capture.load.load import Loaded, load
from remat_gen.ir.plan import Predicted, read_plan
from remat_gen.plan.output import plan_path

NO_LAYERS = "no repeated layer to put it around"
LAYERED: tuple[tuple[str, Callable[[nn.Module], bool]], ...] = (
    ("checkpoint, every layer", lambda model: checkpoint_layers(model, 1)),
    ("checkpoint, every 2nd", lambda model: checkpoint_layers(model, 2)),
    ("checkpoint, selective", checkpoint_selectively),
)


class NotApplicableError(Exception):
    """Somebody cannot take part with this model."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to train a model. `setting` is its budget, `predicted` what its plan promises."""

    name: str
    kind: str  # "eager", "remat-gen", "remat-gen --compile", "checkpoint", "torch.compile"
    setting: str
    build: Callable[[], nn.Module]
    predicted: Predicted | None = None


@dataclass(frozen=True, slots=True)
class Module:
    """A generated module's path, or the reason why there is none."""

    budget: str
    path: Path | str
    compiled: bool = False


def contestants(
    source: Path, modules: Sequence[Module], ratios: Sequence[float]
) -> list[Contestant]:
    """Return all: eager first, then the generated modules, then what people use."""
    found = [Contestant("eager", "eager", "", lambda: fresh(source).model)]
    found += [_generated(module) for module in modules]
    found += [_layered(source, name, apply) for name, apply in LAYERED]
    return found + [_compiled(source, ratio) for ratio in ratios]


def fresh(source: Path) -> Loaded:
    """Load a model file anew: each contestant has a model of its own."""
    return load(source, device="cpu")


def _generated(module: Module) -> Contestant:
    kind = "remat-gen --compile" if module.compiled else "remat-gen"
    name, path = f"{kind}, {module.budget}", module.path
    if isinstance(path, str):
        return Contestant(name, kind, module.budget, _refusing(path))
    predicted = read_plan(plan_path(path)).predicted
    return Contestant(name, kind, module.budget, lambda: fresh(path).model, predicted)


def _refusing(reason: str) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        raise NotApplicableError(reason)

    return build


def _layered(source: Path, name: str, apply: Callable[[nn.Module], bool]) -> Contestant:
    def build() -> nn.Module:
        model = fresh(source).model
        if not apply(model):
            raise NotApplicableError(NO_LAYERS)
        return model

    return Contestant(name, "checkpoint", "", build)


def _compiled(source: Path, ratio: float) -> Contestant:
    def build() -> nn.Module:
        model = fresh(source).model
        model.compile(backend=compiler_within(ratio), dynamic=False)
        return model

    return Contestant(f"torch.compile, {ratio:g}", "torch.compile", f"{ratio:g}", build)


def compiler_within(ratio: float) -> Callable[..., Any]:
    """Return inductor with an `activation_memory_budget`; its own object, so that none is shared.

    torch compares backends before it uses compiled code again: models of one class, as a
    library's are, would otherwise run what was compiled for the first budget.
    """

    def compile_within(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        from torch._inductor.compile_fx import compile_fx

        with functorch_config.patch(activation_memory_budget=ratio):
            return compile_fx(graph, inputs)

    return compile_within
