"""Operations that no node of the trace calls: a recorded generator state, a constant."""

from __future__ import annotations

import torch

from remat_gen.capture.fx import metadata
from remat_gen.capture.lower import naming
from remat_gen.ir import graph as ir


def record_generator(
    node: torch.fx.Node, state: str, hint: str, device: torch.device, model_file: str
) -> ir.Operation:
    """Return what records the generator's state before a random operation; `state` is its name."""
    return ir.Operation(
        name=state,
        target="remat.rng_state",
        args=(ir.Literal("device", str(device)),),
        kwargs=(),
        outputs=(state,),
        single=True,
        phase=ir.Phase.FORWARD,
        traits=frozenset(),
        source=metadata.source_of(node, model_file),
        module=metadata.module_path(node),
        hint=hint,
    )


def make_constant(
    node: torch.fx.Node,
    reader: torch.fx.Node,
    name: str,
    value: torch.Tensor,
    numbers: ir.Argument,
    model_file: str,
) -> ir.Operation:
    """Return what makes a tensor of the numbers that stand in forward, where `reader` reads it."""
    dtype = ir.Literal("dtype", str(value.dtype).removeprefix("torch."))
    return ir.Operation(
        name=name,
        target="remat.constant",
        args=(numbers,),
        kwargs=(("device", ir.Literal("device", str(value.device))), ("dtype", dtype)),
        outputs=(name,),
        single=True,
        phase=naming.phase_of(node),
        traits=frozenset(),
        source=metadata.source_of(reader, model_file),
        module=metadata.module_path(reader),
        hint="constant",
    )
