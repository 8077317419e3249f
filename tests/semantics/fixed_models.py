"""Source texts of models some of whose inputs are fixed: a graph network, a mask, a schedule."""

from __future__ import annotations

GRAPH = '''
"""A graph network: edges without loops of their own, sizes and degrees by their numbers."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NODES, EDGES = {nodes}, {edges}


class Conv(nn.Module):
    def __init__(self, wide: int, narrow: int) -> None:
        super().__init__()
        self.lin = nn.Linear(wide, narrow)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        count = int(edge_index.max()) + 1
        edge_index = edge_index[:, edge_index[0] != edge_index[1]]
        loops = torch.arange(count).expand(2, count)
        source, target = torch.cat([edge_index, loops], 1)
        degree = torch.zeros(count).scatter_add_(0, target, torch.ones(target.numel()))
        weight = (degree[source] * degree[target]).rsqrt()
        x = self.lin(x)
        out = torch.zeros(*x.shape[:-2], count, x.shape[-1])
        return out.index_add(x.ndim - 2, target, x[..., source, :] * weight[:, None])


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([Conv(8, 16), Conv(16, 16), Conv(16, 4)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if edge_index.min() < 0:
            raise ValueError("a node of its own")
        for conv in self.convs[:-1]:
            x = F.dropout(F.relu(conv(x, edge_index)), 0.5, self.training)
        return self.convs[-1](x, edge_index).square().mean()


def build_model() -> nn.Module:
    return Model()


def example_inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(NODES, (2, EDGES), generator=generator)
    edges[0, 0] = NODES - 1
    return torch.randn({batch}NODES, 8), edges
'''
FEW = GRAPH.format(nodes=12, edges=30, batch="")
MANY = GRAPH.format(nodes=300, edges=5000, batch="")
BATCHED = GRAPH.format(nodes=12, edges=30, batch="6, ")
