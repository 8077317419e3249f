"""From a model's source text to its traced step."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

from remat_gen.capture.load.load import load
from remat_gen.capture.trace.trace import Traced, trace
from remat_gen.ir.graph import Graph, Operation

LINEAR = "self.lin = nn.Linear(8, 8)"
BLOCK = """
class Block(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Linear(16, width))

    def forward(self, x):
        return x + self.mlp(self.norm(x))
"""
ONE_INPUT = "(torch.randn(4, 8),)"


def source(
    init: str, forward: str, inputs: str = ONE_INPUT, parameters: str = "x", before: str = ""
) -> str:
    """Write a model file around the bodies of `__init__` and `forward`."""
    return (
        "import torch\nimport torch.nn.functional as F\nfrom torch import Tensor, nn\n"
        f"{before}\n\nclass Net(nn.Module):\n    def __init__(self) -> None:\n"
        f"        super().__init__()\n{indent(init, ' ' * 8)}\n\n"
        f"    def forward(self, {parameters}):\n{indent(forward, ' ' * 8)}\n\n\n"
        "def build_model() -> nn.Module:\n    return Net()\n\n\n"
        f"def example_inputs():\n    return {inputs}\n"
    )


def traced(folder: Path, text: str, dynamic: tuple[str, ...] | None = ()) -> Traced:
    """Write a model file, load it, trace it."""
    path = folder / "net.py"
    path.write_text(text, encoding="utf-8")
    loaded = load(path, None, None, "cpu")
    with loaded.importable():
        return trace(loaded.model, loaded.args, loaded.kwargs, path, dynamic)


def operation(graph: Graph, name: str) -> Operation:
    """Return an operation by its name."""
    return next(o for o in graph.operations if o.name == name)


def names(graph: Graph) -> list[str]:
    """Return the names of the operations, in order."""
    return [o.name for o in graph.operations]


def line_of(text: str, part: str) -> int:
    """Return the number of the first line that contains a text."""
    return next(i for i, line in enumerate(text.splitlines(), 1) if part in line)
