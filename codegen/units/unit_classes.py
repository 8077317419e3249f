"""The programs of one kind of units as classes: each is a block that autograd sees alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remat_gen.capture.units.unit_kinds import Kind
from remat_gen.codegen.classes.arrange import BlockClass, group
from remat_gen.codegen.classes.block_fields import block_fields
from remat_gen.codegen.classes.block_text import RESERVED, Writer
from remat_gen.codegen.classes.kept_names import KeptNames
from remat_gen.codegen.classes.shared_views import ViewHelper, share_views
from remat_gen.codegen.expressions.called_kernels import kernels_of
from remat_gen.codegen.expressions.kernel_functions import Kernel
from remat_gen.codegen.module.environment import render
from remat_gen.codegen.module.generated_names import generated_names
from remat_gen.codegen.module.schedule_table import shorten
from remat_gen.codegen.statements.statements import Body
from remat_gen.compile.fusing import write_fused
from remat_gen.ir.byte_text import size
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.schedule import Schedule


@dataclass(frozen=True, slots=True)
class UnitProgram:
    """What some units of a kind run; the schedule has one block."""

    paths: tuple[str, ...]
    problem: Problem
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class ProgramText:
    """A program as a class, with what its planned forward and the table say of it."""

    name: str
    program: UnitProgram
    block_class: BlockClass
    writer: Writer
    text: str


@dataclass(frozen=True, slots=True)
class KindText:
    """All programs of a kind as classes, and the functions that they call."""

    kind: Kind
    programs: tuple[ProgramText, ...]
    views: tuple[ViewHelper, ...]
    kernels: tuple[Kernel, ...]

    def table(self) -> tuple[str, ...]:
        """Return the lines above the planned forward: a row for each program."""
        rows = [("units", "retained", "rematerialised", "retained bytes of each")]
        rows += [_row(program) for program in self.programs]
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        return tuple(
            f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:<{widths[2]}}  {d}".rstrip()
            for a, b, c, d in rows
        )


def kind_text(
    kind: Kind, programs: Sequence[UnitProgram], names: Sequence[str], taken: frozenset[str]
) -> KindText:
    """Write the programs of a kind as classes; `taken` are names that functions must not have."""
    graph = kind.traced.graph
    found = [_body(kind, program, taken) for program in programs]
    bodies, views = share_views(graph, tuple(found), taken | RESERVED)
    kernels = tuple(kernels_of(graph, taken).values())
    generated = generated_names(units=True)
    helpers = generated.union((v.name for v in views), (k.name for k in kernels))
    triples = zip(names, programs, bodies, strict=True)
    written = (_written(kind, *each, helpers) for each in triples)
    texts = tuple(written)
    called = [k for k in kernels if any(f"{k.name}(" in text.text for text in texts)]
    return KindText(kind, texts, views, tuple(called))


def _body(kind: Kind, program: UnitProgram, taken: frozenset[str]) -> Body:
    (body,) = write_fused(kind.traced.graph, program.problem, program.schedule, {}, taken).bodies
    return body


def _written(
    kind: Kind, name: str, program: UnitProgram, body: Body, helpers: frozenset[str]
) -> ProgramText:
    graph = kind.traced.graph
    (block_class,) = group(graph, (body,), kind.unit)
    writer = Writer(graph, block_class, KeptNames(graph, (block_class,)), helpers)
    text = writer.write(name, title(program.paths))
    rendered = render("block.py.jinja", block=block_fields(writer, text))
    return ProgramText(
        name,
        program,
        block_class,
        writer,
        rendered,
    )


def title(paths: Sequence[str]) -> str:
    """Name some units: `h.0 … h.3`; all of them where they are few."""
    return ", ".join(paths) if len(paths) < 3 else f"{paths[0]} … {paths[-1]} ({len(paths)} units)"


def _row(program: ProgramText) -> tuple[str, str, str, str]:
    writer = program.writer
    kept = sum(s.retained for s in program.block_class.body.forward.statements)
    cells = shorten(writer.retained()), shorten(writer.rematerialised())
    return title(program.program.paths), *cells, size(kept) if kept else "-"


@dataclass(frozen=True, slots=True)
class Functions:
    """The functions that programs call: views, and kernels."""

    views: tuple[ViewHelper, ...]
    kernels: tuple[Kernel, ...]


def functions_of(texts: Sequence[KindText]) -> Functions:
    """Return the functions of all kinds, each once."""
    views = {view.name: view for text in texts for view in text.views}
    kernels = {kernel.name: kernel for text in texts for kernel in text.kernels}
    return Functions(tuple(views.values()), tuple(kernels.values()))
