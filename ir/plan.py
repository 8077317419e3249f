"""The plan of a generated module: all that is needed to write the same bytes again.

It lies beside the module as JSON and is meant to be committed, read and compared. It holds no time
stamp, host or absolute path.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from remat_gen.ir import coding
from remat_gen.ir.coding import errors_name
from remat_gen.ir.costs import Cost, Costs, PartCost, Smaller
from remat_gen.ir.eager_peak import EagerPeak, PeakSource
from remat_gen.ir.errors import GraphError, UsageError
from remat_gen.ir.rung import Rung

SCHEMA = 1
_ROWS: frozenset[type] = frozenset({Cost, PartCost, Smaller})


@dataclass(frozen=True, slots=True)
class Versions:
    """What made the plan: z3 decides the schedule, torch the trace, ruff the layout of the text."""

    remat_gen: str
    torch: str
    z3: str
    ruff: str


@dataclass(frozen=True, slots=True)
class SourceFile:
    """The user's file, relative to the generated one, and the hash of its text."""

    file: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for; `budget` as it was written, `command` to ask again.

    `live` where a built model was given: its file alone does not build it. `batch` where it is not
    the example's. `in_flight` are the steps whose activations are held at once. `captured` where
    steps are replayed as a CUDA graph.
    """

    command: str
    model: str | None
    inputs: str | None
    device: str
    strategy: str
    budget: str
    budget_bytes: int
    live: bool = False
    batch: int | None = None
    in_flight: int = 1
    captured: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """A block of the chain: its name, the number of its operations, what its option retains (bytes
    by name) and which operations its backward runs again."""

    name: str
    operations: int
    retained: Mapping[str, int]
    rematerialised: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """One block in forward or backward: steps are `run OPERATION` or `free VALUE VALUE …`.

    `send VALUE …` and `fetch VALUE …` move values to the host and back.
    """

    block: int
    backward: bool
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Solver:
    """How the schedule was found: by which strategy (with auto, the winner). "committed": it is
    that of the plan which was there before, kept since it is about as good.

    `proved` only where z3 finished every proof that the strategy asked for. `status` is "optimal"
    where no schedule of any kind takes less than this one, "feasible" otherwise; none takes less
    than `lower_bound_us`. Both are missing in plans that were made before they were known.
    """

    strategy: str
    proved: bool
    notes: tuple[str, ...]
    status: str = ""
    lower_bound_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Predicted:
    """The replayed step; `peak_bytes_without_grads` starts with `.grad` set to None.

    `highest_bytes` is the peak at the smaller lengths `highest_at` ("a batch of 1") where kernels
    need so much more workspace that it is above `peak_bytes`. `sent_bytes` go to the host, and
    `waits_us` of the time wait for copies. `eager_measured_bytes` is set where the budget is a
    share of eager's peak, and that was measured to be another than `eager_peak_bytes`;
    `eager_followed_bytes` where nothing was measured, and eager's step on tensors without values
    takes more or less than that.
    """

    peak_bytes: int
    peak_bytes_without_grads: int
    time_us: float
    eager_peak_bytes: int
    eager_time_us: float
    reruns: int
    highest_bytes: int = 0
    highest_at: str = ""
    sent_values: int = 0
    sent_bytes: int = 0
    waits_us: float = 0.0
    eager_measured_bytes: int = 0
    eager_followed_bytes: int = 0

    @property
    def time_ratio(self) -> float:
        """Return the planned step's time as a multiple of eager's."""
        return self.time_us / self.eager_time_us if self.eager_time_us else 1.0

    @property
    def eager(self) -> EagerPeak:
        """Return eager's peak: as measured or followed, where that is not as replayed."""
        if self.eager_measured_bytes:
            return EagerPeak(self.eager_measured_bytes, PeakSource.MEASURED)
        if self.eager_followed_bytes:
            return EagerPeak(self.eager_followed_bytes, PeakSource.FOLLOWED)
        return EagerPeak(self.eager_peak_bytes, PeakSource.PREDICTED)


@dataclass(frozen=True, slots=True)
class Modelled:
    """The device that was planned for without being there: costs follow from its rates.

    `target` as it was asked for ("h200", "my_gpu.toml"), `device` is torch's word: "cuda", "cpu".
    Of a GPU the compute capability is there, if it is known: eager chooses kernels by it.
    """

    target: str
    device: str
    capability: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Compiled:
    """What `--compile` did: `parts` of the schedule's blocks are compiled, each on its own.

    `costs` has what was measured, by the hash of a function's text, of those that stayed apart too:
    which are compiled follows from it. Without any of them the step would take `apart_us`. The
    search saw it take `searched_us`, which `Solver.lower_bound_us` belongs to: the same, or with
    the times that operations add to the reader that they fuse into.
    """

    parts: int
    operations: int
    apart_us: float
    searched_us: float
    costs: Mapping[str, PartCost]


@dataclass(frozen=True, slots=True)
class HostCopies:
    """What copies to the host and back were planned with; what travels stands in the schedule.

    Each direction moves `bytes_per_s`, and takes `start_us` for every copy.
    """

    bytes_per_s: float
    start_us: float


@dataclass(frozen=True, slots=True)
class PlannedUnits:
    """The submodules that are planned where the rest of the model stays eager.

    `patterns` are those asked for, `held_bytes` what eager holds in each phase of the step (the
    calls of units in forward, then in backward), `planned_share` what share of the bytes that
    eager holds for backward lies in units. `static` where no dimension may be smaller. `fsdp` is
    how FSDP2 shards the model, as the option has it ("8:bfloat16"); "" where it does not.
    """

    patterns: tuple[str, ...]
    held_bytes: tuple[int, ...]
    planned_share: float
    static: bool = False
    fsdp: str = ""


@dataclass(frozen=True, slots=True)
class PlannedRung:
    """A schedule for some of the steps: those whose lengths are at most these `limits`.

    Where `free_bytes` must be free it may take them, otherwise the plan's budget. All else is as in
    the plan, at the largest lengths that the rung admits.
    """

    limits: Mapping[str, int]
    costs: Mapping[str, Cost]
    blocks: tuple[Block, ...]
    schedule: tuple[PlannedSegment, ...]
    solver: Solver
    predicted: Predicted
    free_bytes: int = 0

    @property
    def rung(self) -> Rung:
        """Return the condition on a step."""
        return Rung(self.limits, self.free_bytes)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a generated module follows from. `graph_sha256` is the traced graph's, `inputs` the
    shapes of the step.

    `device` is "cpu" or the name of the GPU, `modelled` is set where it was not measured.
    `dynamic` are the dimensions of inputs that may be smaller in a step: `ids:0`. The numbers of
    the inputs in `fixed` are the same in each step. `keep` and
    `recompute` are the patterns of values that the user pinned, sorted. `predicted` is the step
    with its compiled parts, if there are any. `offload` where values may go to the host. A step
    takes the first of `rungs` that admits it, and where none does the plan's own schedule, which is
    for all steps.
    """

    schema: int
    versions: Versions
    source: SourceFile
    asked: Asked
    device: str
    alignment_bytes: int
    graph_sha256: str
    inputs: Mapping[str, str]
    costs: Mapping[str, Cost]
    blocks: tuple[Block, ...]
    schedule: tuple[PlannedSegment, ...]
    solver: Solver
    predicted: Predicted
    dynamic: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    recompute: tuple[str, ...] = ()
    modelled: Modelled | None = None
    compiled: Compiled | None = None
    offload: HostCopies | None = None
    units: PlannedUnits | None = None
    rungs: tuple[PlannedRung, ...] = ()
    fixed: tuple[str, ...] = ()

    @property
    def described_device(self) -> str:
        """Return the device for people: "NVIDIA H200 SXM (modelled, not measured)"."""
        return f"{self.device} (modelled, not measured)" if self.modelled else self.device

    def steps(self) -> Iterator[str]:
        """Yield the steps of all segments in order, for `ir.steps` to read."""
        for segment in self.schedule:
            yield from segment.steps

    def of_rung(self, rung: PlannedRung) -> Plan:
        """Return what is planned for the steps of a rung, as the plan of these alone."""
        asked = replace(self.asked, budget_bytes=rung.free_bytes or self.asked.budget_bytes)
        return replace(
            self,
            asked=asked,
            costs=rung.costs,
            blocks=rung.blocks,
            schedule=rung.schedule,
            solver=rung.solver,
            predicted=rung.predicted,
            rungs=(),
        )

    def measured(self) -> Costs:
        """Return the costs, to be used again."""
        return Costs(self.device, self.costs, self.alignment_bytes, self.asked.captured)


def plan_text(plan: Plan) -> str:
    """Return the plan as JSON: sorted keys, ends with a newline."""
    return coding.dump(plan, _ROWS)


def parse_plan(text: str) -> Plan:
    """Read a plan, strictly.

    Raises:
        GraphError: it is no plan of this schema; the message names the key.
    """
    plain = coding.parse(text)
    schema = plain.get("schema") if isinstance(plain, dict) else None
    if schema != SCHEMA:
        raise GraphError(
            f"has schema {schema!r}, this remat-gen reads {SCHEMA}; generate the module again"
        )
    plan: Plan = coding.load(Plan, text, _ROWS)
    _refuse_impossible(plan)
    return plan


def _refuse_impossible(plan: Plan) -> None:
    if plan.alignment_bytes < 1:
        raise GraphError(f"alignment_bytes is {plan.alignment_bytes}: it is 1 at least")
    every = (plan.costs, *(rung.costs for rung in plan.rungs))
    for name, cost in (item for costs in every for item in costs.items()):
        if not (0 <= cost.time_us < math.inf and cost.workspace_bytes >= 0):
            raise GraphError(f"costs.{name}: no operation takes {cost.time_us} us")


def read_plan(path: Path) -> Plan:
    """Read a plan file.

    Raises:
        UsageError: there is no such file, or it is no plan.
    """
    with errors_name(path, missing="no such plan; generate the module again"):
        return parse_plan(path.read_text(encoding="utf-8"))


def plan_there(path: Path) -> Plan | None:
    """Read a plan that would only save work: None where there is none that can be read."""
    try:
        return read_plan(path)
    except UsageError:
        return None
