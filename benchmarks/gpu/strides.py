"""Run every operation of a traced step alone: are results where, and laid out, as the graph says?

    python benchmarks/gpu/strides.py FILE …

Prints an object a file: how many operations, and those whose results are otherwise. Each of these
is a view that would fail in a step, or one that reads other numbers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from remat_gen.capture.load.load import load
from remat_gen.capture.profile.calls import bind, resolve
from remat_gen.capture.profile.synthesize import Fill, Synthesizer
from remat_gen.capture.trace.trace import Traced, trace_loaded
from remat_gen.ir.graph import Operation


def results(found: Traced) -> Iterator[tuple[Operation, str, torch.Tensor]]:
    """Yield each operation of a step with its results, and their names."""
    synthesizer = Synthesizer(found.graph, found.examples)
    for operation in found.graph.operations:
        args, kwargs = bind(operation, synthesizer.inputs(operation, Fill.PROBABILITY))
        with torch.no_grad():
            made = resolve(operation.target)(*args, **kwargs)
        for name, result in zip(
            operation.outputs, [made] if operation.single else made, strict=True
        ):
            if name and isinstance(result, torch.Tensor):
                yield operation, name, result


def layout(shape: tuple[int, ...], stride: tuple[int, ...]) -> list[int | None]:
    """Return strides, but for dimensions of one element, whose strides mean nothing."""
    return [by if size > 1 else None for size, by in zip(shape, stride, strict=True)]


def unlike(found: Traced) -> Iterator[dict[str, str]]:
    """Yield results that are not what the graph says of them."""
    for operation, name, result in results(found):
        said = found.graph.tensors[name]
        shape, stride = tuple(map(int, said.shape)), tuple(map(int, said.stride))
        want = (said.device, said.dtype, list(shape), layout(shape, stride))
        real = (str(result.device), str(result.dtype)[6:], list(result.shape))
        have = (*real, layout(tuple(result.shape), tuple(result.stride())))
        if want != have:
            yield {"operation": operation.target, "said": str(want), "found": str(have)}


def main() -> int:
    """Compare each file's operations; returns 1 if a file could not be traced, or some differ."""
    wrong = 0
    for path in sys.argv[1:]:
        told: dict[str, object] = {"strides": Path(path).stem}
        try:
            found = trace_loaded(load(Path(path), device="cuda"))
            told |= {"operations": len(found.graph.operations), "unlike": list(unlike(found))}
            wrong += bool(told["unlike"])
        except Exception as error:  # the next file may be traced
            told["error"] = f"{type(error).__name__}: {error}"[:500]
            wrong += 1
        print(json.dumps(told), flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
