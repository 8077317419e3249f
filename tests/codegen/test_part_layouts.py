"""Compiled code is for tensors that lie in memory in one way: others have their own function."""

from __future__ import annotations

from pathlib import Path

from emitting import HEAD, emit

from remat_gen.compile.part_text import write_operations

MODEL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList((nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 16)))

    def forward(self, x):
        for layer in self.layers:
            x = F.gelu(layer(x))
        return x.square().mean()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(64, 8),)
"""


def test_equal_texts_are_one_function_only_where_tensors_lie_alike(tmp_path: Path) -> None:
    graph = emit(tmp_path, HEAD + MODEL).traced.graph
    gelus = [o for o in graph.operations if o.target == "aten.gelu.default"]
    texts = [write_operations(graph, (gelu,)) for gelu in gelus]
    first, second, wider = texts
    assert len({text.code for text in texts}) == 1
    assert (first.sha256, first.key) == (second.sha256, second.key)
    assert wider.sha256 != first.sha256
    assert wider.key != first.key
