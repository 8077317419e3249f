"""Forward before it is traced: what it returns and what it reads, without values where it can."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torch import nn

from remat_gen.capture.as_eager.causal_masks import Positions, masks_of_eager
from remat_gen.capture.first_step.first_run import FirstRun, first_run
from remat_gen.capture.load.arguments import Call, as_one
from remat_gen.capture.load.containers import in_others
from remat_gen.capture.observe.assumed import NOT_SET, describe
from remat_gen.capture.observe.outputs import Returned, run_for_real, run_on_fakes
from remat_gen.capture.observe.repeats import Reads, read_twice
from remat_gen.capture.process.caches import Caches
from remat_gen.capture.process.copies import copied_with
from remat_gen.capture.process.operands import lack_values
from remat_gen.capture.process.questions import watched_questions
from remat_gen.capture.process.quiet import quiet
from remat_gen.capture.refuse.kept_errors import KeptError
from remat_gen.capture.refuse.reasons import explain
from remat_gen.capture.refuse.refusals import refuse_replaced
from remat_gen.capture.trace.joint import TraceOptions, trace_joint
from remat_gen.capture.values.held import GONE, Held, files_of, kept_as_it_is
from remat_gen.capture.values.kept_places import is_attribute
from remat_gen.capture.values.recorded import Looks
from remat_gen.capture.values.scratch import recorded
from remat_gen.capture.values.side_effects import refused_side_effects
from remat_gen.capture.values.written import first_reads
from remat_gen.ir.errors import TraceError, said


def observed(
    model: nn.Module, call: Call, file: dict[str, Any], *, settles: bool
) -> tuple[tuple[Returned, Reads, Looks | None], FirstRun | None]:
    """Return what forward returns, reads and looks at; where its first run makes buffers, later.

    That run comes beside it, if it `settles`.

    Raises:
        TraceError: it does what a plan cannot do, or does not run.
    """
    forward = _Forward(model, call, file)
    try:
        found = forward.returned()
        refuse_replaced(found[0].replaced)
        return found, None
    except TraceError as refused:  # also for a buffer that is not there
        if not settles:
            raise
        first, why = first_run(model, call, refused), refused
    with first.held():
        returned, reads, looks = forward.returned()
        reads = first.compared(model, reads, why)
    refuse_replaced(tuple(name for name in returned.replaced if name not in first.again))
    return (returned, reads, looks), first


def _words(*values: object) -> tuple[str, str]:
    """Describe what stood somewhere before a step, and behind it."""
    before, after = (describe(NOT_SET if value is GONE else value) for value in values)
    return before, after


@dataclass(frozen=True, slots=True)
class _Forward:
    """A forward that is run before it is traced; `caches` are those that it may fill."""

    model: nn.Module
    call: Call
    file: dict[str, Any]
    caches: Caches = field(default_factory=Caches)

    def returned(self) -> tuple[Returned, Reads, Looks | None]:
        """Run it for what it returns and what it reads; refuse what a plan cannot do."""
        try:
            with kept_as_it_is(self.model):
                found = self._observed(None)
        except KeptError as error:
            looks = recorded(self.model, self.call, error)
            if not looks.left:
                raise
            found = self._observed(looks)
        returned, reads, answers = found
        return returned, self._gone_on_from(returned, reads, answers), answers

    def _observed(self, looks: Looks | None) -> tuple[Returned, Reads, Looks | None]:
        held = Held.by(self.model, files_of(self.model))
        with refused_side_effects(self.model):
            try:
                returned, reads = self._on_fakes(looks)
                put = {**returned.put, **held.literals()}
                return replace(returned, put=put), reads, looks
            except TraceError:
                raise
            except Exception as error:  # of the user's code, or fake tensors lack a kernel
                held.put_back()
                looks = self._refuse(error)
                if looks.is_needed:
                    return self._on_fakes_as_told(looks)
                if lack_values(self.model.state_dict().values()):
                    reason = f"forward does not run on tensors without values: {said(error)}"
                    raise TraceError(reason) from error
                return *self._for_real(), None

    def _on_fakes_as_told(self, looks: Looks) -> tuple[Returned, Reads, Looks]:
        """Run on fakes with answers; where what a library does when traced fails, as in a step.

        Raises:
            TraceError: neither runs.
        """
        try:
            return *self._on_fakes(looks), looks
        except TraceError:
            raise
        except Exception:
            looks = replace(looks, asks=True)
        try:
            return *self._on_fakes(looks), looks
        except TraceError:
            raise
        except Exception as error:
            raise TraceError(explain(error)) from error

    def _for_real(self) -> tuple[Returned, Reads]:
        model, args, kwargs = copied_with(
            self.model, (self.model, self.call.args, self.call.kwargs)
        )
        with refused_side_effects(model), watched_questions() as asked:
            try:
                returned, reads = read_twice(
                    model, self.file, lambda: run_for_real(model, args, kwargs), self.caches
                )
                return replace(returned, asked=asked), reads
            except TraceError:
                raise
            except Exception as error:  # of the user's code, where a tracer goes on
                raise TraceError(explain(error)) from error

    def _on_fakes(self, looks: Looks | None) -> tuple[Returned, Reads]:
        def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Returned:
            return run_on_fakes(self.model, args, kwargs, looks)

        call = self.call
        one, others = as_one(call), in_others(call)
        with quiet(), watched_questions() as asked:
            returned, reads = read_twice(
                self.model,
                self.file,
                partial(run, call.args, call.kwargs),
                self.caches,
                partial(run, *one) if one else None,
                partial(run, others.args, others.kwargs) if others else None,
            )
        returned = replace(returned, asked=asked)
        if reads.asks_identity and call.same:
            raise TraceError(
                f"the example gives one tensor as {' and '.join(call.same)}, and forward does "
                "something else then: let it take that once, as in forward(x), or give a clone() "
                "of it"
            )
        if others and others.asked_for_all:
            reads = replace(reads, asks_containers=True)
        elif others and not reads.asks_containers:
            reads = replace(reads, keys=others.asked)
        if looks is not None:
            first = set(reads.paths) - reads.changed.keys()  # what is read before it is written
            pairs = {p: both for p, both in looks.carried.items() if p in first}
            left = tuple(path for path in looks.left if path not in pairs)
            reads = reads.without(left, self.model)
            reads = replace(
                reads, changed=reads.changed | {p: _words(*b) for p, b in pairs.items()}
            )
        return returned, reads

    def _gone_on_from(self, returned: Returned, reads: Reads, looks: Looks | None) -> Reads:
        """Return the reads but for values on modules that forward reads once it has put them there.

        Such a one may be another behind the step: a condition that is cleared at the end.
        """
        paths = [path for path in returned.put if path in reads.paths and is_attribute(path)]
        if not paths:
            return reads
        try:
            with quiet(), kept_as_it_is(self.model), first_reads(self.model, paths) as first:
                run_on_fakes(self.model, self.call.args, self.call.kwargs, looks)
        except Exception:  # no kernel for fake tensors: forward ran for real
            return reads
        return reads.without(tuple(path for path in paths if path not in first), self.model)

    def _refuse(self, error: Exception) -> Looks:
        """Raise with the tracer's reason, unless the tracer accepts what fake tensors do not.

        Return what a real run finds where forward looks at values.
        """
        call, options = self.call, TraceOptions(caches=self.caches)
        try:
            # else a mask that eager has not may be what fails
            with masks_of_eager(Positions()), kept_as_it_is(self.model):
                trace_joint(self.model, call.args, call.kwargs, frozenset(), options=options)
        except TraceError as refused:
            looks = recorded(self.model, self.call, refused)
            if not looks.is_needed:
                raise refused from error
            return looks
        return Looks()
