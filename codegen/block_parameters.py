"""How the planned forward hands each block what it reads: of the model, and of the call.

Fetching parameters from modules takes longer than all else that a small block does in Python. So
the forward has them from the look at the model that each step takes anyway: while no object is
another, they are the same.
"""

from __future__ import annotations

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
        once = self._of_model(body) and not self._is_detached(body)
        return self._fetched(body, name, "model") if once else "()"

    def arguments(self, body: Body, name: str, kept: str) -> list[str]:
        """Write the arguments of a block in forward, where `kept` has what is fetched once."""
        given = [
            i.path + ".detach()" * (i.tensor in body.only_read)
            for i in self._read(body)
            if i.kind is Kind.INPUT
        ]
        if not self._of_model(body):
            return given
        if self._is_detached(body):
            return [f"*{self._fetched(body, name, 'self')}", *given]
        return [f"*{kept}[{body.block}]", *given]

    def _fetched(self, body: Body, name: str, model: str) -> str:
        layers = self.graph.layers.all_holding(i.path for i in self._of_model(body))
        reached = ", ".join(access(model, self.model, layer) for layer in layers)
        return f"{name}.parameters({reached})"

    def _is_detached(self, body: Body) -> bool:
        """Tell whether a block is handed a view of a parameter, which is made anew in each step.

        The parameter may be given other memory (`p.data = …`) and stay the same object.
        """
        return any(i.tensor in body.only_read for i in self._of_model(body))

    def _of_model(self, body: Body) -> list[Input]:
        return [i for i in self._read(body) if i.kind is not Kind.INPUT]

    def _read(self, body: Body) -> list[Input]:
        inputs = {i.tensor: i for i in self.graph.inputs}
        return [inputs[argument] for argument in body.arguments()]
