"""What people use today, as schedules on the same graph and costs: so that they compare.

`torch.utils.checkpoint` around every layer, or around every second one, runs a layer's forward
again before its backward. torch.compile's `activation_memory_budget` is asked of torch's own
partitioner (`peers_torch.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from remat_gen.solver.blocks.simple_programs import per_layer
from remat_gen.solver.contest.subject import Subject
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.replay import IllegalScheduleError, Replay


@dataclass(frozen=True, slots=True)
class Peer:
    """A schedule that somebody would use, replayed. `ratio` is torch.compile's budget."""

    name: str
    replay: Replay
    ratio: float | None = None


def layered_peers(subject: Subject) -> Iterator[Peer]:
    """Yield eager, and checkpoints around every layer and every second one where there are any."""
    yield Peer("eager", subject.eager())
    layers = list(dict.fromkeys(o.layer for o in subject.whole.operations if o.layer))
    if len(layers) > 1:
        every = _checkpointed(subject, set(layers))
        second = _checkpointed(subject, set(layers[::2]))
        yield Peer("checkpoint, every layer", every)
        yield Peer("checkpoint, every 2nd layer", second)


def _checkpointed(subject: Subject, layers: set[str]) -> Replay:
    """Return the replay with checkpoints around some layers."""
    assert subject.chain is not None, "a training step has a chain"
    operations = tuple(
        operation if operation.layer in layers else replace(operation, layer="")
        for operation in subject.whole.operations
    )
    program = per_layer(replace(subject.whole, operations=operations), subject.chain)
    return subject.judge(program)[1]


def in_one_backward(subject: Subject, backward: list[int]) -> Replay | None:
    """Return the replay of a step whose whole backward is one function, as torch.compile's is.

    `backward` are its operations in order, with re-runs. All gradients of parameters then live to
    its end. None where it runs again what must not run twice.
    """
    forward = range(subject.problem.forward_count)
    count = len(subject.problem.operations)
    missing = sorted(set(range(len(forward), count)).difference(backward))
    try:
        return subject.judge(Program((tuple(forward), (*missing, *backward))))[1]
    except IllegalScheduleError:
        return None
