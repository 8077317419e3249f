"""What a block is given: parameters and buffers of the model, by path, and inputs of the call.

Fetching parameters from modules takes longer than all else that a small block does in Python. So
a step finds them once: while no object of the model is another, they are the same.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field

from remat_gen.codegen.classes.arrange import BlockClass
from remat_gen.codegen.classes.class_names import layer_of_class
from remat_gen.codegen.expressions.expressions import quoted
from remat_gen.codegen.statements.kept_outputs import kept_paths
from remat_gen.codegen.statements.statements import Body
from remat_gen.ir.graph import Graph, Input, Kind
from remat_gen.ir.paths import without_turns

_PLAIN = re.compile(r"[^\s=:]+")  # paths that need no marks
_ONE = re.compile(r"\S+")
_MODEL = -1  # in place of a place's number


@dataclass(slots=True)
class Given:
    """Writes what the blocks of a class are given; `names` are those that their code uses.

    A block stands for one or several `places`, layers mostly; the paths of parameters start there,
    or at the model.
    """

    graph: Graph
    block_class: BlockClass
    names: Mapping[str, str]  # of arguments
    places: Mapping[int, tuple[str, ...]] = field(init=False)  # by block
    _start: list[int] = field(init=False)  # of each parameter, and what is kept: where it starts

    def __post_init__(self) -> None:
        bodies = self.block_class.bodies
        rows = [list(map(self.graph.layers.holding, self._paths(body))) for body in bodies]
        columns = list(zip(*rows, strict=True))
        called = layer_of_class(self.block_class, self.graph.layers)
        main = without_turns(called)
        own = {(main,) * len(bodies)} if len(bodies) == 1 or main != called else set()
        varying = [c for c in dict.fromkeys(columns) if c in own or len(set(c)) > 1]
        self._start = [varying.index(c) if c in varying else _MODEL for c in columns]
        self.places = {
            body.block: tuple(column[i] for column in varying) for i, body in enumerate(bodies)
        }

    def _paths(self, body: Body) -> list[str]:
        """Return the paths of a body's parameters and buffers, then of what it keeps."""
        owned = [i.path for i in of_model(self.graph, body)]
        return owned + kept_paths(self.graph, body.forward.returns)

    def words(self) -> dict[str, str]:
        """Write the lists of a class: its own parameters, borrowed ones, what only forward reads.

        Borrowed are those that another block has the gradient of. What forward `keeps` on the
        model comes last.
        """
        body = self.block_class.body
        owned, kept = of_model(self.graph, body), kept_paths(self.graph, body.forward.returns)
        written = map(self._word, owned, self._start)
        words = dict(zip((i.tensor for i in owned), written, strict=True))
        borrowed = [tensor for tensor in words if tensor in body.only_read]
        inputs = read_in_order(self.graph, body)[len(owned) :]
        words |= {i.tensor: self.names[i.tensor] for i in inputs}
        read = {m.name for m in body.backward.marks() if m.kind == "argument"}
        lists = {
            "parameters": [i.tensor for i in owned if i.tensor in read - body.only_read],
            "forward_only": [tensor for tensor in words if tensor not in read],
            "borrowed": borrowed,
        }
        given = {name: [words[t] for t in found] for name, found in lists.items()}
        given["keeps"] = list(map(self._place, kept, self._start[len(owned) :]))
        return {name: word_list(found) for name, found in given.items() if found}

    def _word(self, found: Input, start: int) -> str:
        """Write `attn.qkv.weight`, called `qkv_weight`, or `name=path`; `model:path` elsewhere."""
        name, place = self.names[found.tensor], self._place(found.path, start)
        usual = short_name(place.rpartition(":")[2]) == name and place[:2] != "0:"
        return place if usual else f"{name}={place}"

    def _place(self, path: str, start: int) -> str:
        """Write where something stands: `attn.weight`, `1:weight` in the second of the places."""
        places = self.places[self.block_class.body.block]
        path = path if start == _MODEL else self.graph.layers.relative(path)
        where = "model:" if start == _MODEL and any(places) else f"{start}:" if start > 0 else ""
        return f"{where}{path}" if where or _PLAIN.fullmatch(path) else f"0:{path}"

    def arguments(self, body: Body) -> list[str]:
        """Write the arguments of a block's run: its places, then the inputs by name."""
        places = map(quoted, self.places[body.block] if any(self.places[body.block]) else ())
        first = read_in_order(self.graph, self.block_class.body)
        pairs = zip(first, read_in_order(self.graph, body), strict=True)
        inputs = (
            f"{self.names[i.tensor]}={own.path}" + ".detach()" * (own.tensor in body.only_read)
            for i, own in pairs
            if own.kind is Kind.INPUT
        )
        return [*places, *inputs]


def short_name(path: str) -> str:
    """Return `qkv_weight` for `attn.qkv.weight`, `conv_0_weight` for `conv.0.weight`."""
    return re.sub(r".*?(?=([^.]+\.)?(\d+\.)*[^.]+$)", "", path, count=1).replace(".", "_")


def read_in_order(graph: Graph, body: Body) -> list[Input]:
    """Return what a block is given: what it has gradients of, what is only read, inputs."""
    inputs = {i.tensor: i for i in graph.inputs}

    def place(read: Input) -> int:
        return 2 if read.kind is Kind.INPUT else int(read.tensor in body.only_read)

    return sorted((inputs[argument] for argument in body.arguments()), key=place)


def of_model(graph: Graph, body: Body) -> list[Input]:
    """Return the parameters and buffers that a block is given."""
    return [i for i in read_in_order(graph, body) if i.kind is not Kind.INPUT]


def word_list(words: list[str]) -> str:
    """Write a list of words: split at spaces, where none has one."""
    if not all(_ONE.fullmatch(word) for word in words):
        return f"[{', '.join(map(quoted, words))}]"
    lines = textwrap.wrap(" ".join(words), 86, break_long_words=False, break_on_hyphens=False)
    text = " ".join(quoted(f"{line} ") for line in lines[:-1]) + " " + quoted(lines[-1])
    return f"({text}).split()" if len(lines) > 1 else f"{text.strip()}.split()"
