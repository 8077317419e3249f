"""What the template of a block reads: its text, its parameters, how gradients come in."""

from __future__ import annotations

from dataclasses import asdict

from remat_gen.codegen.classes.block_parameters import Given
from remat_gen.codegen.classes.block_text import BlockText, Writer
from remat_gen.codegen.statements.gradient_reach import asks_what_came, read_on, surely_reached
from remat_gen.ir.graph import Graph


def block_fields(writer: Writer, text: BlockText) -> dict[str, object]:
    """Return what the template of a block reads."""
    graph, body = writer.graph, writer.block_class.body
    constant = [
        position
        for position, i in enumerate(body.forward.returns)
        if not graph.outputs[int(i)].requires_grad
    ]
    return asdict(text) | {
        "lists": Given(graph, writer.block_class, writer.names).words(),
        "constant_outputs": constant,
        "incoming": _incoming(writer, text),
    }


def _incoming(writer: Writer, text: BlockText) -> list[str]:
    """Return the lines that bring incoming gradients into the planned form."""
    if not text.tangents:
        return []
    graph = writer.graph
    lines = ["refuse_watched(step)"] if read_on(graph) else []
    if text.unplanned:
        lines.append(f"refuse_gradient({', '.join(text.unplanned)})")
    tangents = [o for o in dict.fromkeys(graph.outputs) if o.tangent]
    if asks_what_came(graph):
        came = (
            f"{graph.outputs.index(o)}: {name} is not None"
            for o in tangents
            for name in [text.tangents[_position(graph, text, o.tangent)]]
        )
        lines.append(f"step[-1].came = {{{', '.join(came)}}}")
    for output in tangents:
        tensor = graph.tensors[str(output.tangent)]
        name = text.tangents[_position(graph, text, output.tangent)]
        if len(tangents) == 1 and not tensor.shape:
            continue  # a scalar has one layout, and without it backward would not have been called
        shape, stride = writer.layout(tensor.name)
        if graph.lies_otherwise_alone(tensor):
            stride = f"step[-1].strides[{text.tangents.index(name)}]"
        like = f"({shape}, {stride}, torch.{tensor.dtype})"
        sure = graph.outputs.index(output) in surely_reached(graph)
        lines += [f"refuse_kept_alone({name})"] * sure
        lines.append(f"{name} = incoming_gradient({name}, {like})")
    return lines


def _position(graph: Graph, text: BlockText, tangent: str | None) -> int:
    planned = [n for n in text.tangents if n not in text.unplanned]
    tangents = [o.tangent for o in dict.fromkeys(graph.outputs) if o.tangent]
    return text.tangents.index(planned[tangents.index(str(tangent))])
