"""What a block does, as statements with marks in place of names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from remat_gen.codegen.expressions.marks import Mark, find
from remat_gen.ir.graph import Operation, Source


@dataclass(frozen=True, slots=True)
class Statement:
    """One line of code with marks, or the end of some values: `frees` has their bytes.

    `again` names what it rematerialises, `remade` bytes of it; `retained` bytes of what it makes
    stay for backward: those that it `keeps`, where that is not all. Where `blocks` are given, it
    is theirs alone of all that the class serves. `sent` bytes begin their way to the host, and
    `fetched` ones theirs back. `handed` bytes are gradients that leave. What is made `over` a
    variable is made over the first one that the call reads.
    """

    text: str = ""
    source: Source | None = None
    again: str = ""
    remade: int = 0
    retained: int = 0
    keeps: str = ""
    frees: tuple[tuple[Mark, int], ...] = ()
    blocks: tuple[int, ...] = ()
    sent: int = 0
    fetched: int = 0
    handed: int = 0
    over: bool = False

    def runs_in(self, block: int) -> bool:
        """Tell whether it is a block's, of those that the class serves."""
        return not self.blocks or block in self.blocks

    def marks(self) -> list[Mark]:
        """Return the marks in order of appearance, with repetitions; what is freed comes last."""
        return [*find(self.text + self.again), *(mark for mark, _ in self.frees)]

    @property
    def verb(self) -> str:
        """Return what stands behind the line, before the bytes, or ""."""
        moved = ("offload", self.sent), ("fetch", self.fetched), ("hand over", self.handed)
        words = (("retain", self.retained), *moved)
        found = next((word for word, nbytes in words if nbytes), "free" if self.nbytes else "")
        return "re-run" if self.again else found

    @property
    def does(self) -> str:
        """Return the verb, but for what becomes of results: that the code of others says."""
        return "" if self.verb in ("retain", "free") else self.verb

    @property
    def nbytes(self) -> int:
        """Return the bytes that stand behind the line."""
        moved = self.sent or self.fetched or self.handed
        return self.remade or self.retained or moved or sum(nbytes for _, nbytes in self.frees)


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """One half of a block: statements, and the expressions that it returns.

    `returns` are the model's outputs (forward of the last block), or by argument the gradients.
    Those of the arguments in `turns` are handed over by a `yield` each, before the function ends.
    """

    statements: tuple[Statement, ...]
    returns: Mapping[str, str]
    turns: tuple[tuple[str, ...], ...] = ()

    def marks(self) -> list[Mark]:
        """Return the marks in order of appearance, with repetitions; what is freed comes last."""
        texts = [s.text + s.again for s in self.statements] + list(self.returns.values())
        found = [mark for text in texts for mark in find(text)]
        return found + [mark for s in self.statements for mark, _ in s.frees]


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """What a block does.

    `operations` are the forward operations it runs first, `tangents` the incoming gradients of the
    model's outputs (the last block's only). `only_read` are the arguments whose gradients a later
    block has, or none: autograd, which sums what all blocks return, would hold those until this
    block's backward has run as well, and call hooks where no gradient comes.
    """

    block: int
    forward: Function
    backward: Function
    operations: tuple[Operation, ...]
    tangents: tuple[str, ...] = ()
    last: bool = False
    only_read: frozenset[str] = frozenset()

    def arguments(self) -> tuple[str, ...]:
        """Return the parameters, buffers and inputs that either half uses, or has gradients for."""
        marks = self.forward.marks() + self.backward.marks()
        names = [mark.name for mark in marks if mark.kind == "argument"]
        return tuple(dict.fromkeys((*names, *self.backward.returns)))
