"""Generate a planned module from a source text, and import it beside its original."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import itertools
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from traced_once import each_traced_once

from remat_gen.ask.budget import parse_budget
from remat_gen.ask.request import Request, Strategy
from remat_gen.capture.process.defined_once import defined_once
from remat_gen.capture.profile.profile import Progress as ProfileProgress
from remat_gen.capture.profile.roofline import NOMINAL_CPU, roofline_us
from remat_gen.ir.costs import Cost, Costs
from remat_gen.ir.errors import InfeasibleBudgetError
from remat_gen.ir.graph import Graph
from remat_gen.ir.plan import Plan
from remat_gen.ir.steps import runs_in
from remat_gen.plan.pipeline import Generated, generate
from remat_gen.terminal.progress import Progress

LOWEST = "lowest"  # the smallest budget that is feasible
MODELS = Path(__file__).parent / "models"
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Pair:
    """The original module and the one generated from it."""

    original: ModuleType
    planned: ModuleType
    text: str
    plan: Plan

    def models(self, seed: int = 0) -> tuple[nn.Module, nn.Module]:
        """Build both models in training mode with the same parameters and buffers."""
        built = []
        for module in (self.original, self.planned):
            torch.manual_seed(seed)
            built.append(module.build_model().train())
        built[1].load_state_dict(built[0].state_dict())
        return built[0], built[1]

    def inputs(self, seed: int = 1) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a step."""
        torch.manual_seed(seed)
        made = self.original.example_inputs()
        return ((), made) if isinstance(made, dict) else (tuple(made), {})

    @property
    def reruns(self) -> int:
        """Return how many operations run again."""
        return self.plan.predicted.reruns

    @property
    def reruns_across(self) -> bool:
        """Tell whether some block's backward runs an operation of another block again."""
        segments = self.plan.schedule
        block_of = {name: s.block for s in segments if not s.backward for name in runs_in(s.steps)}
        return any(
            block_of.get(name, s.block) != s.block
            for s in segments
            if s.backward
            for name in runs_in(s.steps)
        )


def make_pair(name: str, limit: str = LOWEST, strategy: str = "rockmate") -> Pair:
    """Plan one of the models beside these tests; every case is generated once per session."""
    return make_pair_of((MODELS / f"{name}.py").read_text(), limit, strategy)


@functools.cache
def make_pair_of(
    source: str, limit: str = LOWEST, strategy: str = "rockmate", **asked: Any
) -> Pair:
    """Plan the model of a source text; what else is `asked` are fields of a request."""
    folder = Path(tempfile.mkdtemp(prefix="remat-gen-test-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "model.py"
    path.write_text(source)
    generated = plan_file(path, limit, strategy, **asked)
    number = next(_numbers)
    return Pair(
        original=import_file(path, f"semantics_original_{number}"),
        planned=import_file(folder / "model_remat.py", f"semantics_planned_{number}"),
        text=generated.text,
        plan=generated.plan,
    )


def plan_file(path: Path, limit: str, strategy: str, **asked: Any) -> Generated:
    """Run the pipeline with modelled costs: quick, and the same on every machine."""
    with pytest.MonkeyPatch.context() as patch, each_traced_once():
        patch.setattr("remat_gen.capture.profile.profile.profile", modelled_costs)
        if limit != LOWEST:
            return generate(_request(path, limit, strategy, **asked), Progress())
        try:
            return generate(_request(path, "1KB", strategy, **asked), Progress())
        except InfeasibleBudgetError as error:
            return generate(
                _request(path, f"{error.smallest_bytes}B", strategy, **asked), Progress()
            )


def _request(path: Path, limit: str, strategy: str, **asked: Any) -> Request:
    return Request(
        model_file=path,
        limit=parse_budget(limit),
        output=path.with_name("model_remat.py"),
        device="cpu",
        strategy=Strategy(strategy),
        **asked,
    )


def modelled_costs(
    graph: Graph,
    device: torch.device,
    examples: Mapping[str, torch.Tensor],
    progress: ProfileProgress,
) -> Costs:
    """Stand in for the profiler."""
    times = {o.name: roofline_us(graph, o, NOMINAL_CPU) for o in graph.operations}
    return Costs("cpu", {name: Cost(round(t, 3), 0, True) for name, t in times.items()})


def import_file(path: Path, name: str) -> ModuleType:
    """Import a file under a name that pickle finds again."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with defined_once():
        spec.loader.exec_module(module)
    return module
