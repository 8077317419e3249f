"""Trace a model into one joint forward-and-backward FX graph.

Dynamo first, because its graph carries the user's variable names; where it refuses, AOTAutograd
traces the module itself (non-strict), and `told_lines` tells it what Dynamo would.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import nn
from torch._dynamo.functional_export import dynamo_graph_capture_for_export
from torch._export.utils import _compiling_state_context
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils import _pytree as pytree

from remat_gen.capture.as_eager.autocast import casts_of_eager
from remat_gen.capture.as_eager.causal_masks import answered_no
from remat_gen.capture.as_eager.contraction_paths import paths_of_lengths
from remat_gen.capture.as_eager.distributions import unvalidated
from remat_gen.capture.as_eager.dropout import dropout_of_rnns
from remat_gen.capture.as_eager.kernels import calls_of_eager, kernels_of_eager
from remat_gen.capture.as_eager.older_torch import as_in_newest
from remat_gen.capture.as_eager.resampling import symbolic_resampling
from remat_gen.capture.as_eager.unpacking import name_items, rows_of_eager
from remat_gen.capture.device.absent import AbsentDevice
from remat_gen.capture.fx.inference_modes import without_inference_mode
from remat_gen.capture.fx.second_paths import tell_first_paths
from remat_gen.capture.layouts.written_in_place import layouts_of_written
from remat_gen.capture.load.arguments import Call
from remat_gen.capture.process.caches import Caches
from remat_gen.capture.process.generators import kept_generators
from remat_gen.capture.process.quiet import quiet
from remat_gen.capture.process.state import kept_state
from remat_gen.capture.refuse.reasons import explain
from remat_gen.capture.trace import operation_lines as told_lines
from remat_gen.capture.trace.failed_frames import drop_frames
from remat_gen.capture.trace.lengths_as_numbers import lengths_as_numbers
from remat_gen.capture.trace.ties import merge_ties
from remat_gen.capture.values.answered import Answering
from remat_gen.capture.values.held import kept_as_it_is
from remat_gen.capture.values.kept_places import values_at
from remat_gen.capture.values.looking import unanswered
from remat_gen.capture.values.looks import Look, run_looking
from remat_gen.capture.values.recorded import Looks, record
from remat_gen.ir.errors import TraceError, said

Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
_LOGGING = ("debug", "info", "warn", "error", "exception", "critical", "log")


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """How a step is traced, beside what it is called with.

    A model on the CPU that `stands_for` one on a GPU is traced with a GPU's kernels. Where forward
    looks at values, the call `looked_at` is run for them, and the trace goes on as it did; where it
    `asks` whether it is traced, it is told no. `caches` are emptied of what a trace leaves there.
    What forward leaves in the attributes `kept` is returned behind the rest.
    Where hooks or autograd functions run `in_backward`, AOTAutograd traces alone: Dynamo takes what
    they read when they are put on, drops them under `torch.func`, and gives zeros for None.
    """

    stands_for: AbsentDevice | None = None
    looked_at: Call | None = None
    asks: bool = False
    caches: Caches = field(default_factory=Caches)
    in_backward: bool = False
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Joint:
    """The joint graph; not `strict` where Dynamo refused: names of inputs begin with `model.`.

    `captured` is Dynamo's forward. The outputs behind the model's own are what `checks` looked at;
    the buffers in `assumed` were read.
    """

    graph_module: torch.fx.GraphModule
    strict: bool
    captured: torch.fx.GraphModule | None = None
    checks: tuple[Look, ...] = ()
    assumed: tuple[str, ...] = ()


def trace_joint(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    differentiated: frozenset[int],
    fakes: Arguments | None = None,
    options: TraceOptions = TraceOptions(),
) -> Joint:
    """Trace one training step; gradients flow in at the `differentiated` outputs.

    With `fakes`, the arguments once more as fake tensors, these give the shapes in the joint graph.

    The global generator, the state and the gradients of the model are left as they were. Each
    differentiated output leaves through an `aten.clone`, the others through an `aten.detach`:
    otherwise AOTAutograd gives no gradient to an output that is a view, one to two equal outputs,
    and one to outputs that nobody differentiates.

    Raises:
        TraceError: neither way of tracing accepts the model.
    """
    with (
        quiet(),
        kept_generators(),
        kept_state(model),
        dropout_of_rnns(),
        kernels_of_eager(options.stands_for),
        calls_of_eager(),
        casts_of_eager(),
        rows_of_eager(),
        as_in_newest(),
        unvalidated(),
        symbolic_resampling() if fakes else contextlib.nullcontext(),
        paths_of_lengths() if fakes else contextlib.nullcontext(),
    ):
        step = _Separated(model, differentiated, options.caches, options.kept)
        given = fakes or (args, kwargs)
        if options.looked_at is not None:
            told = answered_no() if options.asks else _compiling_state_context()
            with told:
                return _looking(step, options.looked_at, given)
        if options.in_backward:
            return _non_strict(step, given)
        try:
            return _strict(model, (args, kwargs), given, differentiated)
        except Exception as refused:  # Dynamo raises errors of many unrelated types
            drop_frames(refused)
            return _non_strict(step, given, refused)


def _strict(
    model: nn.Module, example: Arguments, given: Arguments, differentiated: frozenset[int]
) -> Joint:
    torch._dynamo.reset()
    args, kwargs = example
    # An assertion of a tensor would be an operation, which a plan has no use for.
    with torch._dynamo.config.patch(
        allow_rnn=True, ignore_logger_methods=_messages(), rewrite_assert_with_torch_assert=False
    ):
        captured = dynamo_graph_capture_for_export(model)(*args, **kwargs)
    without_inference_mode(captured.graph)
    tell_first_paths(captured.graph, model)
    captured.recompile()
    _separate(captured, differentiated)
    try:
        joint = _export(captured, *given)
    except RuntimeError as error:
        _note_lines(captured, error)
        raise
    name_items(captured, joint)
    return Joint(joint, strict=True, captured=captured)


def _messages() -> set[Callable[..., None]]:
    """Return what prints messages for people: left out of the trace, no reason to refuse it."""
    methods = vars(logging.Logger).items()  # transformers adds `warning_once`
    return {warnings.warn, *(method for name, method in methods if name.startswith(_LOGGING))}


def _note_lines(captured: torch.fx.GraphModule, error: RuntimeError) -> None:
    """Add the user's lines of the custom operators that an error names."""
    for node in captured.graph.nodes:
        custom = isinstance(node.target, torch._ops.OpOverload | torch._ops.OpOverloadPacket)
        if custom and str(node.target) in said(error):
            error.add_note(node.stack_trace or "")


def _separate(captured: torch.fx.GraphModule, differentiated: frozenset[int]) -> None:
    """Let the captured module return its leaves apart.

    Its graph returns each tensor once; what comes behind it, the rest of the user's own bytecode,
    makes the leaves out of them.
    """
    module: Any = captured
    codegen: Any = captured.graph._codegen
    unflatten = codegen.dynamo_bytecode_unflatten

    def leaves_apart(outputs: Any, inputs: Any) -> tuple[Any, ...]:
        return separated(unflatten(outputs, inputs), differentiated)

    codegen.dynamo_bytecode_unflatten = leaves_apart
    module._dynamo_bytecode_unflatten = leaves_apart
    captured.recompile()


def separated(value: object, differentiated: frozenset[int]) -> tuple[Any, ...]:
    """Return the leaves of what a model returns: a clone of those that take a gradient."""
    return tuple(
        leaf
        if not isinstance(leaf, torch.Tensor)
        else leaf.clone()
        if position in differentiated
        else leaf.detach()
        for position, leaf in enumerate(pytree.tree_leaves(value))
    )


def _non_strict(step: _Separated, given: Arguments, *refused: Exception) -> Joint:
    try:
        with _compiling_state_context():  # libraries ask `torch.compiler.is_compiling()`
            joint = _export_itself(step, given)
    except Exception as error:  # whatever it is, the user gets one readable reason
        raise TraceError(explain(*refused, error)) from error
    return Joint(joint, strict=False)


def _looking(step: _Separated, call: Call, given: Arguments) -> Joint:
    """Trace a forward that looks at values: Dynamo would not, whatever they are."""
    step.looks = looks = record(step.model, call)
    try:
        joint = _export_itself(step, given)
    except TraceError:
        raise
    except Exception as error:
        raise TraceError(explain(error)) from error
    return Joint(joint, strict=False, checks=tuple(step.checks), assumed=looks.assumed)


def _export_itself(step: _Separated, given: Arguments) -> torch.fx.GraphModule:
    with told_lines.backward_told(step.holding_traced), lengths_as_numbers(step.model):
        joint = _export(step, *_without_values(step.model, given))
    told_lines.name_items(joint)
    return joint


def _without_values(model: nn.Module, given: Arguments) -> Arguments:
    """Return arguments as fake tensors, of a mode that admits tensors which forward just holds."""
    leaves = [*pytree.tree_leaves(given), *model.parameters(), *model.buffers()]
    if any(isinstance(leaf, FakeTensor) for leaf in leaves):
        return given
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes: Arguments = pytree.tree_map_only(torch.Tensor, mode.from_tensor, given)
    return fakes


def _export(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> torch.fx.GraphModule:
    with contextlib.ExitStack() as stack, layouts_of_written():
        joint = aot_export_joint_with_descriptors(stack, module, args, kwargs).graph_module
        merge_ties(joint, module)
        return joint


class _Separated(nn.Module):
    """What `_separate` does, for a module that is traced without Dynamo."""

    def __init__(
        self,
        model: nn.Module,
        differentiated: frozenset[int],
        caches: Caches,
        kept: tuple[str, ...],
    ) -> None:
        super().__init__()
        self.model = model
        self.looks: Looks | None = None
        self.checks: list[Look] = []
        self.differentiated = differentiated
        self.caches = caches
        self.kept = kept
        self.traced: dict[str, torch.Tensor] = {}
        self.training = model.training

    def holding_traced(self) -> AbstractContextManager[object]:
        """Let the model hold what is traced: a function's backward may call it again."""
        return _reparametrize_module(self.model, dict(self.traced))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.traced = dict(self.model.named_parameters(remove_duplicate=False))
        answering = Answering(self.looks or Looks())
        kept = kept_as_it_is(self.model) if self.looks else contextlib.nullcontext()
        looking = answering.looking() if self.looks else unanswered()
        with self.caches.emptied(), kept, looking:
            value = run_looking(lambda: told_lines.run_told(self.model, args, kwargs))
            left = values_at(self.model, self.kept)
            leaves = separated((value, *left.values()), self.differentiated)  # it is taken back
        self.checks = [look for _, look in answering.checks]
        return *leaves, *(tensor for tensor, _ in answering.checks)
