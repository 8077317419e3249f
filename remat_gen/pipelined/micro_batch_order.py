"""In which order a device of a pipeline runs forward and backward of its micro-batches.

GPipe: Huang et al., 2019. 1F1B: Narayanan et al., PipeDream-Flush, 2021. Interleaved1F1B: Narayanan
et al., Megatron-LM, 2021. The orders are those of torch.distributed.pipelining.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from remat_gen.ask.choice import chosen
from remat_gen.ask.request import make_count
from remat_gen.ir.errors import UsageError


class PipelineSchedule(StrEnum):
    """An order that planned stages can run in; names as PyTorch has them."""

    GPIPE = "GPipe"
    ONE_F_ONE_B = "1F1B"
    INTERLEAVED = "Interleaved1F1B"


class Action(NamedTuple):
    """Forward or backward of a stage on its next micro-batch."""

    stage: int
    backward: bool


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline: stage number s stands on device s % `devices`."""

    schedule: PipelineSchedule
    stages: int
    devices: int
    micro_batches: int

    def __post_init__(self) -> None:
        """Refuse what PyTorch's schedules do not run.

        Raises:
            UsageError: there is no such pipeline.
        """
        make_count("--stages", self.stages)
        make_count("--devices", self.devices)
        make_count("--micro-batches", self.micro_batches)
        if self.stages % self.devices:
            raise UsageError(
                f"{self.stages} stages on {self.devices} devices: each device must have as many"
            )
        several = self.schedule is PipelineSchedule.INTERLEAVED
        if not several and self.stages != self.devices:
            raise UsageError(
                f"{self.schedule} has a stage for each device; Interleaved1F1B several"
            )
        if self.schedule is PipelineSchedule.ONE_F_ONE_B and self.micro_batches < self.stages:
            raise UsageError(f"1F1B needs at least as many micro-batches as stages: {self.stages}")
        if several and self.micro_batches % self._rounds:
            raise UsageError(
                f"Interleaved1F1B: {self.micro_batches} micro-batches do not make {self._rounds} "
                "equal rounds"
            )

    @property
    def _rounds(self) -> int:
        return max(1, self.micro_batches // self.devices)

    def stages_of(self, device: int) -> range:
        """Return the stages that a device has."""
        return range(device, self.stages, self.devices)

    def order(self, device: int) -> list[Action]:
        """Return what a device runs, in its order."""
        own = self.stages_of(device)
        total, warmup = len(own) * self.micro_batches, self._warmup(device)
        a_round = self.micro_batches // self._rounds
        forward = [Action(own[k // a_round % len(own)], False) for k in range(total)]
        backward = [Action(own[-1 - k // a_round % len(own)], True) for k in range(total)]
        steady = [a for pair in zip(forward[warmup:], backward, strict=False) for a in pair]
        return [*forward[:warmup], *steady, *backward[total - warmup :]]

    def _warmup(self, device: int) -> int:
        """Return how many forwards run before one backward follows each."""
        behind = self.devices - 1 - device
        if self.schedule is PipelineSchedule.GPIPE:
            return self.micro_batches
        if self.schedule is PipelineSchedule.ONE_F_ONE_B:
            return min(behind, self.micro_batches)
        each = self.stages // self.devices
        first = (each - 1) * (self.micro_batches // self._rounds)
        return min(first + 2 * behind, each * self.micro_batches)

    def in_flight(self, device: int) -> int:
        """Return how many micro-batches hold activations on a device at most."""
        return max(sum(held.values()) for _, held in held_at(self.order(device)))


def make_pipeline(
    schedule: str, stages: int, micro_batches: int, devices: int | None = None
) -> Pipeline:
    """Return the pipeline that options say; without `devices` each stage has one.

    Raises:
        UsageError: there is none, or planned stages cannot run in its order.
    """
    if "zero" in schedule.lower() or schedule.lower().startswith("dualpipe"):
        raise UsageError(
            f"--schedule {schedule}: asks for the gradients of inputs and of weights in two calls; "
            "a planned backward makes both in one"
        )
    kind = chosen(PipelineSchedule, "--schedule", schedule)
    return Pipeline(kind, stages, stages if devices is None else devices, micro_batches)


def held_at(order: Sequence[Action]) -> Iterator[tuple[Action, Counter[int]]]:
    """Yield each action with the micro-batches that each stage holds in it, its own included."""
    held: Counter[int] = Counter()
    for action in order:
        held[action.stage] += not action.backward
        yield action, held
        held[action.stage] -= action.backward
