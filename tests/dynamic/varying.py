"""Plan a model for every batch up to the example's, and step both models with a smaller one."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from emitting_parts import CPU, measured_workspace, target_of
from torch.utils import _pytree as pytree

from remat_gen.capture.load.load import Loaded, load
from remat_gen.capture.trace.trace import Traced, trace
from remat_gen.codegen.module.emit_module import emit_body
from remat_gen.ir.size import Length
from remat_gen.problem.step_problem import problem_of
from remat_gen.solver.law.replay import replay
from remat_gen.solver.solve import Solver
from remat_gen.verification.compare import Match, compare
from remat_gen.verification.outcome import Outcome, State, run_steps
from remat_gen.verification.peak import model_peak


@dataclass(frozen=True, slots=True)
class Varying:
    """A model and its planned twin."""

    loaded: Loaded
    planned: Loaded
    traced: Traced
    text: str
    peak_bytes: int
    reruns: int
    state: State

    @property
    def length(self) -> Length:
        """Return the one length that varies."""
        (length,) = self.traced.graph.lengths
        return length

    def arguments(self, number: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a step of another batch: rows of the example, repeated."""
        dims = dict(self.length.dims)
        leaves = [
            _resized(leaf.value, dims[leaf.path], number) if leaf.path in dims else leaf.value
            for leaf in self.traced.call.leaves
        ]
        spec = pytree.tree_structure((self.loaded.args, self.loaded.kwargs))
        args, kwargs = pytree.tree_unflatten(leaves, spec)
        return args, kwargs

    def eager(self, number: int) -> list[Outcome]:
        """Step the original twice."""
        return self._steps(self.loaded, number)

    def steps(self, number: int) -> list[Outcome]:
        """Step the planned model twice, from the same state and seed."""
        return self._steps(self.planned, number)

    def _steps(self, loaded: Loaded, number: int) -> list[Outcome]:
        args, kwargs = self.arguments(number)
        with torch.random.fork_rng(devices=[]):
            return run_steps(loaded.model, self.state, args, kwargs, steps=2)

    def measured_bytes(self, number: int) -> int:
        """Return the measured activation peak of a planned step."""
        args, kwargs = self.arguments(number)
        return model_peak(self.planned.model, args, kwargs, CPU).peak_bytes


def _resized(tensor: torch.Tensor, dim: int, number: int) -> torch.Tensor:
    if dim == 0 and number <= len(tensor):
        taken = tensor.detach()[:number]  # as it lies in memory
    else:
        taken = tensor.detach().index_select(dim, torch.arange(number) % tensor.shape[dim])
    return taken.requires_grad_(tensor.requires_grad)


@functools.cache
def varying(source: str, dynamic: tuple[str, ...] | None = None) -> Varying:
    """Plan a model near its smallest budget; every case once per session."""
    folder = Path(tempfile.mkdtemp(prefix="remat-gen-test-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path, output = folder / "net.py", folder / "net_remat.py"
    path.write_text(source, encoding="utf-8")
    loaded = load(path, None, None, "cpu")
    with loaded.importable():
        traced = trace(loaded.model, loaded.args, loaded.kwargs, path, dynamic)
        problem = problem_of(traced.graph, measured_workspace(traced))
        solver = Solver(problem, "rotor")
        schedule = solver.solve(solver.smallest_budget().nbytes).schedule
        text = emit_body(target_of(loaded, output), traced, problem, schedule)
    output.write_text(text, encoding="utf-8")
    replayed = replay(problem, schedule)
    planned = load(output, loaded.builder, loaded.inputs_name, "cpu")
    return Varying(
        loaded=loaded,
        planned=planned,
        traced=traced,
        text=text,
        peak_bytes=replayed.peak_bytes,
        reruns=len(replayed.reruns),
        state=State.of(loaded.model),
    )


def assert_as_eager(planned: Varying, number: int) -> None:
    """Assert that two steps of a batch leave behind what eager's do, to the bit."""
    eager, steps = planned.eager(number), planned.steps(number)
    assert [step.keys() for step in eager] == [step.keys() for step in steps]
    for wanted, got in zip(eager, steps, strict=True):
        for key in wanted:
            found = compare(*key, wanted[key], got[key])
            assert found.match is Match.BITWISE, (number, found)
