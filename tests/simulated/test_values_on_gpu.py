"""Values that decide what runs: a GPU's are compared with one wait for each step, not one each."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from on_gpu_steps import holds_on_gpu, step, waited_for
from torch import Tensor, nn

import remat_gen
from remat_gen.capture.load.load import load
from remat_gen.ir.errors import UsageError
from remat_gen.show.summary import summary_lines

pytestmark = pytest.mark.cuda
HEAD = """
import torch
import torch.nn.functional as F
from torch import Tensor, nn

"""
GRAPH = (
    HEAD
    + """
class Conv(nn.Module):
    def __init__(self, wide: int, narrow: int) -> None:
        super().__init__()
        self.lin = nn.Linear(wide, narrow)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        count = int(edge_index.max()) + 1
        source, target = edge_index[:, edge_index[0] != edge_index[1]]
        degree = x.new_zeros(count).scatter_add_(0, target, x.new_ones(target.numel()))
        x = torch.tanh(self.lin(x)) * degree.clamp(min=1).rsqrt()[:, None]
        return x.new_zeros(count, x.shape[1]).index_add(0, target, x[source])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([Conv(32, 64), Conv(64, 64), Conv(64, 64)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv in self.convs:
            x = F.gelu(conv(x, edge_index))
        return x.square().mean()


def build_model() -> nn.Module:
    return Net()


def example_inputs() -> tuple[Tensor, Tensor]:
    edges = torch.randint(64, (2, 200), generator=torch.Generator().manual_seed(0))
    edges[0, 0] = 63
    return torch.randn(64, 32), edges
"""
)
CHECKS = (
    HEAD
    + """
class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.gelu(layer(x))
            if not x.isfinite().all():
                raise ValueError("overflow")
        return x.square().mean()


def build_model() -> nn.Module:
    return Net()


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(64, 64),)
"""
)


def written(folder: Path, text: str) -> Path:
    path = folder / "net.py"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_fixed_input_is_compared_with_one_wait(tmp_path: Path) -> None:
    path = written(tmp_path, GRAPH)
    assert holds_on_gpu(path, "95%", fix=["edge_index"]) == 0
    planned = load(tmp_path / "net_remat.py", device="cuda")
    assert len(waited_for(planned)) == 1 < len(waited_for(load(path, device="cuda")))
    x, edges = planned.args
    other = edges.clone()
    other[1, 4] = before = int(edges[1, 4]) ^ 1
    words = rf"edge_index\[1, 4\] is {before}, planned for {before ^ 1}\."
    with pytest.raises(ValueError, match=words):
        planned.model(x, other)


def test_a_captured_step_would_not_compare_it(tmp_path: Path) -> None:
    path = written(tmp_path, GRAPH)
    made = remat_gen.generate(path, device="cuda", budget="95%", fix=["edge_index"], effort="quick")
    assert made.output
    model = load(made.output, device="cuda").model

    def run(x: Tensor, edges: Tensor) -> Tensor:
        loss: Tensor = model(x, edges)
        loss.backward()
        return loss

    with pytest.raises(UsageError, match=r"aten\.equal\.default waits for a number"):
        remat_gen.capture_step(model, run, *load(path, device="cuda").args)


def test_conditions_are_compared_with_one_wait(tmp_path: Path) -> None:
    """Behind backward: eager waits for each."""
    path = written(tmp_path, CHECKS)
    made = remat_gen.generate(path, device="cuda", budget="90%", effort="quick")
    assert made.output
    (told,) = (line for line in summary_lines(made) if line.startswith("conditions"))
    assert told.endswith("as in the example: each step compares when its backward ends")
    eager, planned = load(path, device="cuda"), load(made.output, device="cuda")
    step(planned)
    planned_waits = [e for e in waited_for(planned) if "non_blocking" not in e]
    assert len(planned_waits) <= 1 < len(waited_for(eager)) == 3
    with torch.no_grad():
        layer = planned.model.get_submodule("layers.1")
        assert isinstance(layer, nn.Linear)
        layer.bias[3] = torch.inf
    line = (
        path.read_text(encoding="utf-8").splitlines().index(" " * 12 + "if not x.isfinite().all():")
    )
    loss = planned.model(*planned.args)
    with pytest.raises(ValueError, match=rf"the condition in net\.py:{line + 1} is False"):
        loss.backward()
