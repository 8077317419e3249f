"""The graph of a step at smaller lengths than the example's: the same names, other numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product, zip_longest

import torch

from remat_gen.ir.graph import Argument, Graph, Operation, Storage, Tensor
from remat_gen.ir.size import Layout, Length, Size, evaluate, lengths_in, may_fall

_MOST = 64  # combinations of lengths
_TRIED = 1024  # numbers of a length


def smaller_lengths(lengths: Iterable[Length]) -> tuple[tuple[int, ...], ...]:
    """Return lengths below the example's, each halved down to its smallest, and combinations.

    One length's are together no longer than the example's. Where there would be very many
    combinations, one length is small while the others are the example's, or all are.
    """
    halved = [_halvings(length) for length in lengths]
    if math.prod(map(len, halved)) <= _MOST:
        found = list(product(*halved))
    else:
        found = [*_one_by_one(halved), *_together(halved)]
    largest = tuple(numbers[0] for numbers in halved)
    return tuple(dict.fromkeys(numbers for numbers in found if numbers != largest))


def lengths_to_look_at(graph: Graph) -> tuple[tuple[int, ...], ...]:
    """Return its smaller lengths, and those at which what may grow there takes most.

    One length varies then, the others are the example's.
    """
    largest = {length.name: length.maximum for length in graph.lengths}
    shapes = {layout.shape for layout in graph.layouts.values() if any(map(may_fall, layout.shape))}
    found = dict.fromkeys(smaller_lengths(graph.lengths))
    for shape in sorted(shapes, key=repr):
        for length in graph.lengths:
            if length.name in lengths_in(shape):
                found[*(largest | {length.name: _most_at(shape, length, largest)}).values()] = None
    found.pop(tuple(largest.values()), None)
    return tuple(found)


def _most_at(shape: tuple[Size | int, ...], length: Length, largest: Mapping[str, int]) -> int:
    """Return the number for a length with which a shape has most elements, of many a sample."""

    def elements(number: int) -> float:
        try:
            return math.prod(evaluate(s, {**largest, length.name: number}) for s in shape)
        except ArithmeticError:  # the step fails there
            return 0

    span = length.maximum - length.minimum
    return max(range(length.maximum, length.minimum - 1, -(span // _TRIED + 1)), key=elements)


def _halvings(length: Length) -> list[int]:
    found = [length.maximum]
    while found[-1] > length.minimum:
        found.append(max(length.minimum, found[-1] // 2))
    return found


def _one_by_one(halved: list[list[int]]) -> Iterator[tuple[int, ...]]:
    largest = [numbers[0] for numbers in halved]
    for i, numbers in enumerate(halved):
        for number in numbers:
            yield (*largest[:i], number, *largest[i + 1 :])


def _together(halved: list[list[int]]) -> Iterator[tuple[int, ...]]:
    for row in zip_longest(*halved):
        pairs = zip(row, halved, strict=True)
        yield tuple(numbers[-1] if number is None else number for number, numbers in pairs)


def sized(graph: Graph, numbers: tuple[int, ...]) -> Graph:
    """Return a graph at other lengths, in the order of its `lengths`.

    Raises:
        ArithmeticError, ValueError: a size has no value there.
    """
    lengths = dict(zip((length.name for length in graph.lengths), numbers, strict=True))
    tensors = dict(graph.tensors)
    for name, layout in graph.layouts.items():
        tensors[name] = _laid_out(tensors[name], layout, lengths)
    return replace(
        graph,
        operations=tuple(_operation(operation, lengths) for operation in graph.operations),
        tensors=tensors,
        storages=_storages(graph, tensors),
    )


def narrowed(graph: Graph, numbers: tuple[int, ...]) -> Graph:
    """Return a graph as if the example's lengths were these: what varies is at most so long.

    Raises:
        ArithmeticError, ValueError: a size has no value there.
    """
    pairs = zip(graph.lengths, numbers, strict=True)
    lengths = tuple(replace(length, maximum=number) for length, number in pairs)
    return replace(sized(graph, numbers), lengths=lengths)


def _laid_out(tensor: Tensor, layout: Layout, lengths: Mapping[str, int]) -> Tensor:
    def whole(size: Size | int) -> int:
        return int(evaluate(size, lengths))

    shape, stride = tuple(map(whole, layout.shape)), tuple(map(whole, layout.stride))
    return replace(tensor, shape=shape, stride=stride, offset=whole(layout.offset))


def _operation(operation: Operation, lengths: Mapping[str, int]) -> Operation:
    kwargs = tuple((name, _argument(value, lengths)) for name, value in operation.kwargs)
    args = tuple(_argument(argument, lengths) for argument in operation.args)
    return replace(operation, args=args, kwargs=kwargs)


def _argument(argument: Argument, lengths: Mapping[str, int]) -> Argument:
    if isinstance(argument, Size):
        return replace(argument, value=evaluate(argument, lengths))
    if isinstance(argument, tuple):
        return tuple(_argument(item, lengths) for item in argument)
    return argument


def _storages(graph: Graph, tensors: Mapping[str, Tensor]) -> dict[str, Storage]:
    """Take from each storage what the tensors that look at it no longer reach."""
    before, after = _reached(graph.tensors), _reached(tensors)
    return {
        name: replace(storage, nbytes=storage.nbytes - (before.get(name, 0) - after.get(name, 0)))
        for name, storage in graph.storages.items()
    }


def _reached(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    found: dict[str, int] = {}
    for tensor in tensors.values():
        itemsize = getattr(torch, tensor.dtype).itemsize
        found[tensor.storage] = max(found.get(tensor.storage, 0), itemsize * extent(tensor))
    return found


def extent(tensor: Tensor) -> int:
    """Return how many elements a tensor reaches into its storage."""
    if math.prod(tensor.shape) == 0:
        return tensor.offset
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride, strict=True))
    return tensor.offset + last + 1
