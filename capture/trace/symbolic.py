"""Trace with symbolic lengths: the example's is the largest, any smaller one may come.

Torch is told not to guard where broadcasting and layouts differ for a length of 1 alone
(`backed_size_oblivious`): what the trace then does, a copy or a sum over one row, is right there
too.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import nn
from torch._dynamo.source import ConstantSource, TensorPropertySource
from torch._guards import SLoc, TracingContext
from torch._prims_common import is_non_overlapping_and_dense_or_false
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental import symbolic_shapes
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils import _pytree as pytree

from remat_gen.capture.fx.symbolic_sizes import Sizes
from remat_gen.capture.load.arguments import Call
from remat_gen.capture.process.copies import copied
from remat_gen.capture.process.libraries import acts_for_forward
from remat_gen.capture.process.replaced import replaced
from remat_gen.capture.process.state import kept_state
from remat_gen.capture.refuse.places import place_of
from remat_gen.capture.trace.joint import Joint, TraceOptions, trace_joint
from remat_gen.capture.trace.ranges import settled, values_of
from remat_gen.ir.size import Length

_SQUEEZES = frozenset(
    (torch.ops.aten.squeeze.default, torch.ops.aten.squeeze.dim, torch.ops.aten.squeeze.dims)
)


@dataclass(frozen=True, slots=True)
class Fakes:
    """A call with symbolic lengths: fake tensors in place of the example's.

    `are_parts` where one has strides of its own: of a single row they are not seen.
    """

    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    mode: FakeTensorMode
    symbols: Mapping[sympy.Symbol, str]  # the lengths they stand for
    are_parts: bool

    @property
    def shapes(self) -> ShapeEnv:
        """Return what torch knows of the symbols."""
        shapes = self.mode.shape_env
        assert shapes is not None  # `fakes_of` gave the mode one
        return shapes


def trace_lengths(
    model: nn.Module,
    call: Call,
    differentiated: frozenset[int],
    lengths: tuple[Length, ...],
    options: TraceOptions,
) -> tuple[Joint, Sizes, ShapeEnv]:
    """Trace a step for lengths up to the example's, and return what its sizes stand for.

    Raises:
        TraceError: it cannot be traced so, or is right for the example's lengths alone.
    """
    args, kwargs = marked(call, lengths)
    with fakes_in_place(model, call, lengths) as fakes:
        joint = trace_joint(model, args, kwargs, differentiated, fakes.arguments, options)
    squeezes = fakes.are_parts or squeezes_a_length(joint.graph_module.graph)
    if joint.captured is not None:  # first: its guards know the user's lines
        shapes = joint.captured.meta["fake_mode"].shape_env
        lengths = settled(lengths, shapes, dynamo_symbols(shapes, lengths), squeezes)
    lengths = settled(lengths, fakes.shapes, fakes.symbols, squeezes)
    nodes = inline_numbers(joint.graph_module.graph)
    return joint, Sizes(fakes.symbols, {n.name: n for n in lengths}, nodes), fakes.shapes


@contextlib.contextmanager
def fakes_in_place(model: nn.Module, call: Call, lengths: tuple[Length, ...]) -> Iterator[Fakes]:
    """Yield the call on fakes of these lengths, of one mode with the model's where it has some."""
    shapes_config: Any = torch.fx.experimental._config
    with shapes_config.patch(backed_size_oblivious=True), _all_guards(), _texts():
        fakes = fakes_of(call, lengths)  # told so, or a length would be taken for 2 at least
        with _state_in(model, fakes.mode):
            yield fakes


@contextlib.contextmanager
def _state_in(model: nn.Module, mode: FakeTensorMode) -> Iterator[None]:
    """Have a model without values in the mode of the lengths: torch traces fakes of one mode."""
    state = dict(model.named_parameters()) | dict(model.named_buffers())
    fakes: dict[str, torch.Tensor] = {
        name: mode.from_tensor(tensor, static_shapes=True)
        for name, tensor in state.items()
        if isinstance(tensor, FakeTensor)
    }
    with kept_state(model), _reparametrize_module(model, fakes, tie_weights=True):
        yield


@contextlib.contextmanager
def _all_guards() -> Iterator[None]:
    """Let torch record every guard, with the user's line.

    It leaves out what follows from the range that earlier guards allow, also from those that do
    not count here: after `batch >= 16` for a convolution, nothing would be said of a batch of 1.
    """

    def at_users_line(framework: Any, line: str | None) -> SLoc:
        """Return the place of a guard, with the user's line and not that of torch's modules."""
        frames = [(f.filename, f.lineno or 0) for f in TracingContext.extract_stack()]
        place = place_of(reversed(frames))
        return SLoc(framework, f"{place.own or place.inside} in forward" if str(place) else line)

    with (
        replaced(ShapeEnv, "_refine_ranges", _refine_nothing),
        replaced(symbolic_shapes, "SLoc", at_users_line),
    ):
        yield


@contextlib.contextmanager
def _texts() -> Iterator[None]:
    """Let a length whose text forward asks for (a key of a table) be the example's alone."""
    plain: Callable[[torch.SymInt], str] = torch.SymInt.__repr__

    def text(length: torch.SymInt) -> str:
        return str(int(length)) if acts_for_forward(sys._getframe(1)) else plain(length)

    with replaced(torch.SymInt, "__repr__", text):
        yield


def _refine_nothing(_shapes: ShapeEnv, _expression: object) -> None:
    return None


def marked(call: Call, lengths: Iterable[Length]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the call's arguments for Dynamo: copies, whose lengths it takes for symbolic."""
    dims = _dims(call, lengths)
    leaves, spec = pytree.tree_flatten((call.args, call.kwargs))
    for i, lengths_of in dims.items():
        leaves[i] = copied(leaves[i])
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
    are_parts = False
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
        if not is_non_overlapping_and_dense_or_false(leaf):
            leaves[i], are_parts = _as_part(leaf, leaves[i]), True
        for dim, length in varying.items():
            symbol = leaves[i].shape[dim].node.expr
            symbols[symbol] = length.name
            shapes.constrain_symbol_range(symbol, compiler_min=1, compiler_max=length.maximum)
    return Fakes(pytree.tree_unflatten(leaves, spec), mode, symbols, are_parts)


def _as_part(example: torch.Tensor, fake: FakeTensor) -> torch.Tensor:
    """Return the fake of a part of a larger tensor, whose strides do not follow from its shape.

    They are the example's; torch makes symbols of them, or takes one for a length as large.
    """
    with fake.fake_mode:
        made = torch.empty_strided(
            fake.shape, example.stride(), dtype=fake.dtype, device=fake.device
        )
    return made.requires_grad_(fake.requires_grad)


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
        for symbol, value in values_of(shapes).items()
        for sources in [shapes.var_to_sources.get(symbol, [])]
        if any(isinstance(source, TensorPropertySource) for source in sources)
        if int(value) in names
    }


def squeezes_a_length(joint: torch.fx.Graph) -> bool:
    """Tell whether a step squeezes a dimension that varies: it would be gone at a length of 1."""
    return any(
        isinstance(node.args[0].meta["val"].shape[dim], torch.SymInt)
        for node in joint.nodes
        if node.target in _SQUEEZES
        for dim in _squeezed(node)
    )


def _squeezed(node: torch.fx.Node) -> tuple[int, ...]:
    (tensor,) = node.all_input_nodes
    dims: tuple[Any, ...] = node.args[1:]
    if not dims:
        return tuple(range(tensor.meta["val"].ndim))
    (found,) = dims
    return (found,) if isinstance(found, int) else tuple(found)


def inline_numbers(joint: torch.fx.Graph) -> dict[sympy.Basic, torch.fx.Node]:
    """Put symbolic numbers into the arguments that read them; what computes them is then dead.

    Return that by the number.
    """
    found: dict[sympy.Basic, torch.fx.Node] = {}
    for node in joint.nodes:
        if _is_number(node):
            found.setdefault(node.meta["val"].node.expr, node)
        elif any(map(_is_number, node.all_input_nodes)):
            node.args = torch.fx.map_arg(node.args, _number)
            node.kwargs = torch.fx.map_arg(node.kwargs, _number)
    return found


def _is_number(node: torch.fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat)


def _number(node: torch.fx.Node) -> Any:
    return node.meta["val"] if _is_number(node) else node
