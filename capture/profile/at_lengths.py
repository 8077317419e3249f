"""What operations take at smaller lengths than the example's, where a kernel may be another.

For one sample torch's 3-D convolutions on the CPU unfold their input into columns, many times what
oneDNN takes for two. An operation needs more room there only if its inputs, outputs and workspace
together are more than at the example's lengths: all else that is resident is no larger.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from remat_gen.capture.lower.shorter_steps import lengths_to_look_at, sized
from remat_gen.capture.lower.signature import signature
from remat_gen.capture.profile.synthesize import Floats, Synthesizer
from remat_gen.ir.costs import Smaller
from remat_gen.ir.graph import Graph, Operation


@dataclass(frozen=True, slots=True)
class AtLengths:
    """A graph at some lengths: its operations, and their signatures, by name."""

    numbers: tuple[int, ...]
    synthesizer: Synthesizer
    operations: Mapping[str, Operation]
    signatures: Mapping[str, str]

    def room_bytes(self, name: str, inside: Mapping[str, int]) -> int:
        """Return what is allocated while an operation runs: its inputs, outputs, workspace."""
        graph = self.synthesizer.graph
        return input_bytes(graph, self.operations[name]) + inside[self.signatures[name]]

    def workspace_bytes(self, name: str, inside: Mapping[str, int]) -> int:
        """Return the peak inside an operation beyond its outputs."""
        made = output_bytes(self.synthesizer.graph, self.operations[name])
        return max(0, inside[self.signatures[name]] - made)


def at_lengths(
    graph: Graph, numbers: tuple[int, ...], examples: Mapping[str, torch.Tensor], floats: Floats
) -> AtLengths:
    """Return what is needed to run the operations of a graph, at lengths that are its own."""
    operations = {operation.name: operation for operation in graph.operations}
    signatures = {name: signature(graph, operation) for name, operation in operations.items()}
    return AtLengths(numbers, Synthesizer(graph, examples, floats), operations, signatures)


def at_all_lengths(
    graph: Graph, examples: Mapping[str, torch.Tensor]
) -> tuple[AtLengths, tuple[AtLengths, ...]]:
    """Return a graph at the example's lengths, and at smaller ones where all sizes have values.

    There the example's integers are not used: they may number rows that are not there.
    """
    floats: Floats = {}
    longest = tuple(length.maximum for length in graph.lengths)
    example = at_lengths(graph, longest, examples, floats)
    smaller = []
    for numbers in lengths_to_look_at(graph):
        try:
            smaller.append(at_lengths(sized(graph, numbers), numbers, {}, floats))
        except (ArithmeticError, ValueError):
            continue  # the step fails there too
    return example, tuple(smaller)


def more_room(
    name: str, example: AtLengths, smaller: tuple[AtLengths, ...], inside: Mapping[str, int]
) -> tuple[Smaller, ...]:
    """Return the lengths at which an operation needs more room than at the example's.

    `inside` has the peaks inside operations by signature; where it has none, nothing is known.
    """
    if example.signatures[name] not in inside:
        return ()
    enough = example.room_bytes(name, inside)
    return tuple(
        Smaller(place.numbers, place.workspace_bytes(name, inside))
        for place in smaller
        if place.signatures[name] in inside and place.room_bytes(name, inside) > enough
    )


def input_bytes(graph: Graph, operation: Operation) -> int:
    """Return the bytes of the step's own storages that an operation reads."""
    storages = (graph.storages[name] for name in graph.reads(operation))
    return sum(storage.nbytes for storage in storages if not storage.kind.outside)


def output_bytes(graph: Graph, operation: Operation) -> int:
    """Return the bytes of the storages that an operation makes; those it aliases count nothing."""
    made = set(graph.writes(operation)) - set(graph.reads(operation))
    return sum(graph.storages[name].nbytes for name in made)
