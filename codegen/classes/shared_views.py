"""A chain of views that a value is read through more than once is written once, as a helper."""

from __future__ import annotations

import itertools
import keyword
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from remat_gen.capture.lower.naming import identifier
from remat_gen.codegen.classes.layer_numbers import without_numbers
from remat_gen.codegen.expressions.expressions import Expressions
from remat_gen.codegen.expressions.marks import MARK, Mark, fill, find, value
from remat_gen.codegen.expressions.spelling import METHODS
from remat_gen.codegen.statements.statements import Body, Function
from remat_gen.ir.graph import Graph
from remat_gen.ir.size import write

_LINK = re.compile(rf"\.(?:{'|'.join(sorted(METHODS))})\((?:[^()]|\([^()]*\))*\)(?:\[\d+\])?")
_CHAIN = re.compile(rf"{MARK.pattern}((?:{_LINK.pattern}){{2,}})")
_FEW = 3  # parts of a value
_WORDS = {
    "permute": "permuted",
    "transpose": "transposed",
    "t": "transposed",
    "select": "part_of",
    "split": "split",
    "split_with_sizes": "split",
    "unbind": "split",
    "expand": "expanded",
    "unsqueeze": "expanded",
    "squeeze": "squeezed",
}


@dataclass(frozen=True, slots=True)
class ViewHelper:
    """A function of one tensor: `name(parameter)` is `parameter` with the `chain` of views.

    `lengths` are parameters too, where the views depend on lengths that vary.
    """

    name: str
    parameter: str
    chain: str
    returns: str
    doc: str
    lengths: tuple[str, ...]


def share_views(
    graph: Graph, bodies: tuple[Body, ...], taken: frozenset[str]
) -> tuple[tuple[Body, ...], tuple[ViewHelper, ...]]:
    """Return the bodies with calls of helpers in them, and the helpers, in order of appearance."""
    uses = Counter(
        (mark.name, prefix)
        for body in bodies
        for text in _texts(body)
        for mark, links in _chains(text)
        for prefix in _prefixes(links)
    )
    counted = Counter((name, without_numbers(prefix)) for name, prefix in uses)
    # what each turn of a loop reads another part of is no helper: the turns would not be alike
    alone = {use: n for use, n in uses.items() if counted[use[0], without_numbers(use[1])] <= _FEW}
    helpers = _Helpers(graph, alone, set(taken), {})
    shared = tuple(helpers.rewrite_body(body) for body in bodies)
    return shared, tuple(helpers.made.values())


def _texts(body: Body) -> Iterator[str]:
    for function in (body.forward, body.backward):
        yield from (statement.text for statement in function.statements)
        yield from function.returns.values()


def _chains(text: str) -> Iterator[tuple[Mark, list[str]]]:
    for match in _CHAIN.finditer(text):
        yield find(match[0])[0], _LINK.findall(match[4])


def _prefixes(links: list[str]) -> list[str]:
    """Return the chains that a helper could take over, the shortest first.

    One that ends in a split makes all parts: which of them is read stays with the reader.
    """
    return ["".join(links[:n]).removesuffix(_index(links[n - 1])) for n in range(2, len(links) + 1)]


def _index(link: str) -> str:
    """Return the `[1]` of `.split(32, 2)[1]`, or ""."""
    return link[link.rindex(")") + 1 :]


@dataclass(slots=True)
class _Helpers:
    graph: Graph
    uses: Mapping[tuple[str, str], int]
    taken: set[str]
    made: dict[tuple[str, str], ViewHelper]  # by the hint of what is viewed, and the chain

    def rewrite_body(self, body: Body) -> Body:
        forward, backward = self._rewrite(body.forward), self._rewrite(body.backward)
        return replace(body, forward=forward, backward=backward)

    def _rewrite(self, function: Function) -> Function:
        statements = tuple(replace(s, text=self._shared(s.text)) for s in function.statements)
        returns = {key: self._shared(text) for key, text in function.returns.items()}
        return replace(function, statements=statements, returns=returns)

    def _shared(self, text: str) -> str:
        return _CHAIN.sub(self._call, text)

    def _call(self, match: re.Match[str]) -> str:
        mark = find(match[0])[0]
        chain = self._most_used(mark, _LINK.findall(match[4]))
        if not chain:
            return match[0]
        hint = self.graph.tensors[mark.name].hint or "value"
        if (hint, chain) not in self.made:
            self.made[hint, chain] = self._helper(mark, hint, chain)
        arguments = ", ".join(map(str, (mark, *dict.fromkeys(find(chain)))))
        return f"{self.made[hint, chain].name}({arguments}){match[4].removeprefix(chain)}"

    def _most_used(self, mark: Mark, links: list[str]) -> str:
        """Return the start of a chain that most readers share, the longest of those; or ""."""
        shared = [p for p in _prefixes(links) if self.uses.get((mark.name, p), 0) > 1]
        return max(shared, key=lambda p: (self.uses[mark.name, p], len(p)), default="")

    def _helper(self, mark: Mark, hint: str, chain: str) -> ViewHelper:
        last = _LINK.findall(chain)[-1]
        word = _WORDS.get(last[1:].partition("(")[0], "viewed")
        lengths = tuple(dict.fromkeys(found.name for found in find(chain)))
        seen = self._seen(mark.name, chain)
        chain = fill(chain, lambda found: found.name)
        before, after = self._shape(mark.name), self._shape(seen)
        sizes = "x".join(map(str, self.graph.tensors[seen].shape if seen else ()))
        name = self._name(f"{word}_{hint}", f"{word}_{hint}_{sizes}", f"{hint}_{identifier(chain)}")
        self.taken.add(name)
        parameter = f"{hint}_" if keyword.iskeyword(hint) or hint in lengths else hint
        returns, doc = "Tensor", f"View {before} as {after}."
        if word == "split":
            returns, doc = "tuple[Tensor, ...]", f"Split {before} into parts like {after}."
        return ViewHelper(name, parameter, chain, returns, doc, lengths)

    def _name(self, *names: str) -> str:
        """Return the first name that is free; the last one with a number where none is."""
        numbered = (f"{names[-1]}_{number}" for number in itertools.count(2))
        return next(n for n in itertools.chain(names, numbered) if n not in self.taken)

    def _shape(self, tensor: str | None) -> str:
        layout = self.graph.layouts.get(tensor) if tensor else None
        if layout is None:
            return str(list(self.graph.tensors[tensor].shape)) if tensor else "[]"
        return f"[{', '.join(write(size, str) for size in layout.shape)}]"

    def _seen(self, tensor: str, chain: str) -> str | None:
        """Return the tensor that a chain of views makes, or the first known part of a split."""
        expressions = Expressions(self.graph, value)
        whole = expressions.tensor(tensor) + chain
        seen = (
            view.tensor
            for view in self.graph.views
            if expressions.tensor(view.tensor) in (whole, f"{whole}[{view.index}]")
        )
        return next(seen, None)
