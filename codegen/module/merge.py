"""libcst: the planned forward and the blocks go into the user's source, which stays as it is."""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import libcst as cst

from remat_gen.capture.load.named_calls import named_call
from remat_gen.ir.errors import EmitError, UsageError

Statements: TypeAlias = Iterable[cst.BaseStatement | cst.BaseSmallStatement]


@dataclass(frozen=True, slots=True)
class Signature:
    """The user's own `forward`: its parameters and return annotation as written."""

    parameters: str
    returns: str

    @property
    def names(self) -> list[str]:
        """Return the names of the parameters, in order."""
        (function,) = ast.parse(f"def forward({self.parameters}): ...").body
        assert isinstance(function, ast.FunctionDef)
        a = function.args
        stars = [[a.vararg] if a.vararg else [], [a.kwarg] if a.kwarg else []]
        every = *a.posonlyargs, *a.args, *stars[0], *a.kwonlyargs, *stars[1]
        return [parameter.arg for parameter in every]


def forward_signature(source: str, class_name: str) -> Signature | None:
    """Return the signature of a class's forward, or None where the class does not define one."""
    found = _find_class(cst.parse_module(source), class_name)
    method = _forward_of(found) if found else None
    if method is None:
        return None
    empty = cst.Module([])
    returns = f" -> {empty.code_for_node(method.returns.annotation)}" if method.returns else ""
    parameters = method.params.with_changes()
    return Signature(empty.code_for_node(parameters).strip().rstrip(","), returns)


@contextlib.contextmanager
def _deep_refused() -> Iterator[None]:
    """Refuse what libcst, which calls itself for each level of an expression, cannot write.

    Raises:
        UsageError: it is deeper than Python's limit on recursion lets it go.
    """
    try:
        yield
    except RecursionError as error:
        raise UsageError(
            "the model's file has an expression that is too deep to be copied: break it up"
        ) from error


@_deep_refused()
def replace_forward(source: str, class_name: str, planned: str) -> str:
    """Rename a class's forward to `forward_eager` and put the planned one behind it."""
    own = cst.parse_module(planned).body

    def with_planned(body: Statements) -> Statements:
        for statement in body:
            if isinstance(statement, cst.FunctionDef) and statement.name.value == "forward":
                yield statement.with_changes(name=cst.Name("forward_eager"))
                yield from map(_spaced, own)
            else:
                yield statement

    module = cst.parse_module(source)
    replaced = module.visit(InClass(class_name, with_planned))
    if replaced.deep_equals(module):
        raise EmitError(f"class {class_name} has no forward to replace")
    return replaced.code


class InClass(cst.CSTTransformer):
    """Changes what stands in a class of the file that has a name."""

    def __init__(self, class_name: str, change: Callable[[Statements], Statements]) -> None:
        self.class_name, self.change, self.depth = class_name, change, 0

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
        body = list(self.change(updated_node.body.body))
        return updated_node.with_changes(body=updated_node.body.with_changes(body=body))


def _spaced(
    statement: cst.SimpleStatementLine | cst.BaseCompoundStatement,
) -> cst.BaseStatement:
    return statement.with_changes(leading_lines=[cst.EmptyLine(indent=False)])


@_deep_refused()
def wrap_builder(
    source: str, builder: str, returns: str, told: str, then: Sequence[str]
) -> tuple[str, str]:
    """Return the source with the builder renamed, and the function that takes its name.

    `returns` is the class of what it builds, `then` are the lines that the `model` goes through.

    Raises:
        UsageError: the builder is no function of the file's.
    """
    name = named_call(builder, "--model").name
    found = [s for s in ast.parse(source).body if isinstance(s, ast.FunctionDef) and s.name == name]
    if not found:
        raise UsageError(
            f"{name} is no function of the model's file, which the generated file would "
            f"wrap: write `def build_model()` that returns the {returns}"
        )
    taken = found[-1].args
    wrapper = (
        f"def {name}({ast.unparse(taken)}) -> nn.Module:\n"
        f'    """{told}"""\n'
        f"    model = {name}_eager({', '.join(_passed_on(taken))})\n"
        + "".join(f"    {line}\n" for line in then)
        + "    return model\n"
    )
    return _rename_function(source, name, f"{name}_eager"), wrapper


def _passed_on(taken: ast.arguments) -> list[str]:
    several = [f"*{taken.vararg.arg}"] if taken.vararg else []
    named = [f"**{taken.kwarg.arg}"] if taken.kwarg else []
    return [
        *(a.arg for a in (*taken.posonlyargs, *taken.args)),
        *several,
        *(f"{a.arg}={a.arg}" for a in taken.kwonlyargs),
        *named,
    ]


def _rename_function(source: str, name: str, new_name: str) -> str:
    """Rename a top-level function's definition (calls to it keep the old name)."""
    module = cst.parse_module(source)
    body = [
        s.with_changes(name=cst.Name(new_name))
        if isinstance(s, cst.FunctionDef) and s.name.value == name
        else s
        for s in module.body
    ]
    return module.with_changes(body=body).code


def add_imports(source: str, lines: tuple[str, ...], after: str = "") -> str:
    """Put imports behind the user's own, leaving out those that are there; then `after`."""
    module = cst.parse_module(source)
    position = _behind_imports(module)
    before = cst.Module(module.body[:position]).code
    had = bindings(before, inside=False)
    missing = [line for line in lines if not bindings(line).items() <= had.items()]
    header, footer = list(module.body[:position]), list(module.body[position:])
    added: list[cst.BaseStatement] = [cst.parse_statement(line) for line in missing]
    if after:
        added.append(_spaced(cst.parse_statement(after)))
    return module.with_changes(body=[*header, *added, *footer]).code


def insert_before_main(source: str, text: str) -> str:
    """Append definitions to a file, but before `if __name__ == "__main__":`, which may use them.

    One that stands before the imports does not.
    """
    module = cst.parse_module(source)
    first, end = _behind_imports(module), len(module.body)
    for i, statement in enumerate(module.body[first:], first):
        if isinstance(statement, cst.If) and "__name__" in module.code_for_node(statement.test):
            end = i
            break
    before = module.with_changes(body=module.body[:end], footer=[]).code
    after = cst.Module([*module.body[end:]], footer=module.footer).code
    return f"{before.rstrip()}\n\n\n{text.strip()}\n\n\n{after.lstrip()}".rstrip() + "\n"


def names_in(source: str) -> frozenset[str]:
    """Return every name that a file binds or uses, so that new ones stay clear of them."""
    tree = ast.parse(source)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
    return frozenset(names)


def _find_class(module: cst.Module, name: str) -> cst.ClassDef | None:
    classes = (s for s in module.body if isinstance(s, cst.ClassDef))
    return next((c for c in classes if c.name.value == name), None)


def _forward_of(found: cst.ClassDef) -> cst.FunctionDef | None:
    methods = (s for s in found.body.body if isinstance(s, cst.FunctionDef))
    return next((m for m in methods if m.name.value == "forward"), None)


def bindings(source: str, *, inside: bool = True) -> dict[str, str]:
    """Return what imports bind: `{"F": "torch.nn.functional"}`; `inside` functions, too."""
    tree, found = ast.parse(source), {}
    for node in ast.walk(tree) if inside else tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.partition(".")[0]
                found[bound] = alias.name if alias.asname else bound
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def refuse_unreachable(kind: type, namespace: Mapping[str, object]) -> None:
    """Raise unless a subclass of the model's class can be written.

    Raises:
        UsageError: the class is defined inside a function.
    """
    module = sys.modules.get(kind.__module__)
    imported = module is not None and getattr(module, kind.__name__, None) is kind
    if namespace.get(kind.__name__) is not kind and not imported:
        raise UsageError(
            f"class {kind.__name__} is not defined at the top level of its module, so that the "
            "generated file cannot name it: move it there"
        )


def _behind_imports(module: cst.Module) -> int:
    """Return the position behind the last import that stands before any definition."""
    position = 0
    for i, statement in enumerate(module.body):
        if isinstance(statement, cst.ClassDef | cst.FunctionDef):
            break
        first = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
        docstring = isinstance(first, cst.Expr) and isinstance(
            first.value, cst.SimpleString | cst.ConcatenatedString
        )
        if isinstance(first, cst.Import | cst.ImportFrom) or (docstring and i == 0):
            position = i + 1
    return position
