"""What a block does, as statements with marks in place of names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from remat_gen.codegen.expressions.marks import Mark, find
from remat_gen.ir.graph import Operation, Source


@dataclass(frozen=True, slots=True)
class Statement:
    """One line of code with marks.

    `again` names what it rematerialises, `remade` bytes of it; `retained` bytes of what it makes
    stay for backward: those that it `keeps`, where that is not all; `freed` bytes go with it.
    `sent` bytes begin their way to the host, `fetched` ones theirs back.
    """

    text: str
    source: Source | None = None
    again: str = ""
    remade: int = 0
    retained: int = 0
    keeps: str = ""
    freed: int = 0
    sent: int = 0
    fetched: int = 0

    @property
    def verb(self) -> str:
        """Return what stands behind the line, before the bytes, or ""."""
        words = ("retain", self.retained), ("offload", self.sent), ("fetch", self.fetched)
        return next((word for word, nbytes in words if nbytes), "free" if self.freed else "")

    @property
    def nbytes(self) -> int:
        """Return the bytes of the verb."""
        return self.retained or self.sent or self.fetched or self.freed


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """One half of a block: statements, and the expressions that it returns.

    `returns` are the model's outputs (forward of the last block), or by argument the gradients.
    """

    statements: tuple[Statement, ...]
    returns: Mapping[str, str]

    def marks(self) -> list[Mark]:
        """Return the marks in order of appearance, with repetitions."""
        texts = [s.text + s.again for s in self.statements] + list(self.returns.values())
        return [mark for text in texts for mark in find(text)]


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """What a block does.

    `operations` are the forward operations it runs first, `tangents` the incoming gradients of the
    model's outputs (the last block's only). `only_read` are the arguments whose gradients a later
    block has: autograd, which sums what all blocks return, would hold those until this block's
    backward has run as well.
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
