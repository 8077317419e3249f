"""The names that a generated file may define, and how they give way to the user's.

What the user's file calls by one of these names goes on being called so: the generated parts have
another name for theirs. That holds for imports and builtins, too.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import chain

import libcst as cst

from remat_gen.capture.as_eager.draws import compares_53_bits, draw_mask
from remat_gen.capture.rnn.run_whole import (
    all_layers,
    lstm_layer,
    rnn_backward,
    run_rnn,
    two_state_gru_cell,
)
from remat_gen.capture.rnn.step_by_step import STEPS, run_steps, steps_backward
from remat_gen.codegen.module import guards
from remat_gen.codegen.module.environment import source_of
from remat_gen.codegen.module.merge import bindings
from remat_gen.compile.fused_functions import compiled, fuse, only_result, with_lengths
from remat_gen.ir.errors import UsageError

_DEFINED = re.compile(r"^(?:def|class) (\w+)|^(\w+)(?:: [^=\n]+)? = ", re.MULTILINE)


@cache
def generated_names(
    *, parts: bool = False, offload: bool = False, units: bool = False, rungs: bool = False
) -> frozenset[str]:
    """Return the names of helpers, tables and guards; of what compiles, is sent, or is a unit's.

    With `rungs` those of the choice between programs as well.
    """
    templates = ["helpers.py.jinja", "kept.py.jinja", *["offload.py.jinja"] * offload]
    templates += ["units.py.jinja"] * units + ["rungs.py.jinja"] * rungs
    copied = [guards.sources(held=True), source_of(draw_mask, compares_53_bits)]
    copied.append(source_of(run_rnn, rnn_backward, run_steps, steps_backward))
    copied.append(source_of(all_layers, lstm_layer, two_state_gru_cell, *STEPS.values()))
    if parts:
        templates.append("parts.py.jinja")
        copied.append(source_of(compiled, fuse, with_lengths, only_result))
    folder = files("remat_gen.templates")
    texts = [folder.joinpath(name).read_text(encoding="utf-8") for name in templates]
    found = _DEFINED.findall("\n".join([*texts, *copied]))
    return frozenset(name for pair in found for name in pair if name)


_FIXED = ("torch", "nn", "Any", "TYPE_CHECKING", "PlannedBlock", "PlannedStep")


@dataclass(frozen=True, slots=True)
class Ours:
    """What goes into the user's file, all of it before it is there.

    `imports` and `after`, which names torch's operators, and `parts`, definitions that call nothing
    of the user's. `planned` are texts that do, so that their names stay.
    """

    imports: tuple[str, ...]
    after: str
    parts: list[str]
    planned: str

    def apart_from(self, source: str, namespace: Mapping[str, object], names: set[str]) -> Ours:
        """Return it with other names for what the user's file has another object for.

        `names` are those that the parts may define.

        Raises:
            UsageError: a name that cannot be another is in the way.
        """
        clashes = list(self._clashes(source, namespace, names))
        fixed = {*_FIXED, *_called(self.planned)}
        known = names | self._bound().keys()
        calls = {*re.findall(r"(?<![.\w])(\w+)[(\[]", self.planned)}  # else a variable of its own
        if stays := [n for n in clashes if n in fixed and (n in known or n in calls)]:
            raise UsageError(
                f"the model's file defines {', '.join(stays)}, which the generated code defines "
                "too: rename it"
            )
        if not clashes:
            return self
        taken = {*namespace, *names_bound(source), *known, *dir(builtins)}
        new = {name: free(name, taken) for name in clashes}
        renaming = _Renaming(new)
        own = [cst.parse_module(text).visit(renaming).code for text in (self.after, *self.parts)]
        python = [f"from builtins import {n} as {new[n]}" for n in clashes if n not in known]
        imports = [_renamed_import(line, new) for line in self.imports]
        return Ours((*imports, *python), own[0], own[1:], self.planned)

    def _bound(self) -> dict[str, str]:
        """Return what the imports and `after` bind, by what."""
        name, _, path = self.after.partition(" = ")
        return {name: path} | bindings("\n".join(self.imports))

    def _clashes(
        self, source: str, namespace: Mapping[str, object], names: set[str]
    ) -> Iterator[str]:
        """Yield the names that the user's file has for something else, before or as it runs."""
        bound, written = self._bound(), bindings(source)
        called = _called("\n".join(self.parts))
        users = {name for name in (*names_bound(source), *namespace) if name[:2] != "__"}
        for name in sorted(users | bound.keys()):
            there = name in namespace
            if name in names:
                yield name
            elif name in bound and name in users:
                path = bound[name]
                same = namespace[name] is _found(path) if there else written.get(name) == path
                yield from [name] * (not same)
            elif name in called and hasattr(builtins, name) and name in users:
                same = there and namespace[name] is getattr(builtins, name)
                yield from [name] * (not same)


def _called(text: str) -> set[str]:
    """Return the words of a text that may be names: neither attributes nor comments."""
    return set(re.findall(r"(?<![.\w])[^\W\d]\w*", re.sub("#.*", "", text)))


def _found(path: str) -> object:
    """Return what an import of `torch.nn.functional` or `typing.Any` binds, as far as is known."""
    words = path.split(".")
    for n in range(len(words), 0, -1):
        found: object = sys.modules.get(".".join(words[:n]))
        if found is not None:
            for word in words[n:]:
                found = getattr(found, word, None)
            return found
    return None


def free(name: str, taken: Container[str]) -> str:
    """Return a name that is not taken, with underscores behind it where needed."""
    while name in taken:
        name += "_"
    return name


def _renamed_import(line: str, new: Mapping[str, str]) -> str:
    statement = ast.parse(line).body[0]
    if isinstance(statement, ast.Import | ast.ImportFrom):
        for alias in statement.names:
            alias.asname = new.get(alias.asname or alias.name, alias.asname)
    return ast.unparse(statement)


@dataclass
class _Renaming(cst.CSTTransformer):
    """Gives names of a module other ones; attributes and keywords of calls stay."""

    new: Mapping[str, str]
    kept: set[cst.CSTNode] = field(default_factory=set)

    def visit_Attribute(self, node: cst.Attribute) -> None:
        self.kept.add(node.attr)

    def visit_Arg(self, node: cst.Arg) -> None:
        if node.keyword is not None:
            self.kept.add(node.keyword)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        name = original_node.value
        stays = original_node in self.kept or name not in self.new
        return updated_node if stays else updated_node.with_changes(value=self.new[name])


def names_bound(source: str) -> set[str]:
    """Return the names that a file binds at its top level, or a function of it as `global`."""
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
            children = []
            inside = (n.names for n in ast.walk(node) if isinstance(n, ast.Global))
            found.update(chain.from_iterable(inside))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= bindings(ast.unparse(node)).keys()
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        waiting += children
    return found
