"""Find the lists of equal layers in a model, and leave most of their members out for a while.

`h` of 48 layers is traced as four: the first, two that stand for all between, and the last. That
is right only where what forward does with them is as regular as they are, which
`same_operations.py` proves of the example; the graph of all is made in `all_layers.py`.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from remat_gen.capture.observe.assumed import File, describe_module, fetch
from remat_gen.capture.observe.repeats import Reads
from remat_gen.capture.observe.states import words_of
from remat_gen.capture.process.replaced import kept_dicts

_WORTH = 4  # layers left out: what it takes to prove that they can be is a few runs on fakes


class UnlikeError(Exception):
    """Layers that look alike are not used alike."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """A list of `count` layers at `path`: the `first`, cycles of `every` kinds, the `last`.

    Traced are two of the cycles, whose difference is a step of the index, and both ends.
    """

    path: str
    count: int
    first: int = 1
    every: int = 1
    last: int = 1

    @property
    def one(self) -> range:
        """Return the layers of the first cycle."""
        return range(self.first, self.first + self.every)

    @property
    def two(self) -> range:
        """Return the layers of the second cycle; behind it the last ones of the trace begin."""
        return range(self.one.stop, self.one.stop + self.every)

    @property
    def left_out(self) -> int:
        """Return how many cycles are not traced."""
        return (self.count - self.two.stop - self.last) // self.every

    def of(self, name: str) -> int | None:
        """Return the layer that a value, operation or module belongs to, by its name."""
        return next(reversed(self.layers_in(name)), None)

    def layers_in(self, name: str) -> list[int]:
        """Return the layers that are named in a name: that of a view has several."""
        return [int(found[2]) for found in _named(self.path).finditer(name)]

    def renamed(self, name: str, layer: Callable[[int], int]) -> str:
        """Return a name with other layers: `layer` has the index of each."""
        return _named(self.path).sub(lambda found: f"{found[1]}{layer(int(found[2]))}", name)

    def later(self, name: str, cycles: int) -> str:
        """Return a name some cycles later, where the first layers stay what they are."""
        by = cycles * self.every
        return self.renamed(name, lambda i: i if i < self.first else i + by)


@functools.cache
def _named(path: str) -> re.Pattern[str]:
    """Match the layers of a list in a name, or in that of a view behind its colon."""
    return re.compile(rf"((?:^|:){re.escape(path)}\.)(\d+)(?=[.:]|$)")


def repeated_layers(model: nn.Module, reads: Reads, ends: int = 1) -> tuple[Repeated, ...]:
    """Return the outermost lists that consist of alike layers, but for so many at both ends.

    They are of the same modules, with tensors of their own, and forward reads the same of each.
    """
    found: list[Repeated] = []
    owners = _owners(model)
    for path, module in model.named_modules():
        inside = any(path.startswith(f"{other.path}.") for other in found)
        if inside or not path or not isinstance(module, nn.ModuleList | nn.Sequential):
            continue
        layers = list(module.children())
        counted = list(module._modules) == [str(i) for i in range(len(layers))]
        if not counted or not all(_own(f"{path}.{i}", m, owners) for i, m in enumerate(layers)):
            continue
        repeated = _cycles(path, _kinds(layers, model, reads, path), ends)
        if repeated and repeated.left_out * repeated.every >= _WORTH:
            found.append(repeated)
    return tuple(found)


def _cycles(path: str, kinds: Sequence[object], ends: int) -> Repeated | None:
    """Return how kinds repeat; where the cycles do not end with the list, more are the last."""
    between = kinds[ends : len(kinds) - ends]
    for every in range(1, len(between) // 2 + 1):
        if all(kind == later for kind, later in zip(between, between[every:], strict=False)):
            rest = len(between) % every
            return Repeated(path, len(kinds), ends, every, ends + rest)
    return None


@contextlib.contextmanager
def left_out(model: nn.Module, lists: Sequence[Repeated]) -> Iterator[None]:
    """Leave the layers out that are not traced: the last ones follow on the second cycle."""
    members = [model.get_submodule(repeated.path)._modules for repeated in lists]
    with kept_dicts(*members):
        for repeated, held in zip(lists, members, strict=True):
            layers = list(held.values())
            traced = [*layers[: repeated.two.stop], *layers[-repeated.last :]]
            held.clear()
            held.update({str(i): layer for i, layer in enumerate(traced)})
        yield


def _kinds(layers: Sequence[nn.Module], model: nn.Module, reads: Reads, path: str) -> list[object]:
    """Return of each layer what it is made of, and what forward reads of it."""
    found: list[dict[str, object]] = [{} for _ in layers]
    for read in reads.paths:
        index, dot, inside = read.removeprefix(f"{path}.").partition(".")
        if read.startswith(f"{path}.") and dot and index.isdigit() and int(index) < len(layers):
            value = fetch(model, read, File(reads.file))
            # a tensor that is no buffer is a constant of its own in the trace
            found[int(index)][inside] = id(value) if _is_constant(value) else words_of(value)
    return [(_description(layer), read) for layer, read in zip(layers, found, strict=True)]


def _is_constant(value: object) -> bool:
    return isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter)


def _description(layer: nn.Module) -> list[tuple[str, type, str]]:
    there: dict[int, str] = {}  # a tensor that a layer has twice is told by its first place
    modules = layer.named_modules(remove_duplicate=False)
    return [(path, type(m), describe_module(m, f"-{path}", there)) for path, m in modules]


def _owners(model: nn.Module) -> Mapping[int, set[str]]:
    """Return by identity under which names each module and tensor stands in the model."""
    owners: dict[int, set[str]] = {}
    kinds = (model.named_modules, model.named_parameters, model.named_buffers)
    for named in kinds:
        for name, held in named(remove_duplicate=False):
            owners.setdefault(id(held), set()).add(name)
    return owners


def _own(place: str, layer: nn.Module, owners: Mapping[int, set[str]]) -> bool:
    """Tell whether nothing of a layer stands anywhere else in the model."""
    held = (*layer.modules(), *layer.parameters(), *layer.buffers())
    return all(f"{name}.".startswith(f"{place}.") for part in held for name in owners[id(part)])
