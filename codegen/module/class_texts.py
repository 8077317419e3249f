"""The block classes of a file as text: what several of its programs run is written once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import nn

from remat_gen.codegen.classes.arrange import BlockClass, group
from remat_gen.codegen.classes.block_fields import block_fields
from remat_gen.codegen.classes.block_text import Writer
from remat_gen.codegen.classes.class_names import name_classes, title_of
from remat_gen.codegen.classes.kept_names import KeptNames
from remat_gen.codegen.module.environment import render
from remat_gen.codegen.module.generated_names import free
from remat_gen.codegen.statements.statements import Body
from remat_gen.ir.graph import Graph
from remat_gen.ir.rung import Rung

# The comments that give bytes, which are those of the longest steps of a program.
_BYTES = re.compile(r"# (retain|free|re-run|offload|fetch) [^\n]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ProgramText:
    """The classes that a program runs, with the writer and the name of each."""

    writers: dict[BlockClass, Writer]
    names: dict[BlockClass, str]

    @property
    def hands_numbers(self) -> bool:
        """Tell whether a class is handed numbers."""
        return any(block_class.numbers for block_class in self.writers)


@dataclass(slots=True)
class ClassTexts:
    """Names and writes classes; `in_reach` are the file's names that they call."""

    graph: Graph
    model: nn.Module
    taken: frozenset[str]
    in_reach: frozenset[str]
    functions: Mapping[str, str]  # names of what is compiled
    fields: dict[str, dict[str, object]] = field(default_factory=dict)  # by name of the class
    names: dict[str, str] = field(default_factory=dict)  # by text, without name, title and bytes

    def add(self, bodies: tuple[Body, ...], rung: Rung | None = None) -> ProgramText:
        """Write what a program runs; a `rung`'s own classes say so in their names."""
        classes = group(self.graph, bodies, self.model)
        kept = KeptNames(self.graph, classes)
        writers = {c: Writer(self.graph, c, kept, self.in_reach, self.functions) for c in classes}
        alone = name_classes(classes, self.model, self.graph.layers, self.taken)
        names = {c: self._named(c, writers[c], name, rung) for c, name in alone.items()}
        return ProgramText(writers, names)

    def blocks(self) -> list[str]:
        """Return the classes as they stand in the file."""
        return [render("block.py.jinja", block=fields) for fields in self.fields.values()]

    def _named(self, block_class: BlockClass, writer: Writer, name: str, rung: Rung | None) -> str:
        """Return the name of a class, which may be that of an equal one."""
        title = title_of(block_class, self.graph.layers)
        fields = block_fields(writer, writer.write(name, title))
        text = render("block.py.jinja", block=fields | {"name": "Block", "title": ""})
        key = _BYTES.sub(r"# \1", text)
        if rung is None or key not in self.names:
            if rung is not None:
                own = name + "".join(w[0].upper() + w[1:] for w in rung.words)
                name = free(own, self.taken | self.fields.keys())
            self.names[key] = name
            self.fields[self.names[key]] = fields | {"name": self.names[key]}
        elif ".*: " in title:  # it is of more layers here
            self.fields[self.names[key]]["title"] = title
        return self.names[key]
