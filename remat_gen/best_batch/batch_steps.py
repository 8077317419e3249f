"""A model's step at any batch: one symbolic trace, costs modelled or measured at a few batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import torch

from remat_gen.ask.budget import Budget
from remat_gen.ask.request import Request
from remat_gen.ask.resident import resident
from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.load.load import Loaded
from remat_gen.capture.lower.shorter_steps import sized
from remat_gen.capture.profile.modelled import modelled_costs
from remat_gen.capture.profile.profile import profile
from remat_gen.capture.profile.targets import find_target
from remat_gen.capture.profile.timing import round_time_us
from remat_gen.capture.refuse.left_out import LeftOut
from remat_gen.capture.trace.resized_batch import at_batch, batch_of, batched_inputs, resized
from remat_gen.capture.trace.trace import Traced, trace_loaded
from remat_gen.ir.costs import Cost, Costs
from remat_gen.ir.errors import TraceError, UsageError
from remat_gen.ir.graph import Graph
from remat_gen.ir.plan import HostCopies
from remat_gen.plan.costing import load_for
from remat_gen.problem.host_copies_planned import with_host
from remat_gen.problem.step_problem import problem_of
from remat_gen.solver.law.problem import Problem
from remat_gen.terminal.progress import Step

ANCHORS = 3  # batches that are measured, each a quarter of the one above


@dataclass(slots=True)
class BatchSteps:
    """The step of `loaded` at any batch, for what `request` asks.

    What was traced for a `reach` of samples holds for all smaller batches; where a model works for
    one batch alone, it is traced for each. With `copies` values may go to the host.
    """

    request: Request
    loaded: Loaded
    tell: Callable[[str], Step]
    reach: int = 0
    copies: HostCopies | None = None
    _traced: Traced | None = None
    _fixed: dict[int, Traced] = field(default_factory=dict)
    _measured: dict[int, Costs] = field(default_factory=dict)

    @property
    def example(self) -> int:
        """Return the batch of the example."""
        return batch_of(self.loaded)

    @property
    def varies(self) -> bool:
        """Tell whether one trace is of all batches."""
        return self._batch_name() is not None

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Return what a plan leaves out of eager's step: eager's own peak is another one."""
        return self._traced.left_out if self._traced else ()

    @property
    def least(self) -> int:
        """Return the smallest batch that is looked at."""
        assert self._traced is not None
        lengths = self._traced.graph.lengths
        own = (n.minimum for n in lengths if n.name == self._batch_name())
        return min(own, default=self.example)

    def trace_for(self, batch: int) -> None:
        """Trace for batches up to this one."""
        self.tell("trace")(f"batch {batch}", 0, 1)
        dynamic = self.request.dynamic or None  # what is static, is so at the batch that is found
        self._traced = self._trace(batch, dynamic)
        self.reach = batch
        self._fixed.clear()
        if not self.varies:
            self._fixed[batch] = self._traced

    def limit(self, batch: int) -> int:
        """Return what activations may take at a batch, 0 where nothing is left for them."""
        limit = self.request.limit
        if isinstance(limit, Budget):
            return limit.resolve(0)
        with self._traced.held() if self._traced else nullcontext():
            found = resident(self.loaded)
        held = replace(found, inputs_bytes=-(-found.inputs_bytes * batch // self.example))
        try:
            usual = kind_of(self.loaded.device).headroom_bytes
            return limit.break_down(held, usual).activations_bytes
        except UsageError:
            return 0

    def problem(self, batch: int) -> Problem:
        """Return the scheduling problem of a batch."""
        graph = self._graph(batch)
        found = problem_of(graph, self._costs(graph, batch))
        return with_host(found, graph, self.copies) if self.copies else found

    def bare_problem(self, batch: int) -> Problem:
        """Return the problem of a batch whose operations take no time and no workspace."""
        graph = self._graph(batch)
        alignment = find_target(self.request.target).alignment_bytes if self.request.target else 1
        costs = {operation.name: Cost(0.0, 0) for operation in graph.operations}
        return problem_of(graph, Costs("", costs, alignment))

    def _graph(self, batch: int) -> Graph:
        if self._traced is not None and self.varies:
            graph, name = self._traced.graph, self._batch_name()
            numbers = tuple(batch if n.name == name else n.maximum for n in graph.lengths)
            return sized(graph, numbers)
        if batch not in self._fixed:
            self.tell("trace")(f"batch {batch}", 0, 1)
            self._fixed[batch] = self._trace(batch, ())
        return self._fixed[batch].graph

    def _trace(self, batch: int, dynamic: tuple[str, ...] | None) -> Traced:
        """Trace at a batch; tensors without values are others after a trace: they are made anew."""
        request, loaded = self.request, self.loaded
        if request.target:
            loaded = load_for(request)
        try:
            return trace_loaded(at_batch(loaded, batch), dynamic)
        except TraceError as error:
            if batch == self.example:
                raise
            raise TraceError(
                f"a batch of {batch}, which is tried here, cannot be traced: {error}; remat-gen "
                f"{request.model_file.name} --budget … plans the example's {self.example}"
            ) from error

    def _batch_name(self) -> str | None:
        """Return the name of the length that is the batch, None where it does not vary."""
        assert self._traced is not None
        wanted = {(path, 0) for path in batched_inputs(self.loaded)}
        lengths = self._traced.graph.lengths
        return next((n.name for n in lengths if wanted <= set(n.dims)), None)

    def _costs(self, graph: Graph, batch: int) -> Costs:
        if self.request.target:
            return modelled_costs(graph, find_target(self.request.target))
        below, above = self._anchors_around(batch)
        if below == above:
            return self._measure(above)
        return between(batch, (below, self._measure(below)), (above, self._measure(above)))

    def _anchors_around(self, batch: int) -> tuple[int, int]:
        """Return the measured batches that a batch is between, or nearest to."""
        anchors = sorted({max(self.least, self.reach >> (2 * k)) for k in range(ANCHORS)})
        if batch in anchors or not self.varies:
            return batch, batch
        if len(anchors) < 2:
            return anchors[0], anchors[0]
        k = next((k for k, n in enumerate(anchors) if n > batch), len(anchors) - 1)
        return anchors[max(k, 1) - 1], anchors[max(k, 1)]

    def _measure(self, batch: int) -> Costs:
        if batch not in self._measured:
            graph = replace(self._graph(batch), lengths=())  # each batch is one of its own here
            step = self.tell("profile")
            examples = self._examples(batch)
            self._measured[batch] = profile(graph, self.loaded.device, examples, step)
        return self._measured[batch]

    def _examples(self, batch: int) -> Mapping[str, torch.Tensor]:
        """Return the example's tensors at a batch, by tensor name."""
        traced = self._fixed.get(batch, self._traced)
        assert traced is not None
        found = traced.examples
        return {name: resized(t, batch) if t.ndim else t for name, t in found.items()}


def between(batch: int, low: tuple[int, Costs], high: tuple[int, Costs]) -> Costs:
    """Return costs at a batch, each on the straight line through two measured ones."""
    (a, below), (b, above) = low, high
    share = (batch - a) / (b - a)

    def cost(one: Cost, two: Cost) -> Cost:
        time_us = one.time_us + share * (two.time_us - one.time_us)
        nbytes = one.workspace_bytes + share * (two.workspace_bytes - one.workspace_bytes)
        time_us = round_time_us(max(time_us, 0.0))
        return Cost(time_us, max(0, -int(-nbytes // 1)), one.modelled or two.modelled)

    names = above.operations
    operations = {name: cost(below.operations[name], above.operations[name]) for name in names}
    return replace(above, operations=operations)
