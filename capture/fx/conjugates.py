"""Which tensors are conjugates that nobody has computed yet: most kernels copy them first."""

from __future__ import annotations

from remat_gen.ir.graph import Graph

_CONJUGATES = "aten._conj.default"


def is_conjugate(graph: Graph, name: str) -> bool:
    """Tell whether a tensor is the lazy conjugate of what is in its storage."""
    if not graph.tensors[name].dtype.startswith("complex"):
        return False
    views = {view.tensor: view for view in graph.views}
    conjugate = False
    while name in views:
        conjugate ^= views[name].target == _CONJUGATES
        name = views[name].base
    return conjugate
