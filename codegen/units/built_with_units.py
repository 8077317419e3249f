"""Where the user's file builds the model, its units are given what they run."""

from __future__ import annotations

import ast

import libcst as cst

from remat_gen.capture.load.named_calls import named_call
from remat_gen.codegen.module.emit_module import Target
from remat_gen.codegen.module.merge import InClass, Statements, wrap_builder

_CALL = "plan_units(self)"


def build_with_units(source: str, target: Target) -> str:
    """Return the source in which the model's class, or what builds it, calls `plan_units`.

    Both, where what builds it may put other units into a model that is there.

    Raises:
        UsageError: the file has neither.
    """
    kind = type(target.model)
    if target.namespace.get(kind.__name__) is kind and _defines_class(source, kind.__name__):
        source = cst.parse_module(source).visit(InClass(kind.__name__, _with_call)).code
        if _returns_fresh(source, named_call(target.builder, "--model").name, kind.__name__):
            return source
    told = "Build the model, with its units planned."
    renamed, wrapper = wrap_builder(
        source, target.builder, kind.__name__, told, ["plan_units(model)"]
    )
    return f"{renamed.rstrip()}\n\n\n{wrapper}"


def _defines_class(source: str, name: str) -> bool:
    return any(isinstance(s, ast.ClassDef) and s.name == name for s in ast.parse(source).body)


def _returns_fresh(source: str, builder: str, kind: str) -> bool:
    """Tell whether a builder returns models as the class makes them, or is the class itself."""
    found = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name == builder
    ]
    returned = [r.value for f in found for r in ast.walk(f) if isinstance(r, ast.Return)]
    calls = [value.func for value in returned if isinstance(value, ast.Call)]
    named = [name for name in calls if isinstance(name, ast.Name) and name.id == kind]
    return len(named) == len(returned)


def _with_call(body: Statements) -> list[cst.BaseStatement | cst.BaseSmallStatement]:
    """Let a class's `__init__` end with the call; add one where there is none."""
    body = list(body)
    for i, found in reversed(list(enumerate(body))):
        if isinstance(found, cst.FunctionDef) and found.name.value == "__init__":
            inside = found.body
            if isinstance(inside, cst.SimpleStatementSuite):  # behind its `def`
                inside = cst.IndentedBlock([cst.SimpleStatementLine(inside.body)])
            with_call = [*inside.body, cst.parse_statement(f"{_CALL}\n")]
            body[i] = found.with_changes(body=inside.with_changes(body=with_call))
            return body
    own = cst.parse_statement(
        "def __init__(self, *args: Any, **kwargs: Any) -> None:\n"
        f"    super().__init__(*args, **kwargs)\n    {_CALL}\n"
    )
    return [*body, own]
