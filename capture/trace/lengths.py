"""Which dimensions of the inputs may vary from step to step: asked for, or found."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from remat_gen.capture.load.arguments import Call, Leaf
from remat_gen.capture.load.shell_words import shell_word
from remat_gen.ir.errors import NoSuchLengthError, UsageError
from remat_gen.ir.size import Length

_NAMES = ("batch", "length")  # of the first dimension, of the second


def asked_lengths(call: Call, dims: Iterable[str]) -> tuple[Length, ...]:
    """Read `ids:0`, …: an input of forward, and which of its dimensions.

    Dimensions that are equally long in the example are one length.

    Raises:
        UsageError: there is no such input or dimension, or nothing is smaller than it.
    """
    by_size: dict[int, list[tuple[str, int]]] = {}
    for text in dims:
        leaf, dim = _read(call, text)
        if leaf.fixed:
            raise UsageError(f"--dynamic {text} and --fix {leaf.path} exclude each other")
        if leaf.value.shape[dim] < 2:
            raise UsageError(
                f"--dynamic {text}: that dimension of the example has length "
                f"{leaf.value.shape[dim]}; the example's is the largest planned for"
            )
        by_size.setdefault(leaf.value.shape[dim], []).append((leaf.path, dim))
    return _lengths(by_size)


def found_lengths(call: Call) -> tuple[Length, ...]:
    """Return the batch, if all tensors of the call begin with the same length of at least 2.

    Where one is fixed, others may be as long as its numbers say: none is found.
    """
    by_size = _first_dims(call)
    return () if why_none_found(call) or not by_size else _lengths(by_size)


def why_none_found(call: Call) -> str:
    """Say why the batch is not found among the lengths, and how to name it; "" where it is."""
    by_size = _first_dims(call)
    if not by_size:
        return ""
    longer = {size: dims for size, dims in by_size.items() if size > 1}
    if not longer:
        return "the example's batch is 1, and no larger one is planned for: give a larger one"
    commonest = _common_dims(call) or max(longer.values(), key=len)
    asked = " ".join(f"--dynamic {shell_word(f'{path}:{dim}')}" for path, dim in commonest)
    if call.fixed:
        return f"others may be as long as a fixed input says; where they are not: {asked}"
    if len(by_size) > 1:
        first = ", ".join(map(str, sorted(by_size)))
        return f"the inputs begin with {first}; name what varies from step to step, as {asked}"
    return ""


def _first_dims(call: Call) -> dict[int, list[tuple[str, int]]]:
    """Return by size the first dimension of each input."""
    by_size: dict[int, list[tuple[str, int]]] = {}
    for leaf in call.leaves:
        if isinstance(leaf.value, torch.Tensor) and leaf.value.ndim and not leaf.fixed:
            by_size.setdefault(leaf.value.shape[0], []).append((leaf.path, 0))
    return by_size


def _common_dims(call: Call) -> list[tuple[str, int]]:
    """Return dimensions of a size that all inputs have somewhere: an RNN's batch is the second.

    The last one of numbers that are no integers is their features.
    """
    leaves = (leaf for leaf in call.leaves if not leaf.fixed)
    tensors = [leaf for leaf in leaves if isinstance(leaf.value, torch.Tensor)]
    shapes = {
        t.path: [*t.value.shape[: -1 if t.value.is_floating_point() else None]] for t in tensors
    }
    for size in next(iter(shapes.values()), []):
        if size > 1 and all(size in shape for shape in shapes.values()):
            return [(path, shape.index(size)) for path, shape in shapes.items()]
    return []


def _read(call: Call, text: str) -> tuple[Leaf, int]:
    path, _, number = text.rpartition(":")
    tensors = {leaf.path: leaf for leaf in call.leaves if isinstance(leaf.value, torch.Tensor)}
    if not path or not number.isdecimal():
        raise UsageError(f"--dynamic {text}: write an input of forward and a dimension: x:0")
    if path not in tensors:
        listed = ", ".join(tensors) or "none"
        raise NoSuchLengthError(f"--dynamic {text}: forward has the tensors {listed}")
    if int(number) >= tensors[path].value.ndim:
        shape = list(tensors[path].value.shape)
        raise NoSuchLengthError(f"--dynamic {text}: {path} of the example has the shape {shape}")
    return tensors[path], int(number)


def _lengths(by_size: dict[int, list[tuple[str, int]]]) -> tuple[Length, ...]:
    taken: list[str] = []
    for dims in by_size.values():
        first = min(dim for _, dim in dims)
        name = _NAMES[first] if first < len(_NAMES) else f"size_{first}"
        taken.append(f"{name}_{taken.count(name) + 1}" if name in taken else name)
    return tuple(
        Length(name, 1, size, tuple(dict.fromkeys(dims)))
        for name, (size, dims) in zip(taken, by_size.items(), strict=True)
    )
