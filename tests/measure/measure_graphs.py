"""Graphs of a few operations, built by hand for the tests of profiling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from remat_gen.ir.graph import (
    Argument,
    Graph,
    Kind,
    Operation,
    Phase,
    Ref,
    Source,
    Storage,
    Tensor,
)

SIZES = {"float32": 4, "int64": 8, "bool": 1, "complex64": 8, "bfloat16": 2, "float64": 8}


@dataclass
class Builder:
    """Collects tensors and operations; `tensor` and `operation` return what they added."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    storages: dict[str, Storage] = field(default_factory=dict)
    operations: list[Operation] = field(default_factory=list)

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str = "float32",
        stride: Sequence[int] | None = None,
        offset: int = 0,
        storage: str | None = None,
    ) -> Ref:
        strides = tuple(stride) if stride is not None else contiguous(shape)
        tensor = Tensor(
            name=name,
            storage=storage or name,
            shape=tuple(shape),
            stride=strides,
            offset=offset,
            dtype=dtype,
            device="cpu",
        )
        self.tensors[name] = tensor
        nbytes = math.prod(shape) * SIZES[dtype]
        self.storages.setdefault(tensor.storage, Storage(tensor.storage, nbytes, Kind.ACTIVATION))
        return Ref(name)

    def operation(
        self,
        target: str,
        args: Sequence[Argument],
        outputs: Sequence[str | None],
        name: str | None = None,
        **kwargs: Argument,
    ) -> Operation:
        for output in outputs:
            if output and output not in self.tensors:
                self.tensor(output, ())
        operation = Operation(
            name=name or f"{target}#{len(self.operations)}",
            target=target,
            args=tuple(args),
            kwargs=tuple(kwargs.items()),
            outputs=tuple(outputs),
            single=len(outputs) == 1,
            phase=Phase.FORWARD,
            traits=frozenset(),
            source=Source("", 0, ""),
            module="",
            hint="",
        )
        self.operations.append(operation)
        return operation

    def graph(self) -> Graph:
        return Graph(
            inputs=(),
            operations=tuple(self.operations),
            views=(),
            tensors=self.tensors,
            storages=self.storages,
            outputs=(),
            gradients=(),
            mutations=(),
        )


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
