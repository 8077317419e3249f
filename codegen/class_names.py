"""Names and titles of block classes: from the modules they stand for, clear of the user's names.

Where several classes would be called the same, the earliest has the plain name, but for that of the
first layer alone; the others say that they serve the last layer, or which one they serve first, or
what their schedule does. A layer more renames nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from torch import nn

from remat_gen.capture.lower.naming import identifier
from remat_gen.codegen.arrange import BlockClass
from remat_gen.codegen.block_text import Writer
from remat_gen.codegen.prose import camel, prose
from remat_gen.codegen.statements import Body
from remat_gen.ir.paths import Layers


def name_classes(
    writers: Mapping[BlockClass, Writer], model: nn.Module, layers: Layers, taken: frozenset[str]
) -> dict[BlockClass, str]:
    """Return a class name for each: `LayerLn1`; of others that begin alike: `LayerLn1Last`, …"""
    namer = _ClassNamer(writers, model, layers, set(taken))
    in_order = sorted(writers, key=lambda c: c.body.block)
    names = {block_class: namer.name(block_class) for block_class in in_order}
    return {block_class: names[block_class] for block_class in writers}


@dataclass(slots=True)
class _ClassNamer:
    writers: Mapping[BlockClass, Writer]
    model: nn.Module
    layers: Layers
    used: set[str]
    named: dict[str, list[BlockClass]] = field(default_factory=dict)  # by what they begin with

    def name(self, block_class: BlockClass) -> str:
        name = next(n for n in self._candidates(block_class) if n not in self.used)
        self.used.add(name)
        self.named.setdefault(self._base(block_class), []).append(block_class)
        return name

    def _base(self, block_class: BlockClass) -> str:
        operations = block_class.body.operations
        layer = layer_of_class(block_class, self.layers)
        owner = self.model.get_submodule(layer) if layer else self.model
        first = camel(identifier(operations[0].hint)) if operations else "Empty"
        return f"{identifier(type(owner).__name__)}{first}"

    def _candidates(self, block_class: BlockClass) -> Iterator[str]:
        base = self._base(block_class)
        several = sum(self._base(c) == base for c in self.writers) > 1
        if several and len(block_class.bodies) == 1 and self._at_edge(block_class.body, 0):
            yield f"{base}First"
        yield base
        if any(self._at_edge(body, -1) for body in block_class.bodies):
            yield f"{base}Last"
        layer = layer_of_class(block_class, self.layers)
        yield from [f"{base}{camel(identifier(layer))}"] * bool(layer)
        yield from (f"{base}{difference}" for difference in self._differences(block_class))
        yield from (f"{base}{place}" for place in self._before(block_class))
        operations = block_class.body.operations
        places = [f"To{camel(identifier(operations[-1].hint))}"] if operations else []
        layers = map(self.layers.holding, block_class.body.arguments())
        places += [camel(identifier(layer)) for layer in layers if layer][:1]
        yield from (f"{base}{place}" for place in places)
        yield f"{base}{''.join(places)}"
        yield f"{base}{_digest(block_class)}"

    def _differences(self, block_class: BlockClass) -> Iterator[str]:
        """Yield what the schedule retains or re-runs unlike those that have the base already."""
        alike = [self.writers[c] for c in self.named.get(self._base(block_class), ())]
        writer = self.writers[block_class]
        for verb, mine, theirs in (
            ("Retaining", writer.retained(), {n for w in alike for n in w.retained()}),
            ("Rerunning", writer.rematerialised(), {n for w in alike for n in w.rematerialised()}),
        ):
            yield from (f"{verb}{camel(name)}" for name in mine if name not in theirs)

    def _before(self, block_class: BlockClass) -> Iterator[str]:
        """Yield the layer that a single block outside of the layers stands before."""
        if len(block_class.bodies) == 1 and not layer_of_class(block_class, self.layers):
            following = block_class.body.block + 1
            after = [b for c in self.writers for b in c.bodies if b.block == following]
            layers = [self.layers.of(o.module) for b in after for o in b.operations[:1]]
            yield from (f"Before{camel(identifier(layer))}" for layer in layers if layer)

    def _at_edge(self, body: Body, place: int) -> bool:
        """Tell whether a block begins in the first (0) or ends in the last (-1) of a list."""
        if not body.operations:
            return False
        path, _, number = self.layers.of(body.operations[place].module).rpartition(".")
        return bool(number) and number == list(self.model.get_submodule(path)._modules)[place]


def _digest(block_class: BlockClass) -> str:
    """Return a mark of the text: the last resort, and the same wherever the block stands."""
    texts = [s.text for s in block_class.body.forward.statements]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:6]


def layer_of_class(block_class: BlockClass, layers: Layers) -> str:
    """Return the repeated layer that a block's forward lies in, or ""."""
    own = {layers.of(o.module) for o in block_class.body.operations if o.module}
    return own.pop() if len(own) == 1 else ""


def title_of(block_class: BlockClass, layers: Layers) -> str:
    """Return what the class does, for its docstring: `h.*: ln_1 … proj`."""
    operations = block_class.body.operations
    if not operations:
        return "nothing"
    layer = layer_of_class(block_class, layers)
    where = f"{layer.rpartition('.')[0]}.*: " if layer and len(block_class.bodies) > 1 else ""
    where = where or (f"{layer}: " if layer else "")
    first, last = operations[0].hint, operations[-1].hint
    return prose(f"{where}{first} … {last}" if first != last else f"{where}{first}")
