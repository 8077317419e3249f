"""Is a committed module still what its source and its plan give? No device, no measurement.

The model is traced with tensors that have no values where its builder allows it, so that a model of
any size is checked on any machine.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from remat_gen.ask.pin_patterns import Pins, pin
from remat_gen.ask.request import relative
from remat_gen.capture.load.load import Loaded, read_source
from remat_gen.capture.trace.trace import Traced
from remat_gen.ir.errors import GraphError, NoSuchLengthError, UsageError
from remat_gen.ir.fingerprint import graph_sha256
from remat_gen.ir.header import is_unedited, text_sha256
from remat_gen.ir.steps import runs_in
from remat_gen.plan.emission import module_text
from remat_gen.plan.output import plan_path
from remat_gen.plan.plan_names import schedule_of
from remat_gen.problem.host_copies_planned import planned_problem
from remat_gen.review.generated_module import OTHER_PLAN, Existing
from remat_gen.review.retrace import retrace
from remat_gen.solver.law.replay import IllegalScheduleError, replay

_EDITED = "was edited by hand"


@dataclass(frozen=True, slots=True)
class Checked:
    """A module's verdict: why it is stale (nothing where it is not), and what would change.

    `by_hashes`: there is no GPU here to trace on, so that only hashes were compared.
    """

    path: Path
    causes: tuple[str, ...]
    command: str
    diff: str = ""
    by_hashes: bool = False

    @property
    def mending(self) -> str:
        """Return the command that writes the module again, over what was edited by hand, too.

        The plan has it as seen from the module's folder.
        """
        edited = any(cause.endswith(_EDITED) for cause in self.causes)
        command = f"{self.command} --force" if edited else self.command
        folder = relative(self.path.parent, Path.cwd())
        elsewhere = folder != "." and command.startswith("remat-gen ")
        return f"(cd {shlex.quote(folder)} && {command})" if elsewhere else command

    @property
    def stale(self) -> bool:
        """Tell whether the module must be generated again."""
        return bool(self.causes)

    def __str__(self) -> str:
        if not self.stale:
            how = ", by its hashes: it is traced where a GPU is" if self.by_hashes else ""
            return f"{self.path}: up to date{how}"
        return f"{self.path}: stale: {' and '.join(self.causes)}; run: {self.mending}"


def check_file(path: Path, given: Loaded | None = None) -> Checked:
    """Trace the original again (or the one given), write the module again, and compare.

    What was measured on a GPU can be traced on one only. Elsewhere the hashes in the module's
    header tell whether the source, the plan or the module changed; they cannot tell whether a file
    that the source imports did, or a library.

    Raises:
        UsageError: the file is not ours, has no plan, or is of another torch.
        RematError: the original cannot be loaded or traced any more.
    """
    existing = Existing.find(path, given)
    measured = existing.plan.modelled is None and not existing.plan.asked.live
    if existing.lacks_device and measured and given is None:
        return _by_hashes(existing)
    existing.refuse_other_torch()
    command = existing.plan.asked.command
    try:
        return _written_again(existing)
    except NoSuchLengthError:
        return Checked(path, (*_by_hashes(existing).causes, "forward has other inputs"), command)
    except Exception:
        edits = tuple(_edits(existing))
        if not any(cause.endswith(OTHER_PLAN) for cause in edits):
            raise
        return Checked(path, edits, command)  # what an edited plan says may break anything


def _written_again(existing: Existing) -> Checked:
    loaded, traced = retrace(existing)
    causes = [*_edits(existing), *_source_change(existing, loaded.source_sha256)]
    same_graph = graph_sha256(traced.graph) == existing.plan.graph_sha256
    planned = tuple(dict.fromkeys(runs_in(existing.plan.steps())))
    names = [operation.name for operation in traced.graph.operations]
    if not same_graph and set(planned) != set(names):
        diff = _operations_diff(planned, names)
        causes.append("the model is traced to other operations than the plan's")
    else:
        if not same_graph:
            causes.append("the model's operations do other work than the plan's")
        try:
            diff = _text_diff(existing, loaded, traced)
        except (GraphError, IllegalScheduleError, UsageError) as error:
            diff = ""
            causes.append(f"the plan cannot be carried out: {error}")
        if diff and not causes:
            causes.append(_other_tool(existing))
    return Checked(existing.path, tuple(causes), existing.plan.asked.command, diff)


def _by_hashes(existing: Existing) -> Checked:
    source = text_sha256(read_source(existing.original))
    causes = (*_edits(existing), *_source_change(existing, source))
    return Checked(existing.path, causes, existing.plan.asked.command, by_hashes=True)


def _edits(existing: Existing) -> Iterator[str]:
    if existing.has_other_plan:
        yield f"{plan_path(existing.path).name} {OTHER_PLAN}"
    if not is_unedited(read_source(existing.path)):
        yield f"{existing.path.name} {_EDITED}"


def _source_change(existing: Existing, sha256: str) -> Iterator[str]:
    if sha256 != existing.plan.source.sha256:
        yield f"{existing.plan.source.file} changed"


def _other_tool(existing: Existing) -> str:
    was, now = existing.plan.versions.ruff, version("ruff")
    if was != now:
        return f"ruff {now} formats it differently than ruff {was}"
    return "this remat-gen writes it differently"


def _text_diff(existing: Existing, loaded: Loaded, traced: Traced) -> str:
    source = replace(existing.plan.source, sha256=loaded.source_sha256)
    plan = replace(existing.plan, source=source)
    pins = Pins(plan.keep, plan.recompute)
    problem = pin(planned_problem(traced.graph, plan), traced.graph, pins).problem
    schedule = schedule_of(problem, plan.schedule)
    replay(problem, schedule)
    with loaded.importable():
        text = module_text(loaded, traced, problem, schedule, plan, existing.path)
    return _unified(read_source(existing.path), text, str(existing.path), "generated again")


def _operations_diff(planned: Iterable[str], names: Sequence[str]) -> str:
    """Compare names of operations in the order of the trace, which a schedule may leave."""
    place = {name: i for i, name in enumerate(names)}
    last, places = -1, {}
    for name in planned:
        places[name] = last = place.get(name, last)  # what is gone stays behind what it ran behind
    in_order = sorted(places, key=places.__getitem__)
    old, new = ("".join(f"{name}\n" for name in listed) for listed in (in_order, names))
    return _unified(old, new, "operations of the plan", "operations of the model")


def _unified(old: str, new: str, old_name: str, new_name: str) -> str:
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    return "".join(difflib.unified_diff(before, after, old_name, new_name))
