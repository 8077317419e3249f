"""Short names of values: the hint of what was traced, with more of the path where it is taken."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from types import MappingProxyType

from remat_gen.capture.lower.naming import identifier
from remat_gen.codegen.statements.statements import Body
from remat_gen.ir.graph import Graph, Kind
from remat_gen.ir.paths import Layers, without_turns

VERSION = "_version"  # behind a kept output's name: the version it had when it was kept
HOST = "_host"  # behind the name of a value that was sent: its copy
_TURNS = ("", "next", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


def hint_of(graph: Graph, storage: str) -> str:
    """Return the short name of a storage."""
    return graph.tensors[storage].hint or "value"


def kept_hint(graph: Graph, storage: str) -> str:
    """Return the short name of what a block keeps; a gradient that was summed is the gradient.

    Layers hand sums to each other and get a plain one from the last block: they stay alike.
    """
    hint = hint_of(graph, storage)
    summed = graph.storages[storage].kind is Kind.GRADIENT and hint.startswith("d_")
    return hint.removesuffix("_sum") if summed else hint


def turns_of(body: Body, layers: Layers) -> dict[str, str]:
    """Return which in turn each layer of a block is, in words: `next` for its second."""
    own = filter(None, dict.fromkeys(layers.of(o.module) for o in body.operations))
    return dict(zip(own, _TURNS, strict=False))


def free_name(
    layers: Layers,
    hint: str,
    path: str,
    taken: Collection[str],
    turns: Mapping[str, str] = MappingProxyType({}),
    made_by: str = "",
) -> str:
    """Return the hint, or more of what the path says: `x`, `x_drop`, `next_x`, `x_relu`, `mlp_x`.

    `turns` tells the layers of one block apart by their order, as the block may stand for several;
    `made_by` is the kind of operation, for a path that ends in the hint.
    """
    layer = layers.holding(path)
    turn = turns.get(layer, "")
    prefix = f"{turn}_" if turn else ""
    containers = [part for part in without_turns(layer).split(".") if not part.isdigit()]
    *parents, last = filter(None, [*containers, *layers.relative(path).split(".")])
    own = dict.fromkeys(name for name in (hint, identifier(last)) if hint in name)
    suffixes = ("_".join(parents[-n:]) for n in range(1, len(parents) + 1))
    paths = [identifier(suffix) for suffix in suffixes if not suffix[0].isdigit()]
    candidates = [
        *own,
        *(f"{prefix}{name}" for name in own),
        *(f"{prefix}{name}_{made_by}" for name in own if made_by and len(own) == 1),
        *(f"{prefix}{join(path, name)}" for join in _JOINS for name in own for path in paths),
    ]
    longest = f"{candidates[-1]}_{identifier(path)}"
    lengthened = (longest + "_" * n for n in itertools.count())
    names = (n for n in itertools.chain(candidates, lengthened) if not n.endswith(VERSION))
    return next(name for name in names if name not in taken)


def _overlapped(path: str, name: str) -> str:
    """Return a name with a path before it; what ends the path and begins the name stands once."""
    first = name.partition("_")[0]
    overlap = path == first or path.endswith(f"_{first}")
    return path + name[len(first) :] if overlap else f"{path}_{name}"


_JOINS = (_overlapped, "{}_{}".format)
