"""Find the layers of models in stages, lists in lists, and those that are in no list.

Swin, ConvNeXt or EfficientNet repeat their blocks within stages: `stages.2.blocks.3` is what is
planned, written once and read, not the stage. A list of experts, of heads or of the halves of one
block looks the same by its names, so what the operations read decides.

Inception and many a U-Net name what they repeat: `inception3a`, `down1`. A recurrence within each
of many layers is what is repeated most: `blocks.2.att@7`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from torch import nn

from remat_gen.capture.fx.loops import LONG
from remat_gen.ir.graph import Graph, Phase
from remat_gen.ir.paths import OUTERMOST, Layers, is_turn, pattern_of, without_turns

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
_LEAST = 5  # operations of a layer that is in no list
_CONTAINERS = nn.Sequential | nn.ModuleList | nn.ModuleDict


def layers_of(model: nn.Module, graph: Graph) -> Layers:
    """Return which members of the model's lists are its layers, by the operations of a step."""
    flow = _flow(graph)
    layers = OUTERMOST
    while found := frozenset(_inner(model, flow, layers)):
        layers = Layers(layers.inner | found)
    layers = Layers(layers.inner | frozenset(_looping(flow, layers)))
    return Layers(layers.inner, frozenset(_named(model, flow, layers)))


@dataclass(frozen=True, slots=True)
class _Flow:
    """The forward operations of each module and of all in it, and what each reads from."""

    within: Mapping[str, list[int]]
    sources: tuple[frozenset[int], ...]

    def first_calls(self) -> dict[str, str]:
        """Return the paths of modules in the first call of those that are called several times."""
        return {without_turns(path): path for path in reversed([*self.within])}


@dataclass(frozen=True, slots=True)
class _List:
    """A list of blocks: its path, the stage it stands in, its members and their kinds."""

    path: str
    stage: str
    members: tuple[str, ...]
    kinds: tuple[object, ...]


def _flow(graph: Graph) -> _Flow:
    forward = [o for o in graph.operations if o.phase is Phase.FORWARD]
    makers: dict[str, int] = {}
    within: dict[str, list[int]] = {}
    sources = []
    for p, operation in enumerate(forward):
        parts = operation.module.split(".")
        for count in range(1, len(parts) + 1):
            within.setdefault(".".join(parts[:count]), []).append(p)
        sources.append(frozenset(makers[s] for s in graph.reads(operation) if s in makers))
        makers.update((storage, p) for storage in graph.writes(operation))
    return _Flow(within, tuple(sources))


def _inner(model: nn.Module, flow: _Flow, layers: Layers) -> Iterator[str]:
    """Yield the lists whose members are layers rather than the stages that they stand in."""
    alike: dict[str, list[_List]] = {}
    for found in _lists(model, flow.first_calls(), layers):
        alike.setdefault(_NUMBER.sub("*", found.path), []).append(found)
    for lists in alike.values():
        repeats = any(max(Counter(one.kinds).values()) > 1 for one in lists)
        if repeats and all(_is_row(flow, one) for one in lists):
            yield from (one.path for one in lists)


def _lists(model: nn.Module, called: Mapping[str, str], layers: Layers) -> Iterator[_List]:
    """Yield the lists of blocks in what counts as a layer so far; `called` says in which call."""
    for path, module in model.named_modules():
        at = called.get(path, path)
        members = {f"{at}.{n}": m for n, m in module.named_children() if n.isdigit()}
        kinds = tuple(map(_kind, members.values()))
        if members and all(kinds) and layers.of(at) and path not in layers.inner:
            yield _List(path, layers.of(at), tuple(members), kinds)


def _looping(flow: _Flow, layers: Layers) -> Iterator[str]:
    """Yield what has, within a layer, what runs so often that each turn is one."""
    operations = Counter[str]()
    for path, own in flow.within.items():
        if is_turn(path) and layers.of(path) != path:
            operations[pattern_of(path)] += len(own)
    for pattern, count in operations.items():
        if count >= LONG:
            yield without_turns(pattern.rpartition(".")[0])


def _named(model: nn.Module, flow: _Flow, layers: Layers) -> Iterator[str]:
    """Yield the outermost modules in no list that are made as others, or as members of lists.

    What has lists of blocks of its own, as an Inception's branches are, is one where another has
    parameters of the same shapes, too: else its blocks have more in common than it has with others.
    """
    modules = {path: m for path, m in model.named_modules() if layers.of(path) in ("", path)}
    kinds = {path: kind for path, m in modules.items() if path and (kind := _kind(m))}
    count, twins = Counter(kinds.values()), Counter(_shapes(modules[path]) for path in kinds)
    found = ""
    for path, kind in kinds.items():
        inside = layers.of(path) or (found and path.startswith(f"{found}."))
        has_twin = twins[_shapes(modules[path])] > 1
        if not inside and count[kind] > 1 and _is_layer(modules[path], path, flow, has_twin):
            found = path
            yield path


def _shapes(module: nn.Module) -> tuple[object, ...]:
    return (_kind(module), *(parameter.shape for parameter in module.parameters()))


def _is_layer(module: nn.Module, path: str, flow: _Flow, has_twin: bool) -> bool:
    """Tell whether a module does enough to be a layer, and has no list that is most of it."""
    own = len(flow.within.get(path, ()))
    lists = (at for at, m in module.named_modules() if isinstance(m, _CONTAINERS) and _repeats(m))
    inside = [len(flow.within.get(f"{path}.{at}", ())) for at in lists]
    return own >= _LEAST and (not inside or (has_twin and 2 * max(inside) < own))


def _repeats(one: nn.Module) -> bool:
    """Tell whether members of a list are made alike."""
    count = Counter(filter(None, map(_kind, one.children())))
    return max(count.values(), default=0) > 1


def _kind(module: nn.Module) -> tuple[type, tuple[str, ...]] | None:
    """Return what a block is made of; None for what is no block: a lone operation, a container."""
    if isinstance(module, _CONTAINERS) or not any(module.children()):
        return None
    return (type(module), tuple(name for name, _ in module.named_modules()))


def _is_row(flow: _Flow, one: _List) -> bool:
    """Tell whether a stage is its members in a row: each reads what the one before it made.

    What else a stage does, it does before its first member or to what its last one made: a sum with
    what came before would make it a layer.
    """
    rows = [row for member in one.members if (row := flow.within.get(member))]
    if any(a[-1] >= b[0] for a, b in pairwise(rows)):
        return False
    if not all(any(flow.sources[p] & {*a} for p in b) for a, b in pairwise(rows)):
        return False
    if not rows:  # it does not run
        return True
    own = set(flow.within[one.stage]).difference(*rows)
    after = {p for p in own if p > rows[0][0]}
    allowed = after.union(rows[-1])
    return all(p > rows[-1][-1] and flow.sources[p] <= allowed for p in after)
