"""Model and example inputs to the graph of one training step."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import torch
from torch import nn

from remat_gen.capture.as_eager.attention import seeds_on_host
from remat_gen.capture.as_eager.causal_masks import masks_of_eager
from remat_gen.capture.as_eager.norms import with_dtypes_of_norms
from remat_gen.capture.as_eager.transformer_masks import looks_of_eager
from remat_gen.capture.device.absent import AbsentDevice
from remat_gen.capture.device.cudnn_norms import drop_copies_of_statistics
from remat_gen.capture.first_step.evaluation import turned_otherwise
from remat_gen.capture.first_step.first_run import FirstRun
from remat_gen.capture.fx.symbolic_sizes import Sizes
from remat_gen.capture.layouts.real_layouts import layouts_of_kernels
from remat_gen.capture.load.arguments import Call, describe_call, with_fixed
from remat_gen.capture.load.load import Loaded
from remat_gen.capture.load.shorter_call import at_lengths
from remat_gen.capture.load.stand_in import on_gpu, refused_autocast, say_on_gpu
from remat_gen.capture.load.step_context import Autocast, autocast_of, context_of
from remat_gen.capture.lower.kept_dims import drop_kept_dims
from remat_gen.capture.lower.lower import lower
from remat_gen.capture.lower.model_layers import layers_of
from remat_gen.capture.observe.default_dtype import DEFAULT_DTYPE, takes_default_dtype
from remat_gen.capture.observe.outputs import Returned, Taken, run_on_fakes
from remat_gen.capture.observe.repeats import Reads
from remat_gen.capture.observe.unread_numbers import unread
from remat_gen.capture.process.copies import copied
from remat_gen.capture.process.frames import in_large_chunk
from remat_gen.capture.process.garbage import fewer_collections
from remat_gen.capture.process.isolation import private_name
from remat_gen.capture.process.questions import anomaly_as_outside, first_as_eager
from remat_gen.capture.process.quiet import quiet
from remat_gen.capture.refuse.graph_refusals import (
    refuse_buffers_as_constants,
    refuse_operations,
    refuse_shared,
    refuse_unmaterialised,
    refuse_written,
)
from remat_gen.capture.refuse.host_draws import told_apart
from remat_gen.capture.refuse.left_out import LeftOut, backward_of_rnns
from remat_gen.capture.refuse.library_hooks import removed_afterwards
from remat_gen.capture.refuse.places import UNTRACED, built_in
from remat_gen.capture.refuse.reasons import explain
from remat_gen.capture.refuse.refusals import (
    hooks_aside,
    refuse_data_parallel,
    refuse_modules,
    refuse_other_self,
    refuse_seeds,
    refuse_subclasses,
)
from remat_gen.capture.repeated.all_layers import with_all_layers
from remat_gen.capture.repeated.repeated_layers import (
    Repeated,
    UnlikeError,
    left_out,
)
from remat_gen.capture.repeated.same_operations import lists_used_alike, refuse_unlike
from remat_gen.capture.trace.joint import Joint, TraceOptions, trace_joint
from remat_gen.capture.trace.lengths import asked_lengths, found_lengths, why_none_found
from remat_gen.capture.trace.observed_forward import observed
from remat_gen.capture.trace.plain_values import PlainValues
from remat_gen.capture.trace.symbolic import trace_lengths
from remat_gen.capture.values.cached import refuse_stale
from remat_gen.capture.values.kept_places import containers_in
from remat_gen.capture.values.recorded import Looks
from remat_gen.capture.values.scratch import recorded
from remat_gen.capture.values.side_effects import refused_side_effects
from remat_gen.capture.values.where_done import told_where
from remat_gen.ir.errors import TraceError
from remat_gen.ir.graph import Graph, Kind
from remat_gen.ir.size import Length

Dynamic: TypeAlias = Iterable[str] | Length | None


@dataclass(frozen=True, slots=True)
class Traced:
    """A traced step: its graph, its call, what it returned, and the example's own tensors.

    `reads` are what its forward reads beside them. `pinned` says why the batch is the example's
    alone, where one was looked for. `autocast` is what the step is called in. `left_out` is what
    the plan has not, though its numbers are the same. `values` names the buffers whose values
    decided what was traced, `left` what forward keeps on the model and a planned step does not:
    where it is `unset`, None stands there. The plain values in `put` stand there behind each step.
    `first` where its first run makes buffers that the trace takes as there. `turned` describes what
    is read as a first step, or one behind an evaluation, finds it, and forward undoes there.
    `waiting_bytes` are what eager holds where forward has ended, beyond what the graph has there.
    """

    graph: Graph
    call: Call
    returned: Returned
    examples: Mapping[str, torch.Tensor]
    strict: bool
    reads: Reads = field(default_factory=Reads)
    pinned: str = ""
    autocast: Autocast | None = None
    left_out: tuple[LeftOut, ...] = ()
    values: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    put: Mapping[str, Any] = field(default_factory=dict)
    first: FirstRun | None = None
    looks: Looks | None = None
    turned: Mapping[str, str] = field(default_factory=dict)
    waiting_bytes: int = 0

    @property
    def dynamic(self) -> tuple[str, ...]:
        """Return the dimensions that may be smaller than the example's: `("ids:0", …)`."""
        return tuple(f"{path}:{dim}" for n in self.graph.lengths for path, dim in n.dims)

    def held(self) -> AbstractContextManager[None]:
        """Let the model have for a while what the trace takes as there."""
        return self.first.held() if self.first else nullcontext()


@in_large_chunk
@fewer_collections()
def trace(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    source_file: Path | None = None,
    dynamic: Dynamic = (),
    stands_for: AbsentDevice | None = None,
    fixed: Iterable[str] = (),
    *,
    taken: Taken | None = None,
) -> Traced:
    """Trace one training step of `model(*args, **kwargs)`.

    The dimensions in `dynamic` may be smaller later (`("ids:0", "mask:0")`, or a length by its own
    name). With None it is the batch where there is one and the model allows it, else none, and the
    result says why. The numbers of `fixed` inputs are the same in each step, so that forward may
    read them. Fake tensors on the CPU may stand for those of a GPU (`stands_for`): the model says
    afterwards that it is there. Where forward makes buffers in its first step, the trace is of a
    later one. Of a part of a model the rest goes on with what is `taken` of what it returns and
    keeps: gradients come into these, and it must be as it is in its first step.

    Raises:
        TraceError: the model cannot be traced, with the user's line and the reason.
        UsageError: the call has no such dimension, or no such input to be fixed.
    """
    refuse_data_parallel(model)
    refuse_modules(model, stands_for)
    refuse_other_self(model)
    call = with_fixed(describe_call(model, args, kwargs), fixed)
    refuse_subclasses(model, ((leaf.path, leaf.value) for leaf in call.leaves))
    layouts = layouts_of_kernels(stands_for)
    built = built_in(source_file, model)
    with built, removed_afterwards(model), hooks_aside(model), context_of(model), layouts:
        again = partial(run_on_fakes, model, call.args, call.kwargs)
        file = _globals_of(source_file, model)
        with told_where(model, again), refused_autocast("forward", stands_for):
            found, first = observed(model, call, file, settles=taken is None)
        returned, reads, looks = found
        returned = replace(returned, taken=taken)
        if stands_for:
            _refuse_host_draws(model, call, looks)
        refuse_seeds(returned.seeded)
        returned.saving.refuse()
        refuse_stale(model, call, reads.caches, looks)
        source = str(source_file.resolve()) if source_file else ""
        step = _Step(model, call, returned, reads, source, stands_for, looks, first)
        with (
            first.held() if first else nullcontext(),
            masks_of_eager(returned.positions),
            looks_of_eager(returned.masks),
            anomaly_as_outside(),
            reads.caches.emptied(),
        ):
            traced = first_as_eager(returned.asked, lambda: step.traced_looking(dynamic))
        if first or taken is not None:
            return traced
        kept = bool(traced.left)
        return replace(traced, turned=turned_otherwise(model, call, traced.reads, tables=kept))


def trace_loaded(loaded: Loaded, dynamic: Dynamic = (), fixed: Iterable[str] = ()) -> Traced:
    """Trace the step of a model file."""
    with loaded.importable():
        return trace(
            loaded.model,
            loaded.args,
            loaded.kwargs,
            loaded.path,
            dynamic,
            loaded.stands_for,
            fixed,
        )


@dataclass(frozen=True, slots=True)
class _Found:
    """The graph of a trace; `pinned` as in `Traced`."""

    graph: Graph
    joint: Joint
    pinned: str = ""


@dataclass(frozen=True, slots=True)
class _Step:
    """A step that is about to be traced; `file` is the user's; `looks` are those at values."""

    model: nn.Module
    call: Call
    returned: Returned
    reads: Reads
    file: str
    stands_for: AbsentDevice | None
    looks: Looks | None
    first: FirstRun | None

    @property
    def options(self) -> TraceOptions:
        """Return how it is traced."""
        looks, reads = self.looks, self.reads
        looked_at, asks = (self.call, looks.asks) if looks else (None, False)
        kept = tuple(self.returned.kept)
        return TraceOptions(self.stands_for, looked_at, asks, reads.caches, reads.in_backward, kept)

    def traced_looking(self, dynamic: Dynamic) -> Traced:
        """Trace it; where only a trace looks at values, once more with those of a real run."""
        try:
            return self.traced(dynamic)
        except TraceError as error:
            looks = self.looks or recorded(self.model, self.call, error)
            if self.looks or not looks.is_needed:
                raise
            return replace(self, looks=looks).traced(dynamic)

    def traced(self, dynamic: Dynamic) -> Traced:
        """Trace it with the dimensions asked for; see `trace`."""
        lists = self.repeated_layers()
        if lists:
            try:
                return self.whole(self.repeated(lists, dynamic))
            except (TraceError, UnlikeError):  # whatever it is, the trace of all layers tells
                pass
        return self.whole(self.found(dynamic))

    def repeated(self, lists: tuple[Repeated, ...], dynamic: Dynamic) -> _Found:
        """Trace it with a few layers of these lists, and make the graph of all.

        Raises:
            TraceError: the few cannot be traced.
            UnlikeError: not all do the same, or not for the least lengths that the few allow.
        """
        with left_out(self.model, lists):
            found = self.found(dynamic)
        graph = with_all_layers(found.graph, lists)
        if graph.lengths:
            shortest = at_lengths(self.call, {n: n.minimum for n in graph.lengths})
            refuse_unlike(self.model, shortest, lists, self.reads.caches)
        return replace(found, graph=graph)

    def repeated_layers(self) -> tuple[Repeated, ...]:
        """Return the lists of layers of which a few tell of all: of forward, not of hooks."""
        if self.looks or self.first or self.call.fixed or self.reads.in_backward:
            return ()
        return lists_used_alike(self.model, self.call, self.reads)

    def found(self, dynamic: Dynamic) -> _Found:
        """Trace what the model holds now."""
        if isinstance(dynamic, Length):
            return self.varying((dynamic,))
        if dynamic is None:
            return self.as_far_as_possible(found_lengths(self.call))
        return self.varying(asked_lengths(self.call, dynamic)) if dynamic else self.fixed()

    def as_far_as_possible(self, lengths: tuple[Length, ...]) -> _Found:
        """Trace it for lengths up to the example's, or for those alone where it must be."""
        if not lengths:
            return replace(self.fixed(), pinned=why_none_found(self.call))
        try:
            return self.varying(lengths)
        except TraceError as refused:
            return replace(self.fixed(), pinned=str(refused).replace(UNTRACED, ""))
        except Exception as error:  # of torch's symbols: the example's numbers may do
            return replace(self.fixed(), pinned=f"no trace with others: {explain(error)}")

    def fixed(self) -> _Found:
        """Trace it for the example's shapes alone."""
        args, kwargs, differentiated = (
            self.call.args,
            self.call.kwargs,
            self.returned.differentiated,
        )
        joint = trace_joint(self.model, args, kwargs, differentiated, options=self.options)
        return self._lowered(joint, None)

    def varying(self, lengths: tuple[Length, ...]) -> _Found:
        """Trace it for lengths up to the example's."""
        if self.first:
            self.first.refuse_shorter(self.model, self.call, lengths)
        self._refuse_carried(lengths)
        joint, sizes, shapes = trace_lengths(
            self.model, self.call, self.returned.differentiated, lengths, self.options
        )
        with shapes.suppress_guards():
            return self._lowered(joint, sizes)

    def _lowered(self, joint: Joint, sizes: Sizes | None) -> _Found:
        nodes, leaves = joint.graph_module.graph, self.returned.leaves
        drop_kept_dims(nodes)
        drop_copies_of_statistics(nodes)
        had = {**self._attributes(), **dict(self.model.named_parameters())}
        known = {id(tensor): path for path, tensor in had.items()}
        told = known, self.reads.calls
        graph = lower(nodes, self.call, leaves, self.file, joint.strict, sizes, joint.checks, *told)
        return _Found(graph, joint)

    def _attributes(self) -> Mapping[str, torch.Tensor]:
        return {} if self.stands_for else self.reads.large_constants(self.model)

    def whole(self, found: _Found) -> Traced:
        """Return the trace of the model as it is, from what was found."""
        graph, joint, attributes = found.graph, found.joint, self._attributes()
        looks, kept = self.looks or Looks(), self.returned.kept
        refuse_written(graph, self.call.fixed)
        refuse_operations(graph)
        read = {i.path: attributes[i.path] for i in graph.inputs if i.kind is Kind.CONSTANT}
        refuse_shared(self.model, read)
        nodes = joint.graph_module.graph
        refuse_buffers_as_constants(self.model, graph, nodes, self.reads.tensors(self.model))
        refuse_unmaterialised(graph, asked=self.reads.unmaterialised)
        if self.first:
            self.first.refuse_written(graph)
        if not any(output.tangent for output in graph.outputs):
            raise TraceError("no output of the model requires grad: there is no backward to plan")
        if self.stands_for:
            graph = on_gpu(graph, self.stands_for)
            say_on_gpu(self.model, self.call, self.stands_for)
        graph = with_dtypes_of_norms(seeds_on_host(graph))
        graph = replace(graph, layers=layers_of(self.model, graph))
        numbers = [self._numbers_of(name) for name in joint.assumed]
        assumed = (*numbers, *[DEFAULT_DTYPE] * takes_default_dtype(graph))
        unset = [p for p in (*looks.kept, *looks.unset) if p not in kept]
        put, varying = self._put(graph)
        inside = tuple(f"{path.removesuffix('[:]')}[" for path in containers_in(put))
        left = [p for p in (*looks.left, *varying) if p not in kept and p not in put]
        return Traced(
            graph,
            self.call,
            self.returned,
            _examples(graph, self.call, read),
            joint.strict,
            self.reads.with_paths(assumed).by_layout(self._unread(read)),
            pinned=found.pinned,
            autocast=autocast_of(self.model),
            left_out=self._left_out(graph),
            values=joint.assumed,
            left=tuple(path for path in left if not path.startswith(inside)),
            unset=tuple(dict.fromkeys((*unset, *varying))),
            put=put,
            first=self.first,
            looks=self.looks,
        )

    def _numbers_of(self, name: str) -> str:
        """Return the path of a buffer, or of a frozen parameter's numbers: it has a row without."""
        return f"{name}.data" if name in dict(self.model.named_parameters()) else name

    def _put(self, graph: Graph) -> tuple[dict[str, Any], list[str]]:
        """Return the plain values that forward puts on modules; the paths of those that vary.

        What it reads as well is compared, so that it is as it was, or as it is behind a step.
        """
        same = self.reads.changed.keys()
        read = {*self.reads.paths, *(self.looks.kept if self.looks else ())} - same
        put = {p: v for p, v in self.returned.put.items() if read.isdisjoint((p, p.split("[")[0]))}
        return self._plain(put).by_lengths(graph.lengths)

    def _plain(self, put: Mapping[str, Any]) -> PlainValues:
        return PlainValues(self.model, self.call, put, self.looks)

    def _refuse_carried(self, lengths: tuple[Length, ...]) -> None:
        """Refuse lengths by which a step goes on otherwise than the one before has said."""
        plain = self._plain(self.returned.put)
        if not plain.put:
            return
        varying, read = plain.varying(lengths)
        if path := next((path for path in varying if path in read), ""):
            raise TraceError(
                f"forward reads self.{path} as the step before has left it, and sets it by the "
                "lengths of its inputs: make what goes by it in __init__, for the longest, and "
                "take a part of that; or pass it as an argument"
            )
        if path := next((p for p in varying if p in (self.looks or Looks()).containers), ""):
            raise TraceError(f"forward keeps more in self.{path} in longer steps")

    def _unread(self, read: Mapping[str, torch.Tensor]) -> Collection[str]:
        """Return the attributes whose numbers Python asks for not; where it looks at any, none."""
        looks = self.looks or self.first
        return () if looks else unread(self.model, self.call, self.returned, read)

    def _left_out(self, graph: Graph) -> tuple[LeftOut, ...]:
        return (*self.returned.saving.used.values(), *backward_of_rnns(self.model, graph))


def _refuse_host_draws(model: nn.Module, call: Call, looks: Looks | None) -> None:
    given = (*model.parameters(), *model.buffers(), *(leaf.value for leaf in call.leaves))
    with quiet(), refused_side_effects(model), told_apart(given) as draws:
        run_on_fakes(model, call.args, call.kwargs, looks, draws)


def _globals_of(source_file: Path | None, model: nn.Module) -> dict[str, Any]:
    """Return the globals of the user's file as the model has it: others may have imported it."""
    if source_file is None:
        return {}
    classes = dict.fromkeys(type(module).__module__ for module in model.modules())
    files = map(sys.modules.get, (*classes, private_name(source_file)))
    there = (vars(file) for file in files if file and _lies_at(file, source_file.resolve()))
    return next(there, {})


def _lies_at(file: ModuleType, place: Path) -> bool:
    return Path(getattr(file, "__file__", None) or "").resolve() == place


def _examples(
    graph: Graph, call: Call, attributes: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    values = {(Kind.INPUT, leaf.path): leaf.value for leaf in call.leaves}
    values |= {(Kind.CONSTANT, path): copied(tensor) for path, tensor in attributes.items()}
    places = {i.tensor: (i.kind, i.path) for i in graph.inputs}
    return {tensor: values[place] for tensor, place in places.items() if place in values}
