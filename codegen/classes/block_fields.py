"""What the template of a block reads: its text, its parameters, how gradients come in."""

from __future__ import annotations

from dataclasses import asdict

from remat_gen.codegen.classes.block_parameters import Given
from remat_gen.codegen.classes.block_text import BlockText, Writer
from remat_gen.codegen.statements.gradient_reach import asks_what_came, read_on, surely_reached
from remat_gen.codegen.statements.kept_outputs import returned


def block_fields(writer: Writer, text: BlockText) -> dict[str, object]:
    """Return what the template of a block reads."""
    graph, body = writer.graph, writer.block_class.body
    outputs = returned(graph, body.forward.returns)
    constant = [place for place, output in enumerate(outputs) if not output.requires_grad]
    return asdict(text) | {
        "lists": Given(graph, writer.block_class, writer.names).words(),
        "constant_outputs": constant,
        "incoming": _incoming(writer, text),
    }


def _incoming(writer: Writer, text: BlockText) -> list[str]:
    """Return the lines that bring incoming gradients into the planned form."""
    if not text.tangents:
        return []
    graph, body = writer.graph, writer.block_class.body
    lines = ["refuse_watched(step)"] if read_on(graph) and body.last else []
    if text.unplanned:
        lines.append(f"refuse_gradient({', '.join(text.unplanned)})")
    outputs = returned(graph, body.forward.returns)
    tangents = {place: o for place, o in enumerate(outputs) if o.tangent}
    if asks_what_came(graph) and tangents:
        came = (f"{place}: {text.tangents[place]} is not None" for place in tangents)
        lines.append(f"self.came = {{{', '.join(came)}}}")
    for place, output in tangents.items():
        tensor, name = graph.tensors[str(output.tangent)], text.tangents[place]
        if len(tangents) == 1 and not tensor.shape and not output.kept:
            continue  # a scalar has one layout, and without it backward would not have been called
        shape, stride = writer.layout(tensor.name)
        if graph.lies_otherwise_alone(tensor):
            stride = f"self.strides[{place}]"
        like = f"({shape}, {stride}, torch.{tensor.dtype})"
        sure = graph.outputs.index(output) in surely_reached(graph)
        lines += [f"refuse_kept_alone({name})"] * sure
        lines.append(f"{name} = incoming_gradient({name}, {like})")
    return lines
