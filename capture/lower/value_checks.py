"""Conditions that decided what was traced: each step compares them with the example's.

A check is an operation that returns nothing of use. It stands right behind what makes the
condition, and is never run again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from remat_gen.capture.values.looks import Look
from remat_gen.ir import graph as ir


def with_checks(graph: ir.Graph, checks: Iterable[tuple[str, Look]]) -> ir.Graph:
    """Return a graph that compares tensors with what looks at them found."""
    behind: dict[str, list[ir.Operation]] = {}
    tensors, storages = dict(graph.tensors), dict(graph.storages)
    makers = {s: o.name for o in graph.operations for s in graph.writes(o)}
    for number, (name, look) in enumerate(checks, 1):
        looked_at = graph.tensors[name]
        made = f"check_{number}"
        maker = makers.get(looked_at.storage, "")
        behind.setdefault(maker, []).append(_check(graph, name, look, made, maker))
        storages[made] = ir.Storage(made, 0, ir.Kind.ACTIVATION)
        tensors[made] = ir.Tensor(made, made, (0,), (1,), 0, "bool", looked_at.device, made)
    first = behind.get("", [])
    operations = [x for o in graph.operations for x in (o, *behind.get(o.name, ()))]
    return replace(graph, operations=(*first, *operations), tensors=tensors, storages=storages)


def conditions_of(graph: ir.Graph) -> tuple[str, ...]:
    """Return the lines of the conditions that each step compares: `net.py:12 if bad.any():`."""
    checks = (o for o in graph.operations if o.target == ir.CHECK)
    return tuple(dict.fromkeys(f"{o.args[2]} {o.source.text}" for o in checks))


def _check(graph: ir.Graph, name: str, look: Look, made: str, maker: str) -> ir.Operation:
    module = next((o.module for o in graph.operations if o.name == maker), "")
    return ir.Operation(
        name=made,
        target=ir.CHECK,
        args=(ir.Ref(name), look.value, str(look.place)),
        kwargs=(),
        outputs=(made,),
        single=True,
        phase=ir.Phase.FORWARD,
        traits=frozenset(),
        source=look.source,
        module=module,
        hint=made,
    )
