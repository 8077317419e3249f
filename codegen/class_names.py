"""Names and titles of block classes: from the modules they stand for, clear of the user's names."""

from __future__ import annotations

from torch import nn

from remat_gen.capture.naming import identifier
from remat_gen.codegen.arrange import BlockClass
from remat_gen.codegen.paths import root
from remat_gen.codegen.prose import camel, prose


def name_classes(
    classes: tuple[BlockClass, ...], model: nn.Module, taken: frozenset[str]
) -> dict[BlockClass, str]:
    """Return a class name for each: `LayerLn1`; where two differ only in schedule, `LayerLn1H3`."""
    names: dict[BlockClass, str] = {}
    used = set(taken)
    for block_class in classes:
        name = next(n for n in _candidates(block_class, model) if n not in used)
        used.add(name)
        names[block_class] = name
    return names


def _candidates(block_class: BlockClass, model: nn.Module) -> list[str]:
    operations = block_class.body.operations
    layer = layer_of_class(block_class)
    owner = type(model.get_submodule(layer)).__name__ if layer else type(model).__name__
    first = camel(identifier(operations[0].hint)) if operations else "Empty"
    last = camel(identifier(operations[-1].hint)) if operations else ""
    base = f"{identifier(owner)}{first}"
    position = camel(identifier(layer)) if layer else ""
    owned = [root(a) for a in block_class.body.arguments() if root(a)]
    where = position or (camel(identifier(owned[0])) if owned else "")
    block = f"{base}{where}To{last}Block{block_class.body.block}"
    return [base, f"{base}{where}", f"{base}To{last}", f"{base}{where}To{last}", block]


def layer_of_class(block_class: BlockClass) -> str:
    """Return the repeated layer that a block's forward lies in, or ""."""
    layers = {root(f"{o.module}.") for o in block_class.body.operations if o.module}
    return layers.pop() if len(layers) == 1 else ""


def title_of(block_class: BlockClass) -> str:
    """Return what the class does, for its docstring: `h.*: ln_1 … proj`."""
    operations = block_class.body.operations
    if not operations:
        return "nothing"
    layer = layer_of_class(block_class)
    where = f"{layer.rpartition('.')[0]}.*: " if layer and len(block_class.bodies) > 1 else ""
    where = where or (f"{layer}: " if layer else "")
    first, last = operations[0].hint, operations[-1].hint
    return prose(f"{where}{first} … {last}" if first != last else f"{where}{first}")
