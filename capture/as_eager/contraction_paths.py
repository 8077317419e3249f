"""Trace `torch.einsum` of three operands and more where opt_einsum chooses their order.

It takes sizes as plain numbers, which would make a trace right for the example's lengths alone.
Here it is asked with the example's, and again with each smaller length: the trace is right from the
least one on for which it gives the same order, since eager asks it in every step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch.backends import opt_einsum

from remat_gen.capture.process.replaced import replaced

Path: TypeAlias = Sequence[tuple[int, ...]]
_MOST = 4096  # smaller lengths that are tried: some 0.1 ms each


@contextlib.contextmanager
def paths_of_lengths() -> Iterator[None]:
    """Let sizes be symbolic where the order of a contraction is chosen."""
    library: Any = opt_einsum.get_opt_einsum()
    if library is None:
        yield
        return
    choose = library.contract_path

    def contract_path(equation: str, *operands: Any, **options: Any) -> tuple[Path, Any]:
        shapes = [tuple(operand.shape) for operand in operands]
        length = _only_length(shapes)
        if length is None:
            found: tuple[Path, Any] = choose(equation, *operands, **options)
            return found
        return _path_of(
            lambda n: choose(equation, *_at(shapes, length, n), shapes=True, **options), length
        )

    with replaced(library, "contract_path", contract_path):
        yield


def _only_length(shapes: Sequence[tuple[Any, ...]]) -> torch.SymInt | None:
    """Return the length that varies, if all sizes that vary follow from one."""
    sizes = [size for shape in shapes for size in shape if isinstance(size, torch.SymInt)]
    symbols = {symbol for size in sizes for symbol in size.node.expr.free_symbols}
    own = [size for size in sizes if {size.node.expr} == symbols and size.node.has_hint()]
    return own[0] if own else None


def _at(
    shapes: Sequence[tuple[Any, ...]], length: torch.SymInt, n: int
) -> Iterator[tuple[int, ...]]:
    """Yield the shapes for a length, as the library takes them in place of tensors."""
    for shape in shapes:
        exprs = (size.node.expr if isinstance(size, torch.SymInt) else size for size in shape)
        yield tuple(
            size if isinstance(size, int) else int(size.xreplace({length.node.expr: n}))
            for size in exprs
        )


def _path_of(choose: Callable[[int], tuple[Path, Any]], length: torch.SymInt) -> tuple[Path, Any]:
    """Return the example's path; the length gets a guard for where another one is chosen."""
    largest = least = int(length.node.hint)
    path, said = choose(largest)
    while least > max(1, largest - _MOST) and choose(least - 1)[0] == path:
        least -= 1
    torch._check(length >= least)  # of one, too, it says nothing that is not so
    return path, said
