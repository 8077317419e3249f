"""Parameters that several calls of a step read: autograd adds their gradients up before they leave.

What a call hands back first waits until the last one's has come; what comes between is added to it
at once. Where eager reads one as well, its gradient may be the first or the last.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from torch import nn

from remat_gen.capture.observe.gradient_graph import nodes_behind
from remat_gen.capture.units.joined import Call
from remat_gen.ir.graph import Kind


def waiting(model: nn.Module, calls: Sequence[Call]) -> dict[int, list[str]]:
    """Return the gradients that wait, by the call (in forward's order) whose backward ends that."""
    names: dict[int, str] = {}
    parameters = model.named_parameters(remove_duplicate=False)
    one = {path: names.setdefault(id(parameter), path) for path, parameter in parameters}
    made: dict[str, list[tuple[int, str]]] = {}
    for number, call in reversed([*enumerate(calls)]):
        paths = {i.tensor: i.path for i in call.graph.inputs if i.kind is Kind.PARAMETER}
        for gradient in call.graph.gradients:
            if gradient.tensor and gradient.of in paths:
                path = f"{call.path}.{paths[gradient.of]}"
                own = number, call.prefixed(gradient.tensor)
                made.setdefault(one.get(path, path), []).append(own)
    found: dict[int, list[str]] = {}
    for (first, tensor), *_, (last, _) in (g for g in made.values() if len(g) > 1):
        if last != first:
            found.setdefault(last, []).append(tensor)
    return found


def bytes_read(outputs: Iterable[object], parameters: Collection[nn.Parameter]) -> int:
    """Return the bytes of those parameters that a graph of autograd leads to."""
    found = {id(getattr(node, "variable", None)) for node in nodes_behind(outputs)}
    return sum(p.nbytes for p in parameters if id(p) in found)
