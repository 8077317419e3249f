"""Where the user's file builds the model, its units are given what they run."""

from __future__ import annotations

import ast

import libcst as cst

from remat_gen.capture.load.named_calls import named_call
from remat_gen.codegen.module.emit_module import Target
from remat_gen.codegen.module.merge import wrap_builder

_CALL = "plan_units(self)"


def build_with_units(source: str, target: Target) -> str:
    """Return the source in which the model's class, or what builds it, calls `plan_units`.

    Both, where what builds it may put other units into a model that is there.

    Raises:
        UsageError: the file has neither.
    """
    kind = type(target.model)
    if target.namespace.get(kind.__name__) is kind and _defines_class(source, kind.__name__):
        source = cst.parse_module(source).visit(_InInit(kind.__name__)).code
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


class _InInit(cst.CSTTransformer):
    """Let a class's `__init__` end with the call; add one where there is none."""

    def __init__(self, class_name: str) -> None:
        self.class_name = class_name
        self.depth = 0

    def visit_ClassDef(self, node: cst.ClassDef) -> bool:
        self.depth += 1
        return self.depth == 1 and node.name.value == self.class_name

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False

    def leave_ClassDef(
        self, original_node: cst.ClassDef, updated_node: cst.ClassDef
    ) -> cst.ClassDef:
        self.depth -= 1
        if self.depth or original_node.name.value != self.class_name:
            return updated_node
        body = list(updated_node.body.body)
        at = [i for i, s in enumerate(body) if _is_init(s)]
        if at:
            found = body[at[-1]]
            assert isinstance(found, cst.FunctionDef)
            inside = found.body
            if isinstance(inside, cst.SimpleStatementSuite):  # behind its `def`
                inside = cst.IndentedBlock([cst.SimpleStatementLine(inside.body)])
            with_call = [*inside.body, cst.parse_statement(f"{_CALL}\n")]
            body[at[-1]] = found.with_changes(body=inside.with_changes(body=with_call))
        else:
            body.append(
                cst.parse_statement(
                    "def __init__(self, *args: Any, **kwargs: Any) -> None:\n"
                    f"    super().__init__(*args, **kwargs)\n    {_CALL}\n"
                )
            )
        return updated_node.with_changes(body=updated_node.body.with_changes(body=body))


def _is_init(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.FunctionDef) and statement.name.value == "__init__"
