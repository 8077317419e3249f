"""Which values go by the name of the variable whose memory they took over.

`x.mul_(y)` leaves one tensor, and reads best as one variable, which is freed by one name.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import cache

import torch

from remat_gen.capture.fx.metadata import plain_name
from remat_gen.codegen.expressions.marks import assigned, fill, find
from remat_gen.codegen.statements.free_names import hint_of
from remat_gen.codegen.statements.statements import Body, Statement
from remat_gen.ir.graph import Graph

_IN_PLACE = re.compile(r"\A(\w+) = (\1\.\w+_\(.*)", re.DOTALL)


def reused_names(graph: Graph, body: Body) -> dict[str, str]:
    """Return by storage the one that names its variable, for those that share one.

    Names that say different things stay apart, as do a value and a gradient. Where a line is a
    method in place and no more, an operator's own name gives way to the user's, or else to that of
    the variable's maker; among gradients to the last one's, which tells what it is the gradient of.
    """
    over = _written_over(body)
    kinds = (plain_name(operation.target.split(".")[1]) for operation in graph.operations)
    operators = _names_of_torch().union(kinds)
    named = {*over, *(taken for taken, _ in over.values())}
    hints = {storage: hint_of(graph, storage) for storage in named}
    gradients = {storage for storage, hint in hints.items() if hint.startswith("d_")}
    stems = {s: _stem(hint.removeprefix("d_"), operators) for s, hint in hints.items()}
    told = {s: stem for s, stem in stems.items() if stem not in operators}
    groups: dict[str, list[str]] = {}

    def speaker(group: Sequence[str]) -> str:
        """Return whose name says most: the user's, or that of a gradient's end, or of the maker."""
        plain = group[-1] if group[-1] in gradients else group[0]
        stem = next((told[one] for one in group if one in told), stems[plain])
        return next(one for one in group if stems[one] == stem)

    for name, (taken, in_place) in over.items():
        group = groups.setdefault(taken, [taken])
        says = {told[one] for one in (*group, name) if one in told}
        alike = len(says) <= 1 if in_place else stems[name] == stems[speaker(group)]
        if alike and (name in gradients) == (taken in gradients):
            group.append(name)
            groups[name] = group
    return {name: speaker(group) for name, group in groups.items()}


@cache
def _names_of_torch() -> frozenset[str]:
    """Return what values are called after functions and modules of torch alone."""
    functions = (name for name in dir(torch) if callable(getattr(torch, name)))
    modules = (name.lower() for name, found in vars(torch.nn).items() if isinstance(found, type))
    return frozenset((*functions, *modules))


def _stem(hint: str, operators: frozenset[str]) -> str:
    """Return a name without the operators at its end: of what `hidden_pow_mul` is made."""
    words = hint.split("_")
    ends = (i for i in range(1, len(words)) if "_".join(words[i:]) in operators)
    first = next(ends, len(words))
    stem = "_".join(words[:first])
    return stem if first == len(words) else _stem(stem, operators)


def _written_over(body: Body) -> dict[str, tuple[str, bool]]:
    """Return by storage which variable it is written over, and whether by a method of that one.

    Whatever one of the two functions makes in another way as well, or twice, is left out.
    """
    ways: dict[str, set[tuple[str, bool]]] = defaultdict(set)  # ("", False) is new memory
    twice: set[str] = set()
    for function in (body.forward, body.backward):
        made: set[str] = set()
        for statement in function.statements:
            for mark in find(assigned(statement.text)):
                ways[mark.name].add(_taken(statement))
                twice.update(made.intersection((mark.name,)))
                made.add(mark.name)
    ones = ((name, way) for name, (way, *others) in ways.items() if way[0] and not others)
    return {name: way for name, way in ones if twice.isdisjoint((name, way[0]))}


def _taken(statement: Statement) -> tuple[str, bool]:
    """Return the variable of all blocks that another one takes the memory of, or ""."""
    if not statement.over or statement.blocks:
        return "", False
    made, taken, *_ = find(statement.text)
    if not made.kind == taken.kind == "value":
        return "", False
    named = fill(statement.text, lambda mark: "x" if mark in (made, taken) else "y")
    return taken.name, without_assignment(named) != named


def without_assignment(line: str) -> str:
    """Return a call of a method in place without the assignment to the variable itself."""
    return _IN_PLACE.sub(r"\2", line)
