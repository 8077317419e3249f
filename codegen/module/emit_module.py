"""Emit the generated module: the user's source, the planned forward, the blocks, the helpers."""

from __future__ import annotations

import inspect
import itertools
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import nn

from remat_gen.capture.as_eager.draws import compares_53_bits, draw_mask
from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.load.step_context import Autocast
from remat_gen.capture.rnn.run_whole import (
    all_layers,
    lstm_layer,
    rnn_backward,
    run_rnn,
    two_state_gru_cell,
)
from remat_gen.capture.rnn.step_by_step import STEPS, run_steps, steps_backward
from remat_gen.capture.trace.trace import Traced
from remat_gen.codegen.classes.block_text import RESERVED
from remat_gen.codegen.classes.shared_views import share_views
from remat_gen.codegen.expressions.called_kernels import kernels_of
from remat_gen.codegen.expressions.expressions import quoted
from remat_gen.codegen.module import guards
from remat_gen.codegen.module.assumption_tables import Tables, rows_of_fixed
from remat_gen.codegen.module.class_texts import ClassTexts, ProgramText
from remat_gen.codegen.module.environment import render, source_of
from remat_gen.codegen.module.format import tidy
from remat_gen.codegen.module.forward_text import ForwardText, derived_from
from remat_gen.codegen.module.generated_names import Ours, generated_names
from remat_gen.codegen.module.merge import (
    Signature,
    add_imports,
    forward_signature,
    insert_before_main,
    names_in,
    refuse_unreachable,
    replace_forward,
    wrap_builder,
)
from remat_gen.codegen.module.planned_forward import ForwardWriter, ones_of
from remat_gen.codegen.module.programs import (
    Program,
    reads_what_it_writes,
    written_buffers,
    written_inputs,
)
from remat_gen.compile.fused_functions import compiled, fuse, only_result, with_lengths
from remat_gen.compile.fusing import write_fused
from remat_gen.compile.part_names import NamedPart, name_parts
from remat_gen.ir.graph import Graph, Trait, unplanned_outputs
from remat_gen.ir.rung import Rung
from remat_gen.ir.size import Length
from remat_gen.solver.compiled.fused import PartFigures
from remat_gen.solver.compiled.parts import Part
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.schedule import Schedule

ATEN = "aten = torch.ops.aten"
_CONSTANT = "\n    constant = "  # in a block that has outputs without gradient
_KEEPS = "\n    keeps = "  # in one that makes what forward keeps on the model
_TURNS = "\n    turns = "  # in one whose gradients leave in several turns


@dataclass(frozen=True, slots=True)
class Target:
    """What is emitted for: the user's file, the model in it, and where the result goes.

    `builder` is what makes the model, as it is called: a function or a class of the file.
    """

    source: str
    namespace: Mapping[str, object]  # of the user's module as it was imported
    model: nn.Module
    builder: str
    output: Path
    command: str
    device: str  # its kind, torch's word


def emit_body(
    target: Target,
    traced: Traced,
    problem: Problem,
    schedule: Schedule,
    parts: Mapping[Part, PartFigures] = MappingProxyType({}),
    rungs: Sequence[Program] = (),
) -> str:
    """Return the module's text without its header, formatted; `parts` of it are compiled.

    Steps that one of `rungs` admits run the first such program, all others the schedule.

    Raises:
        EmitError: the schedule cannot be printed (a defect).
        UsageError: names of the user's file are in the way.
    """
    graph = traced.graph
    generated = generated_names(parts=bool(parts), offload=bool(problem.link), rungs=bool(rungs))
    taken = names_in(target.source) | target.namespace.keys() | generated
    fused = write_fused(graph, problem, schedule, parts, taken)
    others = [write_fused(graph, r.problem, r.schedule, {}, taken).bodies for r in rungs]
    bodies, views = share_views(graph, sum(others, fused.bodies), taken | RESERVED)
    kernels = kernels_of(graph, taken).values()
    helper_names = frozenset(view.name for view in views) | {k.name for k in kernels}
    named = name_parts(fused.texts.values(), taken | RESERVED | helper_names)
    helper_names |= {part.name for part in named}
    functions = {part.text.key: part.name for part in named}
    in_reach = helper_names | generated
    texts = ClassTexts(graph, target.model, taken | helper_names, in_reach, functions)
    counts = [len(fused.bodies), *map(len, others)]
    ends = list(itertools.accumulate(counts))
    programs = [
        texts.add(bodies[end - count : end], rung)
        for end, count, rung in zip(ends, counts, (None, *(r.rung for r in rungs)), strict=True)
    ]
    forward = _forward(target, traced, programs, [r.rung for r in rungs if r.rung])
    blocks = texts.blocks()
    if named:
        blocks.append(_parts(target, named))
    numbers = any(program.hands_numbers for program in programs)
    shared = _shared(target, traced, rungs)
    said = "\n".join((*blocks, *forward.helped))
    helpers = [helpers_text(target, shared, said, numbers=numbers)]
    called = [k for k in kernels if any(f"{k.name}(" in block for block in blocks)]
    if views or called:
        helpers.insert(0, render("views.py.jinja", helpers=views, kernels=called))
    if problem.link and any("to_host(" in block for block in blocks):
        helpers.insert(0, _offload(target))
    if rungs:
        free = any(r.rung.free_bytes for r in rungs if r.rung)
        helpers.insert(0, _recovery(target, graph, free=free))
    kept = kept_text(blocks)
    text = _merge(target, forward, [kept, *blocks, *helpers], generated)
    return tidy(text, target.source, target.output)


def _shared(target: Target, traced: Traced, rungs: Sequence[Program]) -> Shared:
    first = traced.first
    fresh = first.words(target.model, traced.reads) if first else traced.turned
    filled = first.filled if first else ()
    return Shared(
        Tables.of(target.model, traced.reads, fresh, filled),
        traced.graph.lengths,
        traced.autocast,
        rungs=bool(rungs),
        fixed=tuple(rows_of_fixed(traced.call.fixed)),
        once=reads_what_it_writes(traced.graph),
        loss=any(unplanned_outputs(traced.graph)),
        items=holds_items(traced),
    )


def holds_items(traced: Traced) -> bool:
    """Tell whether forward keeps something in dicts or lists."""
    return any("[" in path for path in (*traced.returned.kept, *traced.unset))


def _forward(
    target: Target,
    traced: Traced,
    programs: Sequence[ProgramText],
    rungs: Sequence[Rung],
) -> ForwardText:
    own, *others = programs
    model = target.model
    writers = [ForwardWriter(traced, model, p.writers, p.names) for p in others]
    pairs = tuple(zip(rungs, writers, strict=True))
    writer = ForwardWriter(traced, model, own.writers, own.names, pairs)
    if _own_class(target) and (signature := signature_of(target, type(model))):
        return writer.write(signature.parameters, signature.returns, target.namespace)
    parameters = str(without_annotations(inspect.signature(type(target.model).forward)))
    forward = writer.write(parameters.strip("()"), " -> Any", target.namespace)
    return derived_from(forward, type(model).__name__, type(model))


def signature_of(target: Target, kind: type[nn.Module]) -> Signature | None:
    """Return the signature of a class's forward as it is written; a decorator may give it another.

    None where the file has no such class with a forward of its own.
    """
    written, given = (
        forward_signature(target.source, kind.__name__),
        inspect.signature(kind.forward),
    )
    if written is None or written.names == [*given.parameters]:
        return written
    return Signature(str(without_annotations(given)).strip("()"), "")


def without_annotations(signature: inspect.Signature) -> inspect.Signature:
    """Return a library's signature with `Any` for its annotations, whose names this file lacks."""
    parameters = [
        p.replace(annotation=inspect.Parameter.empty if p.name == "self" else Any)
        for p in signature.parameters.values()
    ]
    return signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)


def _own_class(target: Target) -> str | None:
    """Return the model's class if the user's file defines it together with its forward."""
    kind = type(target.model)
    if target.namespace.get(kind.__name__) is not kind:
        return None
    return kind.__name__ if forward_signature(target.source, kind.__name__) else None


@dataclass(frozen=True, slots=True)
class Shared:
    """What the blocks of a file share: its tables, what varies, and what steps are called in.

    `units` where it is units that are planned, not the whole model, `rungs` where it has several
    programs. `fixed` are the rows of inputs that are the same in each step. Where forward must run
    `once` in a step no checkpoint around the model may run it again. `loss` where of several
    outputs one has a gradient. `items` where forward keeps something in dicts or lists.
    """

    tables: Tables
    lengths: tuple[Length, ...]
    autocast: Autocast | None
    units: bool = False
    rungs: bool = False
    fixed: tuple[str, ...] = ()
    once: bool = False
    loss: bool = False
    items: bool = False


def helpers_text(target: Target, shared: Shared, blocks: str, *, numbers: bool = False) -> str:
    """Return what the blocks share: tables, guards, and the functions that they call.

    What `blocks` say is all that calls those: what forward compares, too.
    """
    tables = shared.tables
    used = {name for name in generated_names() if f"{name}(" in blocks}
    return render(
        "helpers.py.jinja",
        file=_file(target),
        used=used,
        calls=blocks,
        device=kind_of(target.device),
        later="check_value(step, " in blocks,
        constant=_CONSTANT in blocks,
        turns=_TURNS in blocks,
        strides="self.strides[" in blocks,
        keeps=_KEEPS in blocks,
        ones=bool(ones_of(shared.lengths)),
        numbers=numbers,
        regenerate=quoted(target.command),
        tables=tables,
        guards=guards.sources(
            held=bool(tables.held or tables.also),
            fixed=bool(shared.fixed),
            sets="in_order" in used,
            containers="in_any_container" in used,
            records="by_fields" in used,
        ),
        fixed=shared.fixed,
        loss=shared.loss,
        items=shared.items,
        units=shared.units,
        once=shared.once,
        rungs=shared.rungs,
        draws=source_of(draw_mask, compares_53_bits),
        rnns=source_of(run_rnn, rnn_backward),
        run_steps=source_of(run_steps, steps_backward),
        rnn_parts={
            f.__name__: source_of(f)
            for f in (all_layers, lstm_layer, two_state_gru_cell, *STEPS.values())
        },
        autocast=shared.autocast,
        lengths=[(quoted(str(n)), n.minimum, n.maximum + 1) for n in shared.lengths],
    )


def kept_text(blocks: Sequence[str]) -> str:
    """Return the class that all blocks are derived from."""
    text = "".join(blocks)
    return render(
        "kept.py.jinja",
        constant=_CONSTANT in text,
        turns=_TURNS in text,
        keeps=_KEEPS in text,
    )


def _parts(target: Target, named: tuple[NamedPart, ...]) -> str:
    compiler = source_of(compiled, fuse, with_lengths, only_result).replace(
        "torch.Tensor", "Tensor"
    )
    needs = kind_of(target.device).compiler.removeprefix("a ")
    return render("parts.py.jinja", parts=named, file=_file(target), compiler=compiler, needs=needs)


def _recovery(target: Target, graph: Graph, *, free: bool) -> str:
    return render(
        "rungs.py.jinja",
        file=_file(target),
        device=kind_of(target.device),
        written=textwrap.fill(" ".join(written_buffers(graph)), 96, break_on_hyphens=False),
        inputs=written_inputs(graph),
        free=free,
        draws=any(Trait.RANDOM in operation.traits for operation in graph.operations),
    )


def _offload(target: Target) -> str:
    kind = kind_of(target.device)
    return render("offload.py.jinja", module=kind.module, streams=kind.is_accelerator)


def _file(target: Target) -> str:
    return target.output.name.replace('"', "'").replace("{", "(").replace("}", ")")


def _merge(
    target: Target, forward: ForwardText, parts: list[str], generated: frozenset[str]
) -> str:
    planned = render("forward.py.jinja", forward=forward)
    own, before = _own_class(target), list[str]()
    if own:
        source = replace_forward(target.source, own, planned)
    else:
        kind = type(target.model)
        refuse_unreachable(kind, target.namespace)
        if target.namespace.get(kind.__name__) is not kind:
            forward.imports.setdefault(kind.__module__, set()).add(kind.__name__)
        becomes = f"model.__class__ = Planned{kind.__name__}"
        told = "Build the model, with the planned forward."
        source, wrapper = wrap_builder(
            target.source, target.builder, kind.__name__, told, [becomes]
        )
        before.append(f"{_subclass(kind.__name__, planned)}\n\n{wrapper}")
    imports = imports_of("\n".join([source, *before, *parts]), [forward])
    ours = Ours(imports, ATEN, parts, without_signature(planned, forward))
    ours = ours.apart_from(target.source, target.namespace, {*generated})
    source = add_imports(source, ours.imports, ours.after)
    return insert_before_main(source, "\n\n\n".join(p.strip() for p in (*before, *ours.parts)))


def without_signature(planned: str, forward: ForwardText) -> str:
    """Return a planned forward without what the user wrote of it."""
    return planned.replace(f"({forward.parameters}){forward.returns}:", "", 1)


def _subclass(name: str, planned: str) -> str:
    return (
        f"class Planned{name}({name}):\n"
        f'    """{name}, with a training step that fits the budget."""\n\n'
        f"    forward_eager = {name}.forward\n\n{textwrap.indent(planned, '    ')}\n\n\n"
        f'Planned{name}.__name__ = "{name}"  # by which libraries look up what a model is for\n'
    )


def _has_rnns(text: str) -> bool:
    return "run_rnn(" in text or "run_steps(" in text


def _of_itertools(text: str) -> list[str]:
    seldom = [name for name in ("combinations", "islice") if f"{name}(" in text]
    return sorted(["chain", "compress", *seldom])


def imports_of(text: str, forwards: Sequence[ForwardText]) -> tuple[str, ...]:
    """Return the imports that a module's text needs, and its planned forwards."""
    lines = ["import torch"]
    if "F." in text:
        lines.append("import torch.nn.functional as F")
    lines += ["from torch import Tensor", "from torch import nn"]
    lines.append("from torch._C._dynamo.guards import TensorGuards")
    lines += ["from collections.abc import Callable"] if "Callable[" in text else []
    lines += ["from typing import ParamSpec, TypeVar"] if "@compiled" in text else []
    if "draw_mask(" in text:
        lines.append("import math")
    lines += ["import functools"] if "functools." in text else []
    lines += ["import os"] if "os.sysconf(" in text else []
    lines += ["import hashlib"] if "hashlib." in text else []
    lines += ["import warnings"] if any(f.ones or f.rungs for f in forwards) else []
    lines += ["import math"] if "math." in text and any(f.lengths for f in forwards) else []
    lines += [
        "import operator",
        "import re",
        "import weakref",
        f"from collections.abc import Iterable, Iterator, Mapping{', Sequence' * _has_rnns(text)}",
        "from importlib import import_module",
        f"from itertools import {', '.join(_of_itertools(text))}",
        "from string import Formatter",
        "from types import SimpleNamespace",
        "from typing import TYPE_CHECKING, Any",
    ]
    for forward in forwards:
        for module, names in sorted(forward.imports.items()):
            lines += [f"from {module} import {name}" for name in sorted(names)]
    return tuple(dict.fromkeys(lines))
