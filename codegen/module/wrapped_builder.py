"""The user's function that builds the model, called by one of the same name and arguments."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from remat_gen.codegen.module.merge import rename_function
from remat_gen.ir.errors import UsageError


def wrap_builder(
    source: str, builder: str, returns: str, told: str, then: Sequence[str]
) -> tuple[str, str]:
    """Return the source with the builder renamed, and the function that takes its name.

    `returns` is the class of what it builds, `then` are the lines that the `model` goes through.

    Raises:
        UsageError: the builder is no function of the file's.
    """
    name = builder.partition("(")[0]
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
    return rename_function(source, name, f"{name}_eager"), wrapper


def _passed_on(taken: ast.arguments) -> list[str]:
    several = [f"*{taken.vararg.arg}"] if taken.vararg else []
    named = [f"**{taken.kwarg.arg}"] if taken.kwarg else []
    return [
        *(a.arg for a in (*taken.posonlyargs, *taken.args)),
        *several,
        *(f"{a.arg}={a.arg}" for a in taken.kwonlyargs),
        *named,
    ]
