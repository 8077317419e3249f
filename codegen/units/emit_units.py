"""Emit a module whose units are planned: its own forward stays, and calls them as before."""

from __future__ import annotations

import inspect
import itertools
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from torch import nn

from remat_gen.capture.units.sums_apart import later_summands
from remat_gen.capture.units.unit_kinds import Kind
from remat_gen.capture.units.unit_step import UnitStep
from remat_gen.codegen.expressions.called_kernels import kernels_of
from remat_gen.codegen.expressions.expressions import quoted
from remat_gen.codegen.module.assumption_tables import Tables, grouped
from remat_gen.codegen.module.emit_module import (
    ATEN,
    Shared,
    Target,
    helpers_text,
    holds_items,
    imports_of,
    kept_text,
    signature_of,
    without_annotations,
    without_signature,
)
from remat_gen.codegen.module.environment import render
from remat_gen.codegen.module.format import tidy
from remat_gen.codegen.module.forward_text import ForwardText, derived_from
from remat_gen.codegen.module.generated_names import Ours, generated_names
from remat_gen.codegen.module.merge import (
    add_imports,
    forward_signature,
    insert_before_main,
    names_in,
    replace_forward,
)
from remat_gen.codegen.module.planned_forward import ForwardWriter
from remat_gen.codegen.units.built_with_units import build_with_units
from remat_gen.codegen.units.unit_classes import KindText, UnitProgram, functions_of, kind_text
from remat_gen.ir.errors import UsageError

_NAMES = generated_names(units=True)
Paths: TypeAlias = tuple[str, ...]  # of the units of a kind


@dataclass(frozen=True, slots=True)
class UnitClass:
    """The class that units are of: the user's `own`, or one that is derived from theirs.

    `here` where that is a class of the user's file, else it is imported as `base`. `inherits` where
    a class that it is derived from has `forward_eager`. Units of one class stay of one class, which
    people ask for; where they are of several kinds it has a method for each of them: `methods`.
    """

    name: str
    kind: type[nn.Module]
    own: bool
    methods: Mapping[Paths, str]
    here: bool = True
    base: str = ""
    inherits: bool = False


def emit_units(
    target: Target, step: UnitStep, programs: Sequence[tuple[Kind, Sequence[UnitProgram]]]
) -> str:
    """Return the module's text without its header, formatted.

    Raises:
        EmitError: a schedule cannot be printed (a defect).
        UsageError: names of the user's file are in the way, or nothing builds the model there.
    """
    classes = list(_classes(target, [kind for kind, _ in programs]))
    of = {paths: found for found in classes for paths in found.methods}
    taken = names_in(target.source) | target.namespace.keys() | _NAMES | {c.name for c in classes}
    texts: list[KindText] = []
    for kind, its_programs in programs:
        names = list(itertools.islice(_program_names(kind, taken), len(its_programs)))
        taken |= set(names) | _other_functions(kind, taken, texts)
        texts.append(kind_text(kind, its_programs, names, taken))
    source, derived, said = target.source, list[str](), list[str]()
    forwards = [_forward(target, of[text.kind.paths], text) for text in texts]
    for found in classes:
        own = [f for f, text in zip(forwards, texts, strict=True) if of[text.kind.paths] is found]
        rendered = [render("forward.py.jinja", forward=forward) for forward in own]
        said += map(without_signature, rendered, own)
        planned = "\n\n".join([*_chosen(own), *rendered])
        if found.own:
            source = replace_forward(source, found.name, planned)
        else:
            derived.append(_derived(found, planned))
    source = build_with_units(source, target)
    blocks = [program.text for text in texts for program in text.programs]
    several = any(len(found.methods) > 1 for found in classes)
    units = list(_rows(target.model, of, texts))
    rows = render("units.py.jinja", units=units, several=several)
    called = functions_of(texts)
    functions = render("views.py.jinja", helpers=called.views, kernels=called.kernels)
    compared = [text for f in forwards for text in f.helped]
    helpers = helpers_text(target, _shared(target.model, step), "\n".join((*blocks, *compared)))
    imports = imports_of("\n".join([source, *derived, *blocks, functions, rows, helpers]), forwards)
    planned = "\n".join([*said, rows])
    parts = [kept_text(blocks), *blocks, functions, helpers]
    ours = Ours((*imports, *_bases(classes)), ATEN, parts, planned)
    ours = ours.apart_from(target.source, target.namespace, {*_NAMES})
    source = add_imports(source, ours.imports, ours.after)
    parts = [*derived, *ours.parts[:-1], rows, ours.parts[-1]]
    whole = insert_before_main(source, "\n\n\n".join(part.strip() for part in parts))
    return tidy(whole, target.source, target.output)


def _bases(classes: Sequence[UnitClass]) -> Iterator[str]:
    """Yield the imports of units' classes that the file does not have, under names of their own."""
    for c in classes:
        if not c.here:
            yield f"from {c.kind.__module__} import {c.kind.__name__} as {c.base}"


def _program_names(kind: Kind, taken: frozenset[str]) -> Iterator[str]:
    """Yield names for the classes of a kind's programs: `LayerProgram`, `LayerProgram2`."""
    names = _numbered(f"{type(kind.unit).__name__}Program")
    yield from (name for name in names if name not in taken)


def _numbered(name: str) -> Iterator[str]:
    """Yield `Block`, `Block2`, …"""
    return itertools.chain([name], (f"{name}{i}" for i in itertools.count(2)))


def _other_functions(kind: Kind, taken: frozenset[str], texts: Sequence[KindText]) -> set[str]:
    """Return the names of functions of other kinds that do something else than a kind's own."""
    found = functions_of(texts)
    views = {view.name for view in found.views}
    known = {kernel.name: kernel.source() for kernel in found.kernels}
    own = {kernel.name: kernel.source() for kernel in kernels_of(kind.traced.graph, taken).values()}
    return views | {name for name, source in known.items() if own.get(name, source) != source}


def _shared(model: nn.Module, step: UnitStep) -> Shared:
    traced = [kind.traced for kind in step.kinds]
    reads = {path: kind.traced.reads for kind in step.kinds for path in kind.paths}
    lengths = {str(length): length for each in traced for length in each.graph.lengths}
    tables = Tables.of_units(model, reads)
    items = any(map(holds_items, traced))
    return Shared(tables, tuple(lengths.values()), step.autocast, units=True, items=items)


def _classes(target: Target, kinds: Sequence[Kind]) -> Iterator[UnitClass]:
    """Yield each class of units: the user's own, if its forward can be replaced.

    Raises:
        UsageError: a class calls the forward of another one that is replaced as well.
    """
    types: dict[type[nn.Module], list[Kind]] = {}
    for kind in kinds:
        types.setdefault(type(kind.unit), []).append(kind)
    here = {of for of in types if target.namespace.get(of.__name__) is of}
    replaced = {of for of in here if forward_signature(target.source, of.__name__) is not None}
    replaced -= _run_eagerly_as_well(target.model, replaced, kinds)
    _refuse_calls_up(replaced)
    taken = set(names_in(target.source))
    for of, own in types.items():
        methods = _methods(of, own)
        if of in replaced:
            yield UnitClass(of.__name__, of, own=True, methods=methods)
            continue
        name = _free(of.__name__, taken)
        yield UnitClass(
            name,
            of,
            own=False,
            methods=methods,
            here=of in here,
            base=of.__name__ if of in here else _free(f"{of.__name__}Eager", taken),
            inherits=_forward_owner(of) in replaced,
        )


def _run_eagerly_as_well(
    model: nn.Module, classes: Collection[type[nn.Module]], kinds: Sequence[Kind]
) -> set[type[nn.Module]]:
    """Return the classes whose forward modules run that are no units: it stays as it is."""
    units = {id(model.get_submodule(path)) for kind in kinds for path in kind.paths}
    others = [type(module).forward for module in model.modules() if id(module) not in units]
    return {of for of in classes if of.forward in others}


def _methods(of: type[nn.Module], kinds: Sequence[Kind]) -> dict[Paths, str]:
    """Return the name of the method that units of each kind run."""
    if len(kinds) == 1:
        return {kinds[0].paths: "forward"}
    free = (name for name in _numbered("forward_planned") if not hasattr(of, name))
    return {kind.paths: name for kind, name in zip(kinds, free, strict=False)}


def _chosen(forwards: Sequence[ForwardText]) -> list[str]:
    """Write the forward of a class whose units are of several kinds."""
    several = [render("chosen_forward.py.jinja", forward=forward) for forward in forwards[:1]]
    return several * (len(forwards) > 1)


def _free(name: str, taken: set[str]) -> str:
    """Take the first such name that is not taken."""
    free = next(n for n in _numbered(name) if n not in taken)
    taken.add(free)
    return free


def _forward_owner(of: type[nn.Module]) -> type:
    """Return the class that a class has its forward from."""
    return next(each for each in of.__mro__ if "forward" in vars(each))


def _refuse_calls_up(replaced: Collection[type[nn.Module]]) -> None:
    """Refuse units whose forward calls that of another unit's class: the planned one is there."""
    for of in replaced:
        above = next((each for each in of.__mro__[1:] if each in replaced), None)
        code = getattr(inspect.unwrap(of.forward), "__code__", None)
        called = set(code.co_names) if code else set()
        if above and "forward" in called and called & {"super", above.__name__}:
            raise UsageError(
                f"--units: {of.__name__}.forward calls the forward of {above.__name__}, whose "
                "units are planned too: name the units of one of both"
            )


def _forward(target: Target, found: UnitClass, text: KindText) -> ForwardText:
    first = text.programs[0]
    call = {first.block_class: "planned_program(self)"}
    writer = ForwardWriter(
        text.kind.traced, text.kind.unit, {first.block_class: first.writer}, call
    )
    own = found.own
    signature = signature_of(target, found.kind) if own else None
    if signature:
        forward = writer.write(signature.parameters, signature.returns, target.namespace)
    else:
        parameters = str(without_annotations(inspect.signature(found.kind.forward)))
        forward = writer.write(parameters.strip("()"), " -> Any", target.namespace)
        forward = derived_from(forward, found.base, found.kind)
    graph = text.kind.traced.graph
    later = later_summands(graph)
    behind = [g.of for g in graph.gradients if g.tensor in later]
    table = [*text.table()]
    if behind:
        names = ", ".join(first.writer.names[tensor] for tensor in behind)
        table.append(
            f"{names}: for more summands of a gradient, which autograd adds in eager's order"
        )
    return replace(forward, table=tuple(table), method=found.methods[text.kind.paths])


def _derived(found: UnitClass, planned: str) -> str:
    """Write a class whose forward is planned, of one that stays as it is."""
    eager = "" if found.inherits else f"    forward_eager = {found.base}.forward\n\n"
    name = found.kind.__name__
    named = f'\n\n{found.name}.__name__ = "{name}"  # to who asks for layers by that\n'
    return (
        f"class {found.name}({found.base}):\n"
        f'    """A {found.kind.__name__} whose training step is planned."""\n\n'
        f"{eager}{textwrap.indent(planned, '    ')}{named * (found.name != name)}"
    )


def _rows(
    model: nn.Module, of: Mapping[Paths, UnitClass], texts: Sequence[KindText]
) -> Iterator[tuple[str, str, str, str]]:
    """Yield the rows of the table of units: paths, class, program, and the method that runs it."""
    said = {
        path: (of[text.kind.paths].name, program.name, of[text.kind.paths].methods[text.kind.paths])
        for text in texts
        for program in text.programs
        for path in program.program.paths
    }
    modules = [name for name, _ in model.named_modules(remove_duplicate=False)]
    for row, words in grouped(modules, {p: said[p] for p in modules if p in said}):
        kind, program, method = words
        yield quoted(row), kind, program, method
