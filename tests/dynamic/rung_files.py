"""Generate models with rungs, and step both models at any length that the plan admits."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from emitting_parts import CPU, blocks_run, equal_times

import remat_gen
from remat_gen.capture.load.load import Loaded, load
from remat_gen.plan.pipeline import Generated
from remat_gen.verification.outcome import Outcome, State, run_steps
from remat_gen.verification.peak import model_peak
from remat_gen.verification.smaller_batch import longest_step


@dataclass(frozen=True, slots=True)
class Rungs:
    """A model, its planned twin, the state both start from, and what was generated."""

    generated: Generated
    original: Loaded
    planned: Loaded
    state: State

    @property
    def path(self) -> Path:
        """Return the generated file."""
        assert self.generated.output is not None
        return self.generated.output

    def arguments(self, **lengths: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the example, cut to these lengths."""
        plan, loaded = self.generated.plan, self.original
        there = replace(plan.rungs[0], limits=lengths)
        step = longest_step(loaded.model, loaded.args, loaded.kwargs, plan.dynamic, there)
        return step.args, step.kwargs

    def steps(self, loaded: Loaded, **lengths: int) -> list[Outcome]:
        """Step a model twice, from the same state and seed whichever it is."""
        with torch.random.fork_rng(devices=[]):
            return run_steps(loaded.model, self.state, *self.arguments(**lengths), steps=2)

    def peak_bytes(self, **lengths: int) -> int:
        """Return the measured activation peak of a planned step."""
        return model_peak(self.planned.model, *self.arguments(**lengths), CPU).peak_bytes

    def ran(self, **lengths: int) -> list[str]:
        """Return the block classes that a step of these lengths runs."""
        args, kwargs = self.arguments(**lengths)
        outputs = self.planned.model(*args, **kwargs)
        loss = outputs[0] if isinstance(outputs, tuple) else outputs
        blocks, *_ = loss.grad_fn.place
        return [type(block).__name__ for block in blocks]

    def written(self, function: str) -> list[str]:
        """Return the block classes that a program runs by its text."""
        _, _, after = self.generated.text.partition(f"        def {function}(")
        body, _, _ = after.partition("            return ")
        return [name for name, *_ in blocks_run(f"if True:\n{body.partition(chr(10))[2]}")]


@functools.cache
def rungs_of(source: str, budget: str, dynamic: tuple[str, ...], rungs: str) -> Rungs:
    """Generate for the CPU, once per session; every operation takes the same time."""
    folder = Path(tempfile.mkdtemp(prefix="remat-gen-test-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path, output = folder / "net.py", folder / "net_remat.py"
    path.write_text(source, encoding="utf-8")
    with equal_times():
        generated = remat_gen.generate(
            path, budget=budget, output=output, device="cpu", dynamic=dynamic, rungs=rungs
        )
    original = load(path, None, None, "cpu")
    planned = load(output, original.builder, original.inputs_name, "cpu")
    return Rungs(generated, original, planned, State.of(original.model))
