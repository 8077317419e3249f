"""The names that a reader of a generated module sees, and the values that they stand for.

A block that occurs several times is written once: `up` or `self.up` stands for a value of each of
its instances. The plan's names (`h.0.mlp.up`) stand for one value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain

from remat_gen.ask.choice import near_names
from remat_gen.capture.units.joined import EAGER
from remat_gen.capture.units.unit_step import UnitStep
from remat_gen.codegen.classes.arrange import BlockClass, group
from remat_gen.codegen.classes.block_text import RESERVED, Writer
from remat_gen.codegen.classes.kept_names import KeptNames
from remat_gen.codegen.classes.shared_views import share_views
from remat_gen.codegen.expressions.marks import Mark, argument
from remat_gen.codegen.module.generated_names import generated_names
from remat_gen.codegen.module.merge import names_in
from remat_gen.codegen.statements.bodies import write_bodies
from remat_gen.codegen.statements.statements import Body
from remat_gen.ir.errors import UsageError
from remat_gen.ir.graph import Graph
from remat_gen.review.retrace import Retraced

_FRAME = re.compile(r"^(?:self|step|p|layer|model|before(?:_\d+)?|after(?:_\d+)?|block_\d+)\.")
_INDEX = re.compile(r"(?<=\w)\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class ValueNames:
    """For each storage, all names that stand for it; the plan's own one is the key."""

    of: Mapping[str, frozenset[str]]

    def find(self, pattern: str) -> list[str]:
        """Return the storages that a name or an `fnmatch` pattern stands for, in traced order.

        Raises:
            UsageError: there is none; the message has near names.
        """
        wanted = _INDEX.sub(r".\1", re.sub(r"^g\.", "d_", pattern))  # a gradient
        wanted = wanted if wanted in self.of else _FRAME.sub("", wanted)
        if wanted in self.of:
            return [wanted]
        found = [storage for storage, names in self.of.items() if wanted in names]
        found = found or [storage for storage in self.of if storage.endswith(f".{wanted}")]
        if not found and re.search(r"[*?[]", wanted):
            spelt = ((s, {s, *names}) for s, names in self.of.items())
            found = [s for s, names in spelt if any(fnmatchcase(n, wanted) for n in names)]
        if not found:
            near = near_names(wanted, chain(self.of, *map(sorted, self.of.values())))
            raise UsageError(f"{pattern}: no value of this name{near and '; '}{near}")
        return found


def names_in_module(retraced: Retraced) -> ValueNames:
    """Return the names in the text that the plan gives; of units' values, those of the plan."""
    graph = retraced.traced.graph
    if isinstance(retraced.traced, UnitStep):
        own = (name for name in graph.storages if not name.startswith(EAGER))
        return ValueNames({name: frozenset() for name in own})
    bodies = write_bodies(graph, retraced.problem, retraced.schedule)
    generated = generated_names()
    loaded = retraced.loaded
    taken = names_in(loaded.source) | vars(loaded.module).keys() | generated | RESERVED
    bodies, views = share_views(graph, bodies, taken)
    classes = group(graph, bodies, loaded.model)
    kept = KeptNames(graph, classes)
    helpers = generated.union(view.name for view in views)
    found: dict[str, set[str]] = {name: set() for name in graph.storages}
    for block_class in classes:
        writer = Writer(graph, block_class, kept, helpers)
        for name, shown in _shown(block_class, writer, kept):
            storage = graph.tensors[name].storage if name in graph.tensors else name
            found[storage].update(_spellings(graph, storage, shown))
    return ValueNames({storage: frozenset(names) for storage, names in found.items()})


def _shown(block_class: BlockClass, writer: Writer, kept: KeptNames) -> Iterator[tuple[str, str]]:
    """Yield each tensor of all of a class's bodies with the name that is written for it."""
    first = _marks(block_class.body)
    for body in block_class.bodies:
        for mark, written in zip(_marks(body), first, strict=True):
            if mark.kind == "kept":
                yield mark.name, kept[mark.name]
            elif mark.kind not in ("length", "number"):
                shown = writer.fill(str(written))
                yield mark.name, re.sub(r"^g\.", "d_", shown).removeprefix("p.")


def _marks(body: Body) -> list[Mark]:
    marks = [*body.forward.marks(), *body.backward.marks()]
    own = map(argument, body.arguments())
    return [*marks, *own]


def _spellings(graph: Graph, storage: str, shown: str) -> Iterator[str]:
    """Yield the name alone, and behind the module and the layer that the value belongs to."""
    yield shown
    path = storage.rpartition(".")[0]
    yield from (f"{prefix}.{shown}" for prefix in {path, graph.layers.holding(storage)} if prefix)
