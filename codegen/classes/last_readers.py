"""Blocks that differ in what they free alone: one is the last to read another block's value.

A decoder's layers read the first block's rotations; backward ends with the first layer, which frees
them. It is the same class: what is freed by some of its blocks stands under a condition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from remat_gen.codegen.classes.roles import kept_by_others
from remat_gen.codegen.expressions.marks import Mark, find
from remat_gen.codegen.statements.statements import Body, Function, Statement

_Frees = tuple[tuple[Mark, int], ...]


def frees_of_others(body: Body) -> frozenset[Mark]:
    """Return what of other blocks a body reads: whether it frees that tells it from no other."""
    texts = [
        text
        for function in (body.forward, body.backward)
        for text in (*(s.text for s in function.statements), *function.returns.values())
    ]
    read = {mark for text in texts for mark in find(text)}
    return frozenset(mark for mark in kept_by_others(body) if mark in read)


def gaps(function: Function) -> list[_Frees]:
    """Return what is freed before each statement that does something, and at the end."""
    found: list[_Frees] = [()]
    for statement in function.statements:
        if statement.text:
            found.append(())
        else:
            found[-1] += statement.frees
    return found


def with_frees(bodies: Sequence[Body]) -> tuple[Body, ...]:
    """Return bodies with the same statements: what some free is freed by those blocks."""
    numbers = [_numbers(body) for body in bodies]
    halves = zip(
        _half([body.forward for body in bodies], bodies, numbers),
        _half([body.backward for body in bodies], bodies, numbers),
        strict=True,
    )
    return tuple(
        replace(body, forward=forward, backward=backward)
        for body, (forward, backward) in zip(bodies, halves, strict=True)
    )


def _numbers(body: Body) -> dict[Mark, int]:
    """Number what may be freed by some: the same number stands for the same in each body."""
    foreign = frees_of_others(body)
    found = [mark for mark in kept_by_others(body) if mark in foreign]
    return {mark: number for number, mark in enumerate(found)}


def _half(
    functions: Sequence[Function], bodies: Sequence[Body], numbers: Sequence[dict[Mark, int]]
) -> Iterator[Function]:
    blocks = [body.block for body in bodies]
    found = [list(gap) for gap in zip(*map(gaps, functions), strict=True)]
    freeing = [_freeing(gap, blocks, numbers) for gap in found]
    for function, gap_of, own in zip(functions, zip(*found, strict=True), numbers, strict=True):
        marks = {number: mark for mark, number in own.items()}
        code = [s for s in function.statements if s.text]
        statements: list[Statement] = []
        for i, (frees, by) in enumerate(zip(gap_of, freeing, strict=True)):
            statements += _frees(frees, by, marks, own, all_blocks=tuple(blocks))
            statements += code[i : i + 1]
        yield replace(function, statements=tuple(statements))


def _freeing(
    gap: Sequence[_Frees], blocks: Sequence[int], numbers: Sequence[dict[Mark, int]]
) -> dict[int, tuple[int, ...]]:
    """Return by number which blocks free it in this place."""
    found: dict[int, list[int]] = {}
    for frees, block, own in zip(gap, blocks, numbers, strict=True):
        for mark, _ in frees:
            if mark in own:
                found.setdefault(own[mark], []).append(block)
    return {number: tuple(by) for number, by in found.items()}


def _frees(
    frees: _Frees,
    freeing: dict[int, tuple[int, ...]],
    marks: dict[int, Mark],
    numbers: dict[Mark, int],
    *,
    all_blocks: tuple[int, ...],
) -> Iterator[Statement]:
    """Yield what all blocks free, then what some do."""
    nbytes = dict(frees)
    some = {n: by for n, by in freeing.items() if by != all_blocks}
    common = tuple((mark, size) for mark, size in frees if numbers.get(mark) not in some)
    if common:
        yield Statement(frees=common)
    for by in dict.fromkeys(some.values()):
        of = (marks[number] for number, blocks in some.items() if blocks == by)
        yield Statement(frees=tuple((mark, nbytes.get(mark, 0)) for mark in of), blocks=by)
