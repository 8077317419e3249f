"""How the planned forward hands each block what it reads: of the model, and of the call.

Fetching parameters from modules takes longer than all else that a small block does in Python. So
the forward has them from the look at the model that each step takes anyway: while no object is
another, they are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from remat_gen.codegen.paths import access
from remat_gen.codegen.statements import Body
from remat_gen.ir.graph import Graph, Input, Kind


@dataclass(frozen=True, slots=True)
class BlockParameters:
    """Writes the arguments of blocks."""

    graph: Graph
    model: nn.Module

    def kept(self, body: Body, name: str) -> str:
        """Write what is fetched once for a block of class `name`, from `model`."""
        layers = self.graph.layers.all_holding(i.path for i in _of_model(self.graph, body))
        reached = ", ".join(access("model", self.model, layer) for layer in layers)
        return f"{name}.parameters({reached})" if layers else "()"

    def arguments(self, body: Body, kept: str) -> list[str]:
        """Write the arguments of a block in forward, where `kept` has what is fetched once.

        A view of a parameter is made anew in each step: one that is kept would hold the parameter's
        memory after the model has left it (`p.data = …`).
        """
        of_model = _of_model(self.graph, body)
        whole = [i for i in of_model if i.tensor not in body.only_read]
        return [
            *_views_last(f"{kept}[{body.block}]", len(whole), len(of_model)),
            *(
                i.path + ".detach()" * (i.tensor in body.only_read)
                for i in read_in_order(self.graph, body)[len(of_model) :]
            ),
        ]


def read_in_order(graph: Graph, body: Body) -> list[Input]:
    """Return what a block is handed: what it has gradients of, what is only read, inputs."""
    inputs = {i.tensor: i for i in graph.inputs}

    def place(read: Input) -> int:
        return 2 if read.kind is Kind.INPUT else int(read.tensor in body.only_read)

    return sorted((inputs[argument] for argument in body.arguments()), key=place)


def _of_model(graph: Graph, body: Body) -> list[Input]:
    return [i for i in read_in_order(graph, body) if i.kind is not Kind.INPUT]


def _views_last(kept: str, whole: int, of_model: int) -> Iterator[str]:
    """Write the parameters of a block: the first ones whole, views of the rest."""
    if whole:
        yield f"*{kept}[:{whole}]" if whole < of_model else f"*{kept}"
    if of_model - whole == 1:
        yield f"{kept}[{whole}].detach()"
    elif whole < of_model:
        yield f"*(p.detach() for p in {kept}{f'[{whole}:]' if whole else ''})"
