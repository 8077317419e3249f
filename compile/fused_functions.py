"""Compile a straight-line function of tensors. The generated module has the same text."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

Given = ParamSpec("Given")
Made = TypeVar("Made")


def compiled(part: Callable[Given, Made]) -> Callable[Given, Made]:
    """Compile a function of tensors, then of lengths, when it is first called.

    What it makes and does not return is never in memory. The first lengths get code of their own,
    without a look at the tensors at each call: the rest of their shapes is the plan's. All other
    lengths share code.
    """
    kinds = [kind for name, kind in part.__annotations__.items() if name != "return"]
    tensors = len(kinds) - kinds.count(int) - kinds.count("int")
    known: dict[tuple[object, ...], Callable[..., Any]] = {}

    @functools.cache
    def varying() -> Callable[..., Any]:
        return torch.compile(part, fullgraph=True, dynamic=True)

    @functools.wraps(part)
    def call(*given: Given.args, **_: Given.kwargs) -> Made:
        lengths = given[tensors:]
        function = known.get(lengths)
        if function is None:
            if known:
                function = functools.partial(with_lengths, varying(), lengths)
            else:
                function = fuse(part, given[:tensors], lengths)
            known[lengths] = function
        made: Made = function(*given[:tensors])
        return made

    return call


def fuse(
    part: Callable[..., Any], tensors: tuple[Any, ...], lengths: tuple[object, ...]
) -> Callable[..., Any]:
    """Compile a function for tensors like these."""
    from torch._inductor import compile as compile_graph
    from torch.fx.experimental.proxy_tensor import make_fx

    several = True

    def flat(*given: torch.Tensor) -> Any:
        nonlocal several
        made = part(*given, *lengths)
        several = not isinstance(made, torch.Tensor)
        return made if several else (made,)

    try:
        graph = make_fx(flat, tracing_mode="fake")(*tensors)
        fused: Callable[..., Any] = compile_graph(graph, list(tensors))
    except RuntimeError as error:
        raise RuntimeError(cannot_compile()) from error
    return fused if several else functools.partial(only_result, fused)


def with_lengths(function: Callable[..., Any], lengths: tuple[object, ...], *given: Any) -> Any:
    """Call a function of tensors and lengths, outside of modes that hear of each operator.

    Under one of these dynamo compiles nothing, and would never again.
    """
    if not torch._C._len_torch_dispatch_stack():
        return function(*given, *lengths)
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        return function(*given, *lengths)


def only_result(function: Callable[..., Any], *given: Any) -> Any:
    """Return the result of a function that makes a list of one."""
    return function(*given)[0]


def cannot_compile() -> str:
    """Say what to do where nothing can be compiled."""
    return "torch.compile does not work here"
