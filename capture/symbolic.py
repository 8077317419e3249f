"""Trace with symbolic lengths, and tell for which of them the trace holds.

The example is the largest. Torch records a guard for each decision that a symbolic length took
part in; the lengths from the example's downwards for which all of them hold are those that the
plan is for.

Torch is told not to guard where broadcasting and layouts differ for a length of 1 alone
(`backed_size_oblivious`): what the trace then does, a copy or a sum over one row, is right there
too. The same goes for two decisions that it guards all the same: how a reshape that cannot be a
view is done, and which convolution is picked, which the operator does again when it runs.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import sympy
import torch
from torch import nn
from torch._dynamo.source import ConstantSource, TensorPropertySource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)
from torch.utils import _pytree as pytree

from remat_gen.capture.arguments import Call
from remat_gen.capture.joint import Joint, trace_joint
from remat_gen.capture.sizes import Sizes
from remat_gen.ir.errors import TraceError
from remat_gen.ir.size import Length

_TORCH = Path(torch.__file__).parent
_KERNEL_CHOICES = frozenset({"conv"})  # functions of torch._subclasses.fake_impls
_OPERATORS = frozenset({"run_node", "functional_call"})  # of torch, below which C++ decides
_SQUEEZES = frozenset(
    (torch.ops.aten.squeeze.default, torch.ops.aten.squeeze.dim, torch.ops.aten.squeeze.dims)
)
_Guard: TypeAlias = Any  # torch.fx.experimental.symbolic_shapes.ShapeGuard
_PLACE = re.compile(r"([^\s/]+):(\d+) in ")


@dataclass(frozen=True, slots=True)
class Fakes:
    """A call with symbolic lengths: fake tensors in place of the example's."""

    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    mode: FakeTensorMode
    symbols: Mapping[sympy.Symbol, str]  # the lengths they stand for

    @property
    def shapes(self) -> ShapeEnv:
        """Return what torch knows of the symbols."""
        return self.mode.shape_env  # type: ignore[return-value]


def trace_lengths(
    model: nn.Module,
    call: Call,
    differentiated: frozenset[int],
    lengths: tuple[Length, ...],
) -> tuple[Joint, Sizes, ShapeEnv]:
    """Trace a step for lengths up to the example's, and return what its sizes stand for.

    Raises:
        TraceError: it cannot be traced so, or is right for the example's lengths alone.
    """
    fakes = fakes_of(call, lengths)
    args, kwargs = marked(call, lengths)
    shapes_config: Any = torch.fx.experimental._config
    with shapes_config.patch(backed_size_oblivious=True), _all_guards():
        joint = trace_joint(model, args, kwargs, differentiated, fakes.arguments)
    squeezes = squeezes_a_length(joint.graph_module.graph)
    if joint.captured is not None:  # first: its guards know the user's lines
        shapes = joint.captured.meta["fake_mode"].shape_env
        lengths = settled(lengths, shapes, dynamo_symbols(shapes, lengths), squeezes)
    lengths = settled(lengths, fakes.shapes, fakes.symbols, squeezes)
    inline_numbers(joint.graph_module.graph)
    return joint, Sizes(fakes.symbols, {n.name: n for n in lengths}), fakes.shapes


@contextlib.contextmanager
def _all_guards() -> Iterator[None]:
    """Let torch record every guard.

    It leaves out what follows from the range that earlier guards allow, also from those that do
    not count here: after `batch >= 16` for a convolution, nothing would be said of a batch of 1.
    """
    refine = ShapeEnv._refine_ranges
    ShapeEnv._refine_ranges = _refine_nothing  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        ShapeEnv._refine_ranges = refine  # type: ignore[method-assign]


def _refine_nothing(_shapes: ShapeEnv, _expression: object) -> None:
    return None


def marked(call: Call, lengths: Iterable[Length]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the call's arguments for Dynamo: copies, whose lengths it takes for symbolic."""
    dims = _dims(call, lengths)
    leaves, spec = pytree.tree_flatten((call.args, call.kwargs))
    for i, lengths_of in dims.items():
        leaves[i] = leaves[i].detach().clone().requires_grad_(leaves[i].requires_grad)
        for dim, length in lengths_of.items():
            torch._dynamo.mark_dynamic(leaves[i], dim, min=1, max=length.maximum)
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    return args, kwargs


def fakes_of(call: Call, lengths: Iterable[Length]) -> Fakes:
    """Return the call on fake tensors; dimensions of one length share one symbol."""
    dims = _dims(call, lengths)
    shapes = ShapeEnv()
    mode = FakeTensorMode(shape_env=shapes, allow_non_fake_inputs=True)
    symbols: dict[sympy.Symbol, str] = {}
    leaves, spec = pytree.tree_flatten((call.args, call.kwargs))
    for i, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor):
            continue
        varying = dims.get(i, {})
        leaves[i] = mode.from_tensor(
            leaf,
            symbolic_context=StatelessSymbolicContext(
                dynamic_sizes=[
                    DimDynamic.DUCK if dim in varying else DimDynamic.STATIC
                    for dim in range(leaf.ndim)
                ]
            ),
            source=ConstantSource(f"input_{i}"),
        )
        for dim, length in varying.items():
            symbol = leaves[i].shape[dim].node.expr
            symbols[symbol] = length.name
            shapes.constrain_symbol_range(symbol, compiler_min=1, compiler_max=length.maximum)
    return Fakes(pytree.tree_unflatten(leaves, spec), mode, symbols)


def _dims(call: Call, lengths: Iterable[Length]) -> dict[int, dict[int, Length]]:
    """Return by position of a leaf which of its dimensions have which length."""
    positions = {leaf.path: i for i, leaf in enumerate(call.leaves)}
    found: dict[int, dict[int, Length]] = {}
    for length in lengths:
        for path, dim in length.dims:
            found.setdefault(positions[path], {})[dim] = length
    return found


def dynamo_symbols(shapes: ShapeEnv, lengths: Iterable[Length]) -> dict[sympy.Symbol, str]:
    """Return the symbols that Dynamo made for lengths; which one it is, its value tells."""
    names = {length.maximum: length.name for length in lengths}
    return {
        symbol: names[int(value)]
        for symbol, value in _values(shapes).items()
        for sources in [shapes.var_to_sources.get(symbol, [])]
        if any(isinstance(source, TensorPropertySource) for source in sources)
        if int(value) in names
    }


def _values(shapes: ShapeEnv) -> Mapping[sympy.Symbol, sympy.Integer]:
    """Return the example's number for each symbol; torch 2.11 calls it otherwise."""
    found = getattr(shapes, "backed_var_to_val", None)
    return found if found is not None else shapes.var_to_val


def settled(
    lengths: Iterable[Length],
    shapes: ShapeEnv,
    symbols: Mapping[sympy.Symbol, str],
    squeezes: bool,
) -> tuple[Length, ...]:
    """Return lengths with the smallest that all guards of a trace hold for.

    `squeezes` tells whether the traced step squeezes a dimension that varies.

    Raises:
        TraceError: a length is pinned, or depends on another one; the message has the user's line.
    """
    guards = [guard for guard in shapes.guards if not _picks_a_kernel(guard)]
    _refuse_relations(guards, symbols)
    return tuple(_settle(length, guards, shapes, symbols, squeezes) for length in lengths)


def _settle(
    length: Length,
    guards: list[_Guard],
    shapes: ShapeEnv,
    symbols: Mapping[sympy.Symbol, str],
    squeezes: bool,
) -> Length:
    own = [symbol for symbol, name in symbols.items() if name == length.name]
    mine = [guard for guard in guards if not guard.expr.free_symbols.isdisjoint(own)]
    minimum = 2 if squeezes else length.minimum  # torch asks no guard there
    for guard in mine:
        low = next(
            (n for n in range(length.maximum, 0, -1) if not _holds(guard, n, own, shapes)), 0
        )
        if low == 1 and _is_of_an_operator(guard):
            continue
        if low >= length.maximum - 1:
            raise _pinned(length, guard)
        minimum = max(minimum, low + 1)
    return replace(length, minimum=minimum)


def _holds(guard: _Guard, number: int, own: list[sympy.Symbol], shapes: ShapeEnv) -> bool:
    values = dict(_values(shapes)) | dict.fromkeys(own, sympy.Integer(number))
    return bool(guard.expr.xreplace({s: values[s] for s in guard.expr.free_symbols}))


def _refuse_relations(guards: list[_Guard], symbols: Mapping[sympy.Symbol, str]) -> None:
    for guard in guards:
        names = {symbols[s] for s in guard.expr.free_symbols if s in symbols}
        if len(names) > 1:
            listed = " and ".join(sorted(names))
            raise TraceError(f"{_place(guard)}forward compares two lengths that vary: {listed}")


def _picks_a_kernel(guard: _Guard) -> bool:
    return getattr(guard.sloc.framework_loc, "name", "") in _KERNEL_CHOICES


def _is_of_an_operator(guard: _Guard) -> bool:
    return getattr(guard.sloc.framework_loc, "name", "") in _OPERATORS


def _pinned(length: Length, guard: _Guard) -> TraceError:
    dims = ", ".join(f"{path}:{dim}" for path, dim in length.dims)
    return TraceError(
        f"{_place(guard)}forward works for a {length.name} of {length.maximum} alone, or does "
        f"something else for smaller ones ({dims})"
    )


def _place(guard: _Guard) -> str:
    """Return `net.py:12: `, the user's line behind a guard, or "" where none is known."""
    frame = guard.sloc.framework_loc
    found = _PLACE.search(guard.sloc.maybe_user_loc or "")
    if found:
        return f"{found[1]}:{found[2]}: "
    if frame is None or isinstance(frame, str) or Path(frame.filename).is_relative_to(_TORCH):
        return ""
    return f"{Path(frame.filename).name}:{frame.lineno}: "


def squeezes_a_length(joint: torch.fx.Graph) -> bool:
    """Tell whether a step squeezes a dimension that varies: it would be gone at a length of 1."""
    return any(
        isinstance(node.args[0].meta["val"].shape[dim], torch.SymInt)
        for node in joint.nodes
        if node.target in _SQUEEZES
        for dim in _squeezed(node)
    )


def _squeezed(node: torch.fx.Node) -> tuple[int, ...]:
    tensor, *dims = node.args
    if not dims:
        return tuple(range(tensor.meta["val"].ndim))  # type: ignore[union-attr]
    (found,) = dims
    return (found,) if isinstance(found, int) else tuple(found)  # type: ignore[arg-type]


def inline_numbers(joint: torch.fx.Graph) -> None:
    """Put symbolic numbers into the arguments that read them; what computes them is then dead."""
    for node in joint.nodes:
        if any(map(_is_number, node.all_input_nodes)):
            node.args = torch.fx.map_arg(node.args, _number)
            node.kwargs = torch.fx.map_arg(node.kwargs, _number)


def _is_number(node: torch.fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat)


def _number(node: torch.fx.Node) -> Any:
    return node.meta["val"] if _is_number(node) else node
