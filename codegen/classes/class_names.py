"""Names and titles of block classes: from the modules they stand for, clear of the user's names.

A block is called after its layer's class, and the part of it that it runs: `LayerMlp`. Of several
that would be called the same, the first layer's own is `LayerFirst`, the earliest other has the
plain name, that of the last layer is `LayerLast`, and others have the number of the layer that they
serve first: a layer more renames nothing before it.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from torch import nn

from remat_gen.capture.lower.naming import identifier
from remat_gen.codegen.classes.arrange import BlockClass
from remat_gen.codegen.expressions.prose import camel, prose
from remat_gen.codegen.statements.statements import Body
from remat_gen.ir.paths import Layers, is_turn, next_turn, numbers_in, pattern_of, without_turns

_TELLING = ("Embedding", "Attention", "LSTM", "GRU", "RNN")  # classes of torch's that say enough
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9_]+|[A-Z]")


def name_classes(
    classes: Iterable[BlockClass], model: nn.Module, layers: Layers, taken: frozenset[str]
) -> dict[BlockClass, str]:
    """Return a class name for each: `LayerMlp`; of others that begin alike: `LayerMlpLast`, …"""
    in_order = sorted(classes, key=lambda c: c.body.block)
    ran = {o.module for c in in_order for body in c.bodies for o in body.operations}
    namer = _ClassNamer(
        model, layers, taken, set(map(layers.of, ran)), set(map(without_turns, ran))
    )
    bases, parts = dict[BlockClass, str](), dict[str, str]()
    for block_class in in_order:
        base, own = namer.bases(block_class)
        same = parts.setdefault(base, own) == own  # else they are called after their attributes
        bases[block_class] = base if same else own
    counts, names, used = Counter(bases.values()), dict[BlockClass, str](), set(taken)
    for block_class, base in bases.items():
        candidates = namer.candidates(block_class, base, alone=counts[base] == 1)
        names[block_class] = next(name for name in candidates if name not in used)
        used.add(names[block_class])
    return {block_class: names[block_class] for block_class in classes}


@dataclass(frozen=True, slots=True)
class _ClassNamer:
    model: nn.Module
    layers: Layers
    taken: Collection[str]
    used: Collection[str]  # layers that some class stands for
    ran: Collection[str]  # modules that have operations in some class

    def bases(self, block_class: BlockClass) -> tuple[str, str]:
        """Name a block by its layer's class and the part it runs: `Layer`, `LayerMlp`.

        The second name is for parts of one class, after the attribute: `DecoderCross`.
        """
        operations = block_class.body.operations
        modules = dict(self.model.named_modules(remove_duplicate=False))
        paths = {path for o in operations if (path := without_turns(o.module)) in modules}
        for path in modules:  # what an attention multiplies with `out_proj.weight`, say, by itself
            owner = path.rpartition(".")[0]
            if owner and owner in paths and path not in self.ran:
                paths.add(path)
        called = layer_of_class(block_class, self.layers)
        layer = without_turns(called)
        layer = layer if layer in modules else ""  # not where it is in a plain list
        owner = modules[layer]
        inside = {path.removeprefix(layer).removeprefix(".") for path in paths} - {""}
        attribute, part = _part(owner, inside, attributes=not layer)
        if is_turn(called) and not (layer and inside):  # of a loop in its forward
            attribute, part = "turn", "Turn"
        elif not part and not (layer and inside):
            attribute = part = operations[-1].hint if operations else ""
            part = camel(identifier(part)) if part else ""
        attribute = camel(identifier(attribute)) if attribute else ""
        return f"{_class_name(owner)}{part}", f"{_class_name(owner)}{attribute}"

    def candidates(self, block_class: BlockClass, base: str, *, alone: bool) -> Iterator[str]:
        """Yield the names that a class may have, the best first."""
        first, bodies = block_class.body.operations[:1], block_class.bodies
        layer = self.layers.of(first[0].module) if first else ""
        if not alone and len(bodies) == 1 and self._at_edge(block_class.body, 0):
            yield f"{base}First"
        kind = "Layer" if base.endswith("Block") else "Block"
        yield f"{base}{kind}" if base in self.taken else base
        edges = [any(self._at_edge(body, edge) for body in bodies) for edge in (0, -1)]
        if edges == [False, True]:
            yield f"{base}Last"
        number = "_".join(numbers_in(layer))
        yield from [f"{base}{number}"] * bool(number)
        yield from (f"{base}{number}{'_' * bool(number)}{i}" for i in itertools.count(2))

    def _at_edge(self, body: Body, place: int) -> bool:
        """Tell whether a block begins in the first (0) or ends in the last (-1) of a list.

        Or in the first or last call of a module.
        """
        if not body.operations:
            return False
        layer = self.layers.of(body.operations[place].module)
        if is_turn(layer):
            return next_turn(layer, -1 if place == 0 else 1) not in self.used
        path, _, number = layer.rpartition(".")
        lists = dict(self.model.named_modules(remove_duplicate=False))
        path = without_turns(path)
        return path in lists and [number] == list(lists[path]._modules)[place:][:1]


def _part(owner: nn.Module, paths: Collection[str], *, attributes: bool) -> tuple[str, str]:
    """Name the part of a module that most of the parameters at `paths` are of; "" for all of it.

    By the attribute that it is, and as it is to be called.

    A part that others run as well is looked into: `Embedding` of a `LlamaModel` in the model.
    """
    weights = Counter[str]()
    for path in sorted(paths):  # of parts that weigh the same the first one, in each process
        own = owner.get_submodule(path).parameters(recurse=False)
        weights[path.partition(".")[0]] += sum(parameter.numel() for parameter in own)
    whole = sum(weights.values()) == _weight(owner)
    if not weights or (whole and not attributes):
        return "", ""
    name, weight = max(weights.items(), key=lambda found: found[1])
    part = owner.get_submodule(name)
    inner = [path.removeprefix(f"{name}.") for path in paths if path.startswith(f"{name}.")]
    if weight < _weight(part) and not _of_torch(part) and inner:
        return _part(part, inner, attributes=attributes)
    telling = type(part).__name__.endswith(_TELLING)
    if not telling and (attributes or _of_torch(part)):
        return name, camel(identifier(name))
    return name, _without_shared(_class_name(part), _class_name(owner))


def _without_shared(kind: str, owner: str) -> str:
    """Return `MLP` for a `LlamaMLP` in a `LlamaDecoderLayer`."""
    words, theirs = _WORD.findall(kind), _WORD.findall(owner)
    pairs = zip(words, theirs, strict=False)
    shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    return "".join(words[shared:]) or kind


def _class_name(module: nn.Module) -> str:
    return identifier(type(module).__name__)


def _of_torch(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torch.")


def _weight(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


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
    where = pattern_of(layer) if len(block_class.bodies) > 1 else layer
    where = f"{where}: " if where else ""
    first, last = operations[0].hint, operations[-1].hint
    return prose(f"{where}{first} … {last}" if first != last else f"{where}{first}")
