"""What the template of a block reads: its text, its parameters, how gradients come in."""

from __future__ import annotations

from dataclasses import asdict
from string import ascii_lowercase

from torch import nn

from remat_gen.codegen.block_parameters import read_in_order
from remat_gen.codegen.block_text import BlockText, Writer
from remat_gen.codegen.paths import access
from remat_gen.codegen.reach import asks_what_came, read_on
from remat_gen.ir.graph import Graph, Input, Kind


def block_fields(
    model: nn.Module, device: str, writer: Writer, text: BlockText
) -> dict[str, object]:
    """Return what the template of a block reads; `device` is "cpu" or "cuda"."""
    graph, body = writer.graph, writer.block_class.body
    arguments = read_in_order(graph, body)
    order = [body.arguments().index(i.tensor) for i in arguments]
    owned = [i for i in arguments if i.kind is not Kind.INPUT]
    layers = graph.layers.all_holding(i.path for i in owned)
    constant = [
        position
        for position, i in enumerate(body.forward.returns)
        if not graph.outputs[int(i)].requires_grad
    ]
    fields = asdict(text)
    fields["arguments"] = [text.arguments[i] for i in order]
    fields["gradients"] = [text.gradients[i] for i in order]
    return fields | {
        "layers": [f"{name}: Any" for name in _layer_names(layers)],
        "parameters": [_parameter(model, graph, i, layers) for i in owned],
        "constant_outputs": constant,
        "token_device": f', device="{device}"',  # whatever the default device is
        "incoming": _incoming(writer, text),
        "knows_place": bool(
            text.frames_backward or asks_what_came(graph) or (text.last and read_on(graph))
        ),
    }


def _layer_names(layers: list[str]) -> list[str]:
    """Name what `parameters` is called with; letters, since `layer_0` would look like an index."""
    repeated = [layer for layer in layers if layer]
    if len(repeated) == 1:
        return ["layer" if layer else "model" for layer in layers]
    return [f"layer_{_letters(repeated.index(r))}" if r else "model" for r in layers]


def _letters(number: int) -> str:
    """Count a, b, … z, aa, ab, …"""
    rest, last = divmod(number, 26)
    return (_letters(rest - 1) if rest else "") + ascii_lowercase[last]


def _parameter(model: nn.Module, graph: Graph, found: Input, layers: list[str]) -> str:
    layer = graph.layers.holding(found.path)
    start = _layer_names(layers)[layers.index(layer)]
    return access(start, model.get_submodule(layer), graph.layers.relative(found.path))


def _incoming(writer: Writer, text: BlockText) -> list[str]:
    """Return the lines that bring incoming gradients into the planned form."""
    if not text.last:
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
        like = f"({shape}, {stride}, torch.{tensor.dtype})"
        lines.append(f"{name} = incoming_gradient({name}, {like})")
    return lines


def _position(graph: Graph, text: BlockText, tangent: str | None) -> int:
    planned = [n for n in text.tangents if n not in text.unplanned]
    tangents = [o.tangent for o in dict.fromkeys(graph.outputs) if o.tangent]
    return text.tangents.index(planned[tangents.index(str(tangent))])
