"""What goes into the joint graph of a step and what comes out, in the words of the user's model.

AOTAutograd describes each end: a parameter, an incoming gradient, a buffer's new value. Its
descriptors are read here, and where `naming` tells the halves of the step apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch._functorch._aot_autograd.descriptors import (
    BufferAOTInput,
    GradAOTOutput,
    InputMutationAOTOutput,
    ParamAOTInput,
    PlainAOTInput,
    PlainAOTOutput,
    TangentAOTInput,
    ViewBaseAOTInput,
)

from remat_gen.capture.fx.metadata import where
from remat_gen.capture.load.arguments import Call
from remat_gen.capture.lower.constants import AttributeInput
from remat_gen.ir.errors import TraceError
from remat_gen.ir.graph import Kind

End: TypeAlias = Any  # a node, or None or a number where nothing is computed
Place: TypeAlias = tuple[Kind, str]
"""Where an input comes from: its path alone may be a parameter's and an argument's, `scale`."""


@dataclass(frozen=True, slots=True)
class Ends:
    """The ends of a joint graph; `prefix` stands before the names of parameters and buffers."""

    joint: torch.fx.Graph
    call: Call
    prefix: str
    model_file: str

    def output_of(self, tangent: torch.fx.Node) -> int | None:
        """Return the number of the output whose gradient an input is, None for other inputs.

        Raises:
            TraceError: it is the gradient of something that the model does not return.
        """
        descriptor = tangent.meta["desc"]
        if not isinstance(descriptor, TangentAOTInput):
            return None
        if isinstance(descriptor.output, InputMutationAOTOutput):
            kind, path = place = self._place(descriptor.output.mutated_input)
            line = next(where(end, self.model_file) for at, end in self.mutations() if at == place)
            raise TraceError(
                f"{line}: forward writes what has a gradient into {path}: write its detach()"
                if kind is Kind.BUFFER
                else f"{line}: forward writes into {path}, which requires a gradient: do it "
                "outside of forward, after the optimizer's step, or make it a buffer"
            )
        if not isinstance(descriptor.output, PlainAOTOutput):
            raise TraceError(f"a gradient flows into {descriptor.output}, which is no output")
        return descriptor.output.idx

    def place(self, placeholder: torch.fx.Node) -> Place:
        """Return what an input is, and its path in the model or in the call.

        Raises:
            TraceError: it is of a kind that is not known.
        """
        return self._place(placeholder.meta["desc"])

    def outputs(self) -> Iterator[tuple[int, End]]:
        """Yield the model's outputs with their numbers."""
        for end, descriptor in self._leaving():
            if isinstance(descriptor, PlainAOTOutput):
                yield descriptor.idx, end

    def gradients(self) -> Iterator[tuple[Place, End]]:
        """Yield the gradients by the place of what they belong to."""
        for end, descriptor in self._leaving():
            if isinstance(descriptor, GradAOTOutput):
                yield self._place(descriptor.grad_of), end

    def mutations(self) -> Iterator[tuple[Place, End]]:
        """Yield the new values of buffers and inputs by their place."""
        for end, descriptor in self._leaving():
            if isinstance(descriptor, InputMutationAOTOutput):
                yield self._place(descriptor.mutated_input), end

    def refuse_others(self) -> None:
        """Refuse a graph out of which something else comes."""
        known = PlainAOTOutput | GradAOTOutput | InputMutationAOTOutput | None
        for _, descriptor in self._leaving():
            if not isinstance(descriptor, known):
                raise TraceError(f"the model returns what cannot be planned: {descriptor}")

    def _place(self, descriptor: Any) -> Place:
        if isinstance(descriptor, ParamAOTInput):
            return Kind.PARAMETER, descriptor.target.removeprefix(self.prefix)
        if isinstance(descriptor, BufferAOTInput):
            return Kind.BUFFER, descriptor.target.removeprefix(self.prefix)
        if isinstance(descriptor, PlainAOTInput):
            return Kind.INPUT, self.call.leaves[descriptor.idx].path
        if isinstance(descriptor, AttributeInput):
            return Kind.CONSTANT, descriptor.path
        if isinstance(descriptor, ViewBaseAOTInput):
            _, path = self._place(descriptor.base_of)
            raise TraceError(
                f"{path} has the memory of another buffer or input, and forward writes into one of "
                "them: keep one buffer, and take its parts in forward"
            )
        raise TraceError(f"the trace has an input of an unknown kind: {descriptor}")

    def _leaving(self) -> list[tuple[End, Any]]:
        output = next(n for n in reversed(self.joint.nodes) if n.op == "output")
        return list(zip(output.args[0], output.meta["desc"], strict=True))
