"""Make real tensors for one operation, so that it can be run alone.

Floats are normal random numbers from an own generator. Integers are the example's where the user
handed one in, or what an operation has made that was run so; else zeros, which every indexing
operation accepts. Tensors of one storage share one storage here too: what aliases in the step
aliases, and no byte is held twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

import torch

from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.fx.conjugates import is_conjugate
from remat_gen.capture.lower.shorter_steps import extent
from remat_gen.ir.graph import Graph, Operation, Tensor, refs_in

_PATTERN_ELEMENTS = 1 << 16
_MOST_KEPT = 1 << 20  # numbers of one tensor
_CONVERSIONS = frozenset("aten._to_copy.default aten.view.dtype".split())


class Fill(Enum):
    """How floats are drawn: some operations (bernoulli, log) accept probabilities only.

    With `ZEROS` no integers are those that operations have made.
    """

    NORMAL = "normal"
    PROBABILITY = "probability"
    ZEROS = "zeros"


@dataclass(slots=True)
class Synthesizer:
    """Makes the inputs of one operation after another; never touches the global generator.

    `examples` has the real tensors of the step's inputs by tensor name; they are copied, never
    handed out, so an operation that writes into its inputs cannot harm them.
    """

    graph: Graph
    examples: Mapping[str, torch.Tensor]
    _made: dict[str, torch.Tensor] = field(default_factory=dict)
    _patterns: dict[tuple[str, torch.dtype, Fill], torch.Tensor] = field(default_factory=dict)

    def keep(self, operation: Operation, results: Iterable[object]) -> None:
        """Keep the integers that an operation has made, for those that read them.

        Where bags begin decides what the backward of an embedding takes. Not what floats become:
        those here are any numbers.
        """
        if operation.target in _CONVERSIONS:
            return
        for name, result in zip(operation.outputs, results, strict=False):
            if name and isinstance(result, torch.Tensor) and _is_small_integer(result):
                self._made[name] = result

    def inputs(self, operation: Operation, fill: Fill = Fill.NORMAL) -> dict[str, torch.Tensor]:
        """Return a tensor for each tensor that the operation reads, by name."""
        arguments = (operation.args, tuple(value for _, value in operation.kwargs))
        tensors = [self.graph.tensors[name] for name in dict.fromkeys(refs_in(arguments))]
        flats: dict[tuple[str, str], torch.Tensor] = {}
        for key, elements in _extents(tensors).items():
            sharing = [t for t in tensors if (t.storage, t.dtype) == key]
            flats[key] = self._example(sharing, elements, fill)
            if flats[key].numel() < elements or elements == 0:
                flats[key] = self._flat(sharing[0], elements, fill)
        made = {
            t.name: flats[t.storage, t.dtype].as_strided(t.shape, t.stride, t.offset)
            for t in tensors
        }
        return {n: t.conj() if is_conjugate(self.graph, n) else t for n, t in made.items()}

    def _example(self, sharing: list[Tensor], elements: int, fill: Fill) -> torch.Tensor:
        """Return a flat copy of an integer tensor that there is, or an empty tensor."""
        storage = sharing[0].storage
        made = {} if fill is Fill.ZEROS else self._made
        for name, example in (*self.examples.items(), *made.items()):
            known = self.graph.tensors.get(name)
            if known is None or known.storage != storage or known.dtype != sharing[0].dtype:
                continue
            if not _is_integer(example.dtype):
                continue
            whole = torch.empty(0, dtype=example.dtype, device=example.device)
            whole.set_(example.untyped_storage())
            return whole[:elements].clone()
        return torch.empty(0)

    def _flat(self, tensor: Tensor, elements: int, fill: Fill) -> torch.Tensor:
        dtype: torch.dtype = getattr(torch, tensor.dtype)
        if _is_integer(dtype):
            return torch.zeros(elements, dtype=dtype, device=tensor.device)
        flat = torch.empty(elements, dtype=dtype, device=tensor.device)
        pattern = self._pattern(tensor.device, dtype, fill)
        # Drawing gigabytes of random numbers takes longer than the operations: repeat some.
        whole = elements // _PATTERN_ELEMENTS * _PATTERN_ELEMENTS
        flat[:whole].view(-1, _PATTERN_ELEMENTS).copy_(pattern)
        flat[whole:].copy_(pattern[: elements - whole])
        return flat

    def _pattern(self, device: str, dtype: torch.dtype, fill: Fill) -> torch.Tensor:
        """Return random numbers, drawn on the CPU: equal on every device."""
        if (device, dtype, fill) not in self._patterns:
            generator = torch.Generator().manual_seed(0)
            drawn = torch.complex64 if dtype.is_complex else torch.float32
            numbers = torch.randn(_PATTERN_ELEMENTS, generator=generator, dtype=drawn)
            if fill is Fill.PROBABILITY:
                numbers = torch.rand(_PATTERN_ELEMENTS, generator=generator)
            self._patterns[device, dtype, fill] = numbers.to(dtype).to(device)
        return self._patterns[device, dtype, fill]


def _is_integer(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex)


def _is_small_integer(tensor: torch.Tensor) -> bool:
    return _is_integer(tensor.dtype) and tensor.numel() <= _MOST_KEPT


def fills_for(device: torch.device) -> tuple[Fill, ...]:
    """Return the kinds of input to try: one where a kernel that refuses its input ends all."""
    return (Fill.PROBABILITY,) if kind_of(device).dies_of_assertions else tuple(Fill)


def _extents(tensors: Iterable[Tensor]) -> dict[tuple[str, str], int]:
    """Return for each storage and dtype how many elements its tensors reach into it."""
    extents: dict[tuple[str, str], int] = {}
    for tensor in tensors:
        key = (tensor.storage, tensor.dtype)
        extents[key] = max(extents.get(key, 0), extent(tensor))
    return extents
