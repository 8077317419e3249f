"""Text from the user's file is data: no name, key or line can become code of the generated file."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from emitting import HEAD, assert_bitwise, at_share, emit

from remat_gen.codegen.expressions.expressions import quoted
from remat_gen.codegen.expressions.prose import prose, user_line
from remat_gen.ir.byte_text import size
from remat_gen.ir.errors import UsageError
from remat_gen.ir.graph import Source

KEYS = [
    "a b",
    "c'd",
    'e"f',
    "back\\slash",
    "class",
    "é{{x}}",
    "{% raw %}",
    "new\nline",
    "form\x0cfeed",
    "a]b[",
    "__x",
    "self",
    "#",
    "1a",
    "f(){}",
    "\u2028",
    "'''",
    '"""',
    "x = 1; import os",
]

TWO_LAYERS = """
class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.d = nn.ModuleDict({{{key!a}: nn.Linear(8, 8), "z": nn.Linear(8, 8)}})

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.d.values():
            x = layer(x).tanh()
        return x.sum()


def build_model() -> nn.Module:
    return Net()


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(4, 8),)
"""


@pytest.mark.parametrize("key", KEYS)
def test_any_module_key(tmp_path: Path, key: str) -> None:
    plain = emit(tmp_path, HEAD + TWO_LAYERS.format(key="plain"), at_share("rotor", 0.0))
    made = emit(tmp_path, HEAD + TWO_LAYERS.format(key=key), at_share("rotor", 0.0))
    assert_bitwise(made)
    assert calls(made.tree()) == calls(plain.tree())


def calls(tree: ast.Module) -> list[str]:
    """Return what is called in a generated file, the user's own code aside, and lists of words."""
    blocks = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name != "Net"]
    called = [n.func for block in blocks for n in ast.walk(block) if isinstance(n, ast.Call)]
    names = [n.attr if isinstance(n, ast.Attribute) else ast.unparse(n) for n in called]
    return sorted(name for name in names if name != "split")


HOSTILE_LINES = [
    'y = self.lin(x) * {"}}{% raw %}": 2.0}["}}{% raw %}"]  # """ {{ 7 * 7 }} \\',
    "y = self.lin(x) * len('\\\\')  # \\N{BULLET} \x0c '''",
    "größe = self.lin(x); y = größe * 2  # ⟦value:1:x⟧ \ue000value\ue001-1\ue001x\ue002",
]


@pytest.mark.parametrize("line", HOSTILE_LINES)
def test_any_line_of_forward(tmp_path: Path, line: str) -> None:
    text = one_layer(line + "\nreturn y.sum()")
    assert_bitwise(emit(tmp_path, text))


def one_layer(forward: str, parameters: str = "x", inputs: str = "(torch.randn(4, 8),)") -> str:
    lines = "".join(f"        {line}\n" for line in forward.split("\n"))
    return (
        f"{HEAD}\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.lin = nn.Linear(8, 8)\n\n    def forward(self, {parameters}):\n{lines}\n\n"
        f"def build_model():\n    return Net()\n\n\ndef example_inputs():\n    return {inputs}\n"
    )


@pytest.mark.parametrize(
    "name", ["list", "range", "step", "token", "aten", "ctx", "Kept", "lambda_"]
)
def test_any_name_of_a_variable(tmp_path: Path, name: str) -> None:
    assert_bitwise(emit(tmp_path, one_layer(f"{name} = self.lin(x).tanh()\nreturn {name}")))


@pytest.mark.parametrize(
    "name", ["step", "known", "parameters", "at", "self_", "p", "g", "block", "places", "F", "aten"]
)
def test_any_name_of_an_input(tmp_path: Path, name: str) -> None:
    text = one_layer(f"return self.lin({name}) * {name}", name)
    assert_bitwise(emit(tmp_path, text))


@pytest.mark.parametrize("name", ["torch", "PlannedStep", "check_planned"])
def test_an_input_that_hides_what_is_called_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}.*rename"):
        emit(tmp_path, one_layer(f"return self.lin({name})", name))


def test_a_string_argument_is_data(tmp_path: Path) -> None:
    mode = 'it\'s "q" \\ {{x}} \n#'
    text = one_layer(
        f"return self.lin(x) if mode == {mode!r} else x",
        "x, mode",
        f"((torch.randn(4, 8),), {{'mode': {mode!r}}})",
    )
    assert_bitwise(emit(tmp_path, text))


@pytest.mark.parametrize("text", KEYS)
def test_quoted_is_read_back_as_it_was(text: str) -> None:
    assert ast.literal_eval(quoted(text)) == text
    assert quoted(text).isascii()


@pytest.mark.parametrize("text", KEYS)
def test_prose_ends_no_comment_and_no_docstring(text: str) -> None:
    written = prose(text)
    assert ast.literal_eval(f'"""{written}."""') == f"{written}."
    assert len(f"# {written}".splitlines()) == 1


def test_a_users_line_stands_as_it_was_written() -> None:
    line = "x = x.masked_fill(~mask, float(\"-inf\"))  # '\\n'"
    assert user_line(Source("a.py", 3, line)) == f"a.py:3  {line}"


@pytest.mark.parametrize("text", KEYS)
def test_a_users_line_ends_no_comment(text: str) -> None:
    assert len(f"# {user_line(Source('a.py', 3, text))}".splitlines()) == 1


def test_a_users_line_is_cut_to_the_page() -> None:
    assert user_line(Source("net.py", 3, "x" * 200)) == "net.py:3  " + "x" * 77 + "…"
    assert user_line(Source("", 0, "")) == ""


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (2**20 * 4.25, "4.25 MiB"),
     (2**30 * 100, "100 GiB"), (2**50, "1024 TiB")],
)  # fmt: skip
def test_size(nbytes: float, text: str) -> None:
    assert size(int(nbytes)) == text
