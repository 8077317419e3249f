"""Make real tensors for one operation, so that it can be run alone.

Floats are normal random numbers (`float_pool`). Integers are the example's where the user
handed one in, or what an operation has made that was run so; else zeros, which every indexing
operation accepts. Tensors of one storage share one storage here too: what aliases in the step
aliases, and no byte is held twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

import torch

from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.fx.conjugates import is_conjugate
from remat_gen.capture.lower.shorter_steps import extent
from remat_gen.capture.profile.float_pool import FloatPool
from remat_gen.ir.graph import Graph, Operation, Tensor, refs_in

_MOST_KEPT = 1 << 20  # numbers of one tensor
_CONVERSIONS = frozenset("aten._to_copy.default aten.view.dtype".split())


class Fill(Enum):
    """How floats are drawn: some operations (bernoulli, log) accept probabilities only.

    With `ZEROS` no integers are those that operations have made.
    """

    NORMAL = "normal"
    PROBABILITY = "probability"
    ZEROS = "zeros"


Floats: TypeAlias = dict[tuple[str, str, Fill], FloatPool]  # by device, dtype and kind
_Key: TypeAlias = tuple[str, str]  # a storage, and the dtype that it is looked at with


@dataclass(slots=True)
class Synthesizer:
    """Makes the inputs of one operation after another; never touches the global generator.

    `examples` has the real tensors of the step's inputs by tensor name; they are copied, never
    handed out, so an operation that writes into its inputs cannot harm them. `floats` may be shared
    with others: what an operation only reads comes from there.
    """

    graph: Graph
    examples: Mapping[str, torch.Tensor]
    floats: Floats = field(default_factory=dict)
    _made: dict[str, torch.Tensor] = field(default_factory=dict)

    def keep(self, alike: Sequence[Operation], results: Iterable[object]) -> None:
        """Keep the integers that an operation has made, for those that read them, or alike ones.

        Where bags begin decides what the backward of an embedding takes. Not what floats become:
        those here are any numbers.
        """
        if alike[0].target in _CONVERSIONS:
            return
        outputs = zip(*(operation.outputs for operation in alike), strict=True)
        for names, result in zip(outputs, results, strict=False):
            if any(names) and isinstance(result, torch.Tensor) and _is_small_integer(result):
                kept = result.clone()  # that call may be made again, in place
                self._made |= dict.fromkeys(filter(None, names), kept)

    def inputs(self, operation: Operation, fill: Fill = Fill.NORMAL) -> dict[str, torch.Tensor]:
        """Return a tensor for each tensor that the operation reads, by name."""
        names = dict.fromkeys(refs_in((operation.args, operation.kwargs)))
        tensors = [self.graph.tensors[name] for name in names]
        alike = _by_storage(tensors)
        flats = {key: self._integers(ts, fill) for key, ts in alike.items() if _are_integers(ts)}
        flats |= self._floats({key: ts for key, ts in alike.items() if key not in flats}, fill)
        written = self.graph.writes(operation)
        flats |= {key: flat.clone() for key, flat in flats.items() if key[0] in written}
        made = {
            t.name: flats[t.storage, t.dtype].as_strided(t.shape, t.stride, t.offset)
            for t in tensors
        }
        return {n: t.conj() if is_conjugate(self.graph, n) else t for n, t in made.items()}

    def _integers(self, sharing: list[Tensor], fill: Fill) -> torch.Tensor:
        """Return a flat copy of those that there are, or zeros."""
        one, elements = sharing[0], max(map(extent, sharing))
        made = {} if fill is Fill.ZEROS else self._made
        for name, example in (*self.examples.items(), *made.items()):
            known = self.graph.tensors.get(name)
            if known is None or (known.storage, known.dtype) != (one.storage, one.dtype):
                continue
            whole = torch.empty(0, dtype=example.dtype, device=example.device)
            whole.set_(example.untyped_storage())
            if 0 < elements <= whole.numel():
                return whole[:elements].clone()
        return torch.zeros(elements, dtype=_dtype(one), device=one.device)

    def _floats(self, alike: Mapping[_Key, list[Tensor]], fill: Fill) -> dict[_Key, torch.Tensor]:
        """Return flat tensors for what shares a storage, those of one type from one pool."""
        lengths: dict[tuple[str, str], dict[_Key, int]] = {}
        for key, sharing in alike.items():
            kind = sharing[0].device, sharing[0].dtype
            lengths.setdefault(kind, {})[key] = max(map(extent, sharing))
        flats: dict[_Key, torch.Tensor] = {}
        for (device, dtype), asked in lengths.items():
            taken = self._pool(device, dtype, fill).take(asked.values())
            flats |= zip(asked, taken, strict=True)
        return flats

    def _pool(self, device: str, dtype: str, fill: Fill) -> FloatPool:
        key = device, dtype, fill
        if key not in self.floats:
            where, probabilities = torch.device(device), fill is Fill.PROBABILITY
            self.floats[key] = FloatPool.of(
                getattr(torch, dtype), where, probabilities=probabilities
            )
        return self.floats[key]


def _dtype(tensor: Tensor) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, tensor.dtype)
    return dtype


def _is_integer(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex)


def _are_integers(tensors: list[Tensor]) -> bool:
    return _is_integer(_dtype(tensors[0]))


def _is_small_integer(tensor: torch.Tensor) -> bool:
    return _is_integer(tensor.dtype) and tensor.numel() <= _MOST_KEPT


def fills_for(device: torch.device) -> tuple[Fill, ...]:
    """Return the kinds of input to try: one where a kernel that refuses its input ends all."""
    return (Fill.PROBABILITY,) if kind_of(device).dies_of_assertions else tuple(Fill)


def _by_storage(tensors: Iterable[Tensor]) -> dict[_Key, list[Tensor]]:
    """Return the tensors that share bytes, by storage and dtype."""
    found: dict[_Key, list[Tensor]] = {}
    for tensor in tensors:
        found.setdefault((tensor.storage, tensor.dtype), []).append(tensor)
    return found
