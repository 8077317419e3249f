"""The user's file around the planned forward: layout kept, names in the way refused."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from emitting import HEAD, Emitted, assert_bitwise, emit

from remat_gen.api import generate
from remat_gen.codegen.module.merge import add_imports, insert_before_main
from remat_gen.ir.errors import UsageError

INIT = "    def __init__(self):\n        super().__init__()\n        self.l = nn.Linear(8, 8)\n\n"
FORWARD = "    def forward(self, x):\n        return self.l(x).sum()\n"
ENDS = (
    "\n\ndef build_model():\n    return Net()\n\n\n"
    "def example_inputs():\n    return (torch.randn(4, 8),)\n"
)
PLAIN = HEAD + "\nclass Net(nn.Module):\n" + INIT + FORWARD + ENDS
BASE = HEAD + "\nclass Base(nn.Module):\n" + INIT + FORWARD

LAYOUTS = {
    "decorated": PLAIN.replace("\nclass Net", "\ndef keep(c):\n    return c\n\n\n@keep\nclass Net"),
    "inherited forward": BASE + "\n\nclass Net(Base):\n    pass\n" + ENDS,
    "calls super": BASE
    + "\n\nclass Net(Base):\n    def forward(self, x):\n        return 2 * super().forward(x)\n"
    + ENDS,
    "nested class": PLAIN.replace(INIT, "    class forward_of:\n        forward = 1\n\n" + INIT),
    "main": PLAIN + '\n\nif __name__ == "__main__":\n    print(build_model())\n',
    "future": '"""Doc \\" of \\\\ mine."""\n\nfrom __future__ import annotations\n\n' + PLAIN,
    "docstring": '"""Doc."""\n' + PLAIN,
    "comments first": "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n# mine\n\n" + PLAIN,
    "one line bodies": HEAD
    + "class Net(nn.Module):\n"
    + "    def __init__(self): super().__init__(); self.l = nn.Linear(8, 8)\n"
    + "    def forward(self, x): return self.l(x).sum()\n"
    + ENDS,
    "class in a branch": HEAD
    + "if True:\n    class Net(nn.Module):\n"
    + "".join(f"    {line}\n" for line in (INIT + FORWARD).splitlines())
    + ENDS,
    "method in a branch": PLAIN.replace(
        FORWARD, "    if True:\n        def forward(self, x):\n            return self.l(x).sum()\n"
    ),
    "library class": HEAD + "def build_model(n=8):\n    return nn.Sequential(nn.Linear(n, 1))\n"
    "def example_inputs():\n    return (torch.randn(4, 8),)\n",
    "other imports": "import torch as t\nfrom torch import nn as n\n"
    + PLAIN.removeprefix(HEAD).replace("nn.", "n.").replace("torch.", "t."),
    "code between imports": 'import os\nos.environ.setdefault("REMAT_TEST", "1")\n' + PLAIN,
    "guarded import": "try:\n    import nothing_here\nexcept ImportError:\n    pass\n" + PLAIN,
    "imports behind": PLAIN + "\nimport sys\n",
    "decorated forward": PLAIN.replace(FORWARD, "    @torch.compiler.disable\n" + FORWARD),
    "carriage returns": PLAIN.replace("\n", "\r\n"),
    "tabs": PLAIN.replace("    ", "\t"),
    "form feed": PLAIN + "\x0c\n# end\n",
    "class named as a block": PLAIN + "\n\nclass NetL:\n    pass\n",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_of_the_file(tmp_path: Path, layout: str) -> None:
    assert_bitwise(emit(tmp_path, LAYOUTS[layout]))


REFUSED = {
    "class": (PLAIN + "\n\nclass PlannedStep:\n    pass\n", "PlannedStep"),
    "function": (PLAIN + "\n\ndef check_planned():\n    pass\n", "check_planned"),
    "inner class": (
        HEAD + "def build_model():\n    class Net(nn.Module):\n"
        + "".join(f"    {line}\n" for line in (INIT + FORWARD).splitlines())
        + "    return Net()\n\ndef example_inputs():\n    return (torch.randn(4, 8),)\n",
        "top level",
    ),
    "builder": (
        HEAD + "build_model = lambda: nn.Sequential(nn.Linear(8, 1))\n"
        "def example_inputs():\n    return (torch.randn(4, 8),)\n",
        "def build_model",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_names_in_the_way_are_refused(tmp_path: Path, case: str) -> None:
    source, says = REFUSED[case]
    with pytest.raises(UsageError, match=says):
        emit(tmp_path, source)


def test_comments_docstrings_and_code_stay(tmp_path: Path) -> None:
    source = PLAIN.replace(INIT, '    """Mine."""\n\n    # a comment\n' + INIT).replace(
        "return self.l(x).sum()", "return self.l(x).sum()  # behind"
    )
    text = emit(tmp_path, source).text
    for part in ('"""Mine."""', "# a comment", "return self.l(x).sum()  # behind"):
        assert part in text


def test_every_public_name_stays_with_its_signature(tmp_path: Path) -> None:
    made = emit(tmp_path, PLAIN + "\n\ndef helper(a, *, b=2):\n    return a\n\n\nWIDTH = 8\n")
    assert made.planned.module.helper(1, b=3) == 1
    assert made.planned.module.WIDTH == 8
    assert list(made.planned.model.state_dict()) == list(made.loaded.model.state_dict())


def test_the_model_itself_is_of_a_class_of_the_users_name(tmp_path: Path) -> None:
    made: Emitted = emit(tmp_path, PLAIN)
    assert type(made.planned.model).__name__ == "Net"
    functions = {n.name for n in ast.walk(made.tree()) if isinstance(n, ast.FunctionDef)}
    assert {"forward", "forward_eager"} <= functions


def test_definitions_go_behind_imports_that_an_early_main_precedes() -> None:
    source = (
        "import sys\n"
        'if __name__ == "__main__" and __package__ is None:\n    sys.path.append("..")\n'
        "import torch\n\n\nclass Net: ...\n\n\n"
        'if __name__ == "__main__":\n    Net()\n'
    )
    text = insert_before_main(source, "def f(): ...")
    places = [text.index(part) for part in ("import torch", "class Net", "def f()", "    Net()")]
    assert places == sorted(places)


def test_definitions_stand_before_main() -> None:
    text = insert_before_main('x = 1\nif __name__ == "__main__":\n    f()\n', "def f(): ...")
    assert text.index("def f") < text.index("if __name__")


def test_imports_that_are_there_are_not_repeated() -> None:
    text = add_imports("import torch\nx = 1\n", ("import torch", "from torch import nn"), "y = 2")
    assert text.count("import torch\n") == 1
    assert text.index("from torch import nn") < text.index("y = 2") < text.index("x = 1")


def test_a_class_that_is_imported_for_the_result_must_not_be_called_as_ours(tmp_path: Path) -> None:
    (tmp_path / "lib.py").write_text(
        "from typing import NamedTuple\nimport torch\nfrom torch import Tensor, nn\n"
        "class PlannedStep(NamedTuple):\n    total: Tensor\n    mean: Tensor\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.lin = nn.Linear(3, 3)\n"
        "    def forward(self, x):\n"
        "        x = self.lin(x)\n        return PlannedStep(x.sum(), x.mean())\n"
    )
    (tmp_path / "net.py").write_text(
        "import torch\nimport lib\n"
        "def build_model():\n    return lib.Net()\n"
        "def example_inputs():\n    return (torch.randn(2, 3),)\n"
    )
    with pytest.raises(UsageError, match="PlannedStep, which the generated code defines too"):
        generate(tmp_path / "net.py", budget="100%")
