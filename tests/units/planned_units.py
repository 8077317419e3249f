"""Models whose units are planned, beside their originals: what a step leaves behind."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from emitting_parts import equal_times
from torch import nn
from torch.utils import _pytree as pytree

import remat_gen
from remat_gen.capture.load.load import import_file, read_source
from remat_gen.capture.profile.modelled import modelled_costs
from remat_gen.capture.profile.targets import find_target
from remat_gen.ir.costs import Costs
from remat_gen.ir.graph import Graph
from remat_gen.plan.pipeline import Generated
from remat_gen.verification.peak import model_peak
from remat_gen.verification.step import training_step

MODELS = Path(__file__).parent / "models"
CONVOLUTIONS = {"stages"}
PATTERNS = {
    "deep": "h.*",
    "shared": "h.* dropout",
    "routed": "h.*",
    "stages": "blocks.*",
    "llama": "model.layers.*",
}


@dataclass(frozen=True, slots=True)
class Pair:
    """A generated module and its original, as modules, and how it was planned."""

    generated: Generated
    original: ModuleType
    planned: ModuleType

    def models(self) -> tuple[nn.Module, nn.Module]:
        """Build both from one seed, in training mode."""
        return build(self.original), build(self.planned)

    @property
    def example(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a step."""
        torch.manual_seed(3)
        made = self.original.example_inputs()
        return (made, {}) if isinstance(made, tuple) else ((), made)


def plan(
    folder: Path,
    name: str,
    budget: str,
    changes: Mapping[str, str] | None = None,
    *,
    whole: bool = False,
    **options: Any,
) -> Pair:
    """Plan a model of the folder `models` by its units, or as a `whole`.

    Its costs are modelled, which is quick, but for kernels that need workspaces, of which the
    models know nothing: convolutions, and products in bfloat16 (on some processors). There every
    operation takes the same time.
    """
    source = Path(shutil.copy(MODELS / f"{name}.py", folder))
    for old, new in (changes or {}).items():
        source.write_text(source.read_text().replace(old, new))
    where = "remat_gen.capture.profile.profile.profile"
    measured = name in CONVOLUTIONS or "bfloat16" in str(options.get("fsdp"))
    with equal_times() if measured else mock.patch(where, modelled):
        generated = remat_gen.generate(
            source, budget=budget, units=[] if whole else PATTERNS[name].split(), **options
        )
    return pair_of(source, generated)


def pair_of(source: Path, generated: Generated) -> Pair:
    """Import a file and what was generated for it."""
    assert generated.output is not None
    return Pair(generated, _imported(source), _imported(generated.output))


def modelled(graph: Graph, device: torch.device, *_: Any) -> Costs:
    made = modelled_costs(graph, find_target("h200"))
    return Costs("cpu", made.operations)


def _imported(path: Path) -> ModuleType:
    return import_file(path, read_source(path))


def free_port() -> int:
    """Return a port that is free now, for processes that meet there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def import_for_worker(path: Path) -> ModuleType:
    """Import a module in another process."""
    return _imported(path)


def build(module: ModuleType) -> nn.Module:
    """Build a model from a fixed seed."""
    torch.manual_seed(0)
    model: nn.Module = module.build_model()
    return model.train()


def left_behind(pair: Pair, model: nn.Module, steps: int = 2) -> Iterator[torch.Tensor]:
    """Run some steps; yield outputs, gradients, buffers and the random state."""
    args, kwargs = pair.example
    for step in range(steps):
        torch.manual_seed(7 + step)
        outputs = training_step(model, args, kwargs)
        leaves = pytree.tree_leaves(outputs)
        yield from (leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor))
    yield torch.get_rng_state()
    yield from model.buffers()
    for parameter in model.parameters():
        assert parameter.grad is not None
        yield parameter.grad


def same_bits(pair: Pair) -> bool:
    """Tell whether steps of both models leave the same bits behind."""
    original, planned = (list(left_behind(pair, model)) for model in pair.models())
    return len(original) == len(planned) > 0 and all(map(torch.equal, original, planned))


def peak(pair: Pair, model: nn.Module) -> int:
    """Measure the activation peak of a step."""
    return model_peak(model, *pair.example, torch.device("cpu")).peak_bytes
