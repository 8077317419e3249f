"""A part as a function: straight-line text from tensors and lengths to tensors."""

from __future__ import annotations

import builtins
import hashlib
import keyword
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from remat_gen.codegen.classes.paragraphs import Paragraph, paragraphs
from remat_gen.codegen.expressions.expressions import Expressions
from remat_gen.codegen.expressions.marks import Mark, fill, find, length, value
from remat_gen.codegen.statements.free_names import free_name, hint_of
from remat_gen.codegen.statements.long_sums import in_two_steps
from remat_gen.codegen.statements.statements import Statement
from remat_gen.compile.masks import Handed, handed
from remat_gen.ir.graph import Graph, Operation, Tensor
from remat_gen.ir.size import lengths_in

_RESERVED = frozenset("aten torch F Tensor math pick_results".split())


@dataclass(frozen=True, slots=True)
class PartText:
    """A function that is compiled: of tensors, then of the lengths that these depend on.

    `given` and `results` are the marks of its ends, in order; `handed` says how each of `given`
    goes in, `layouts` how the tensors among them lie in memory: compiled code is for those only.
    `parameters` has name and type of each; `hints` are the user's words for the results. `lines`
    are its statements without comments, `apart` those that run where it is not compiled; either
    runs `operations`, by name. `lengths` are those of the example.
    """

    given: tuple[Mark, ...]
    handed: tuple[Handed, ...]
    layouts: tuple[str, ...]
    results: tuple[Mark, ...]
    parameters: tuple[tuple[str, str], ...]
    returned: tuple[str, ...]
    hints: tuple[str, ...]
    lines: tuple[str, ...]
    apart: tuple[str, ...]
    paragraphs: tuple[Paragraph, ...]
    operations: tuple[str, ...]
    lengths: tuple[int, ...]

    @property
    def tensors(self) -> list[str]:
        """Return the names of the tensors that it is given."""
        return [mark.name for mark in self.given if not _is_length(mark)]

    @property
    def made(self) -> list[str]:
        """Return the storages that it returns."""
        return [mark.name for mark in self.results]

    @property
    def code(self) -> str:
        """Return the function as it is measured: `part`, without comments."""
        return self._function(self.lines)

    @property
    def code_apart(self) -> str:
        """Return the same of operations that run one by one, in place where they would."""
        return self._function(self.apart)

    def _function(self, lines: tuple[str, ...]) -> str:
        parameters = ", ".join(f"{name}: {kind}" for name, kind in self.parameters)
        lines = (*lines, f"return {', '.join(self.returned)}")
        return f"def part({parameters}):\n" + "".join(f"    {line}\n" for line in lines)

    @property
    def sha256(self) -> str:
        """Return the first digits of the hash of the code, and of how its arguments go in and lie.

        A plan knows a part's cost by it.
        """
        return self._hash(self.code)

    @property
    def key(self) -> str:
        """Return what tells this function from others, comments included."""
        comments = "\n".join(paragraph.comment for paragraph in self.paragraphs)
        return self._hash(f"{self.code}\n{comments}")

    def _hash(self, text: str) -> str:
        ways = " ".join((*(way.name for way in self.handed), *self.layouts))
        return hashlib.sha256(f"{ways}\n{text}".encode()).hexdigest()[:12]

    @property
    def returns(self) -> str:
        """Return the type of the result."""
        if len(self.returned) == 1:
            return "Tensor"
        return f"tuple[{', '.join('Tensor' for _ in self.returned)}]"


def write_part(
    graph: Graph,
    statements: Iterable[Statement],
    apart: Iterable[str],
    results: tuple[Mark, ...],
    operations: tuple[Operation, ...],
) -> PartText:
    """Write statements as a function that returns `results`; `apart` as they run on their own.

    `operations` are what the statements run.
    """
    statements = tuple(replace(s, again="", remade=0, retained=0) for s in statements)
    made = {mark.name for s in statements for mark in find(_target(s))}
    marks = dict.fromkeys(mark for s in statements for mark in find(s.text))
    given = [mark for mark in marks if mark.name not in made and mark.kind != "length"]
    lengths = list(dict.fromkeys([*filter(_is_length, marks), *_lengths_of(graph, given)]))
    names = _Names(graph)
    for mark in (*lengths, *marks):
        names.add(mark)
    ways = {mark: handed(graph, mark.name, operations) for mark in given}
    names.integers = {mark.name for mark, way in ways.items() if way is Handed.INTEGERS}
    types = [(mark, "Tensor") for mark in given] + [(mark, "int") for mark in lengths]
    return PartText(
        given=tuple(mark for mark, _ in types),
        handed=tuple(ways.get(mark, Handed.AS_IS) for mark, _ in types),
        layouts=tuple(layout(graph.tensors[mark.name]) for mark in given),
        results=results,
        parameters=tuple((names[mark], kind) for mark, kind in types),
        returned=tuple(names[mark] for mark in results),
        hints=tuple(hint_of(graph, mark.name) for mark in results),
        lines=tuple(names.fill_compiled(s.text) for s in statements),
        apart=tuple(map(names.fill, apart)),
        paragraphs=tuple(paragraphs([statements], names.fill_compiled)),
        operations=tuple(operation.name for operation in operations),
        lengths=tuple(n.maximum for mark in lengths for n in graph.lengths if n.name == mark.name),
    )


def write_operations(graph: Graph, operations: tuple[Operation, ...]) -> PartText:
    """Write operations, one after another, as a function that returns what the last one makes.

    That is apart from any schedule: to learn what they cost together.
    """
    expressions = Expressions(graph, value)
    targets = [f"{', '.join(_targets_of(graph, o))} = " for o in operations]
    calls = [expressions.call(o, again=False) for o in operations]
    written = [in_two_steps(expressions, o) or c for o, c in zip(operations, calls, strict=True)]
    statements = [Statement(t + text) for t, text in zip(targets, written, strict=True)]
    apart = [t + text for t, text in zip(targets, calls, strict=True)]
    results = tuple(map(value, graph.writes(operations[-1])))
    return write_part(graph, statements, apart, results, operations)


def _targets_of(graph: Graph, operation: Operation) -> Iterator[str]:
    for output in operation.outputs:
        yield str(value(graph.tensors[output].storage)) if output else "_"


def layout(tensor: Tensor) -> str:
    """Return how a tensor lies in memory, in the example."""
    shape, stride = (",".join(map(str, numbers)) for numbers in (tensor.shape, tensor.stride))
    return f"{tensor.dtype}[{shape}]({stride})+{tensor.offset}"


@dataclass(slots=True)
class _Names:
    """Names in a function of its own, for what blocks keep as for what they have in variables."""

    graph: Graph
    integers: set[str] = field(default_factory=set)  # storages that are handed over as such
    names: dict[tuple[bool, str], str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=lambda: {*_RESERVED, *keyword.kwlist, *dir(builtins)})

    def __getitem__(self, mark: Mark) -> str:
        return self.names[mark.kind == "length", mark.name]

    def add(self, mark: Mark) -> None:
        key = (mark.kind == "length", mark.name)
        if key in self.names:
            return
        hint = mark.name if mark.kind == "length" else hint_of(self.graph, mark.name)
        self.names[key] = free_name(self.graph.layers, hint, mark.name, self.taken)
        self.taken.add(self.names[key])

    def fill(self, text: str) -> str:
        return fill(text, self.__getitem__)

    def fill_compiled(self, text: str) -> str:
        """Fill a text in which masks are numbers: they are compared where they are read."""

        def spell(mark: Mark) -> str:
            name = self[mark]
            if mark.kind == "length" or mark.name not in self.integers:
                return name
            return f"({name} != 0)" if f"{mark}." in text else f"{name} != 0"

        return fill(text, spell)


def _is_length(mark: Mark) -> bool:
    return mark.kind == "length"


def _lengths_of(graph: Graph, given: list[Mark]) -> Iterator[Mark]:
    """Yield the lengths that tensors depend on: code for one of them is none for another."""
    layouts = filter(None, (graph.layouts.get(mark.name) for mark in given))
    names = dict.fromkeys(n for layout in layouts for n in lengths_in(layout.shape))
    yield from map(length, names)


def _target(statement: Statement) -> str:
    target, equals, _ = statement.text.partition(" = ")
    return target if equals else ""
