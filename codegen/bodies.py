"""A schedule's segments as statements with marks: what each block does forward and backward."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from remat_gen.codegen.expressions import BATCH_NORM, Expressions
from remat_gen.codegen.in_place import InPlace
from remat_gen.codegen.lifetimes import Lifetimes, moments
from remat_gen.codegen.marks import Mark, argument, find, kept, tangent, value
from remat_gen.codegen.reach import partly_reached
from remat_gen.codegen.sizes import size
from remat_gen.codegen.statements import Body, Function, Statement
from remat_gen.ir.graph import Graph, Kind, Operation, Output, refs_in
from remat_gen.solver.problem import Held, Problem
from remat_gen.solver.schedule import Free, Run, Schedule


def _with_only_read(bodies: Iterable[Body]) -> tuple[Body, ...]:
    """Find the arguments of each block that a later one has the gradient of."""
    bodies = tuple(bodies)
    returned = {name: body.block for body in bodies for name in body.backward.returns}

    def only_read(body: Body) -> frozenset[str]:
        return frozenset(a for a in body.arguments() if returned.get(a, -1) > body.block)

    return tuple(replace(body, only_read=only_read(body)) for body in bodies)


def write_bodies(graph: Graph, problem: Problem, schedule: Schedule) -> tuple[Body, ...]:
    """Write every block of a schedule."""
    return BodyWriter(graph, problem, schedule).run()


@dataclass(slots=True)
class BodyWriter:
    """Writes the blocks of a schedule, step by step."""

    graph: Graph
    problem: Problem
    schedule: Schedule
    lifetimes: Lifetimes = field(init=False)
    expressions: Expressions = field(init=False)
    in_place: InPlace = field(init=False)
    index: dict[str, int] = field(init=False)
    steps: list[Run | Free | None] = field(init=False)
    moment: int = 0
    ran: set[int] = field(default_factory=set)
    dropped: set[int] = field(default_factory=set)  # results that no variable was given to
    taken_over: set[int] = field(default_factory=set)  # values that a result is written over
    statements: list[Statement] = field(default_factory=list)
    returns: dict[str, str] = field(default_factory=dict)
    copied: set[str] = field(default_factory=set)  # storages that leave as a gradient already
    partly: dict[str, tuple[int, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self.lifetimes = Lifetimes(self.problem, self.schedule)
        self.expressions = Expressions(self.graph, self._place)
        self.in_place = InPlace(self.graph, self.problem, self.schedule)
        self.partly = partly_reached(self.graph)
        self.index = {v.name: i for i, v in enumerate(self.problem.values)}
        self.steps = [step for _, _, step in moments(self.schedule)]

    def run(self) -> tuple[Body, ...]:
        count = self.schedule.block_count
        functions: list[Function] = []
        current = 0
        self._begin_segment(0)
        for moment, segment, step in moments(self.schedule):
            if segment != current:
                functions.append(self._end_segment(current))
                current = segment
                self.moment = moment
                self._begin_segment(segment)
            self.moment = moment
            if isinstance(step, Run):
                self._run(segment, step.operation)
            elif isinstance(step, Free):
                self._free(step.value)
        functions.append(self._end_segment(current))
        tangents = tuple(dict.fromkeys(o.tangent for o in self.graph.outputs if o.tangent))
        return _with_only_read(
            Body(
                block=k,
                forward=functions[k],
                backward=functions[2 * count - 1 - k],
                operations=self._operations(k),
                tangents=tangents if k == count - 1 else (),
                last=k == count - 1,
            )
            for k in range(count)
        )

    def _operations(self, block: int) -> tuple[Operation, ...]:
        steps = self.schedule.segments[block].steps
        runs = dict.fromkeys(step.operation for step in steps if isinstance(step, Run))
        operations = (self.graph.operations[p] for p in runs)
        return tuple(o for o in operations if o.target != "remat.rng_state")

    # -- segments ------------------------------------------------------------------------

    def _begin_segment(self, segment: int) -> None:
        self.statements, self.returns, self.copied = [], {}, set()
        if segment == self.schedule.block_count:
            for v in self.problem.given:
                if self.lifetimes.at(v, self.moment).crosses:
                    name = self.problem.values[v].name
                    self.statements.append(Statement(f"{self._place(name)} = {tangent(name)}"))
        if segment >= self.schedule.block_count:
            self._check_outputs(segment)

    def _check_outputs(self, segment: int) -> None:
        """Outputs are the user's: what backward reads of them must not have been written since."""
        for v in self._outputs_read_in(segment):
            mark = self._place(self.problem.values[v].name)
            self.statements.append(Statement(f"check_output({mark}, {mark}_version)"))

    def _outputs_read_in(self, segment: int) -> list[int]:
        read = {
            v
            for step in self.schedule.segments[segment].steps
            if isinstance(step, Run)
            for v in self.problem.operations[step.operation].inputs
        }
        held = self.problem.values
        return sorted(
            v
            for v in read
            if held[v].held is Held.STEP
            and v not in self.problem.given
            and self.lifetimes.at(v, self.moment).crosses
        )

    def _end_segment(self, segment: int) -> Function:
        if segment == self.schedule.block_count - 1:
            self._leave_outputs()
        if segment >= self.schedule.block_count:
            self._leave_gradients(segment)
            self._release_held(segment)
        statements = list(self.statements)
        while statements and _only_locals_die(statements[-1]):
            statements.pop()  # they die with the function anyway
        return Function(tuple(statements), dict(self.returns))

    def _leave_outputs(self) -> None:
        read_later = {
            v
            for s in range(self.schedule.block_count, 2 * self.schedule.block_count)
            for v in self._held_outputs_read(s)
        }
        left: set[Output] = set()
        for i, output in enumerate(self.graph.outputs):
            if output.tensor is None or output in left:
                continue
            if self.graph.storage_of(output.tensor).kind.outside:
                continue
            left.add(output)
            storage = self.graph.storage_of(output.tensor).name
            text = self.expressions.tensor(output.tensor)
            mark = self._place(storage)
            if (mark.kind == "kept" and text == str(mark)) or text in self.returns.values():
                # what is kept must not get a history, or it would hold its own graph; and what
                # eager returns detached beside its original is a tensor of its own
                text += ".detach()"
            self.returns[str(i)] = text
            if self.index[storage] in read_later:
                self.statements.append(Statement(f"{mark}_version = {mark}._version"))

    def _held_outputs_read(self, segment: int) -> list[int]:
        steps = self.schedule.segments[segment].steps
        runs = [step.operation for step in steps if isinstance(step, Run)]
        read = {v for p in runs for v in self.problem.operations[p].inputs}
        return [v for v in read if self.problem.values[v].held is Held.STEP]

    def _leave_gradients(self, segment: int) -> None:
        for gradient in self.graph.gradients:
            if gradient.tensor is None:
                continue
            storage = self.graph.storage_of(gradient.tensor)
            if self._leaves_in(storage.name, segment):
                text = self.expressions.tensor(gradient.tensor)
                if storage.name in self.copied or storage.kind is not Kind.GRADIENT:
                    text += ".clone()"  # two parameters must not share one gradient
                self.copied.add(storage.name)
                if gradient.of in self.partly:
                    outputs = ", ".join(map(str, self.partly[gradient.of]))
                    text += f" if gradient_came(ctx, {outputs}) else None"
                self.returns[gradient.of] = text

    def _release_held(self, segment: int) -> None:
        """Let go of incoming gradients that were kept for a later block, after their last use."""
        for v in self.problem.given:
            lifetime = self.lifetimes.at(v, self.moment)
            if lifetime.crosses and lifetime.end_segment == segment:
                self._free(v)

    def _leaves_in(self, storage: str, segment: int) -> bool:
        """Tell whether a gradient is made in this segment (for the step's first block: given)."""
        if storage not in self.index:
            return segment == 2 * self.schedule.block_count - 1
        first = self.lifetimes.by_value[self.index[storage]][0].begin_segment
        return max(first, self.schedule.block_count) == segment

    # -- steps ---------------------------------------------------------------------------

    def _run(self, segment: int, p: int) -> None:
        operation = self.graph.operations[p]
        again = p in self.ran
        self.ran.add(p)
        if operation.target == "remat.rng_state" and not self._reruns_reader(p):
            self.dropped.update(self.problem.operations[p].outputs)
            return
        if self.in_place.updates(p):
            self.dropped.update(self.problem.operations[p].outputs)
            text = self.expressions.call_in_place(operation, 0)
            self.statements.append(Statement(text, source=operation.source))
            return
        targets, call = self._targets(operation, self._call(p, again=again))
        text = f"{', '.join(targets)} = {call}" if targets else call
        statement = Statement(text, source=operation.source)
        if again:
            made = self._kept_outputs(operation)
            names = ", ".join(str(self._place(name)) for name in made)
            statement = replace(statement, again=names, nbytes=self._bytes(made))
        elif segment < self.schedule.block_count:
            nbytes = self._retained(operation)
            comment = f"retain {size(nbytes)}" if nbytes else ""
            statement = replace(statement, comment=comment, retained=nbytes)
        self.statements.append(statement)
        if not again:
            self._write_back(operation)

    def _call(self, p: int, *, again: bool) -> str:
        operation = self.graph.operations[p]
        position = self.in_place.argument(p, self._freed_next())
        if position is None:
            return self.expressions.call(operation, again=again)
        (taken,) = refs_in(operation.args[position])
        self.taken_over.add(self.index[self.graph.storage_of(taken).name])
        return self.expressions.call_in_place(operation, position)

    def _reruns_reader(self, p: int) -> bool:
        (state,) = self.problem.operations[p].outputs
        readers = [
            q for q, operation in enumerate(self.problem.operations) if state in operation.inputs
        ]
        return any(self.lifetimes.run_counts[q] > 1 for q in readers)

    def _targets(self, operation: Operation, call: str) -> tuple[list[str], str]:
        """Return the variables that take the results; those freed at once get none."""
        wanted = self._kept_outputs(operation)
        mutated = {m.tensor for m in self.graph.mutations}
        wanted_too = {o for o in operation.outputs if o in mutated}
        if operation.target == BATCH_NORM:
            wanted_too = set()
        names = [self.graph.tensors[o].storage if o else "" for o in operation.outputs]
        takes = [
            (name in wanted or o in wanted_too) and o not in self.expressions.updates
            for name, o in zip(names, operation.outputs, strict=True)
        ]
        self._drop_others(operation, takes)
        if operation.single or not any(takes):
            return [str(self._place(n)) for n, t in zip(names, takes, strict=True) if t], call
        if sum(takes) == 1:
            i = takes.index(True)
            return [str(self._place(names[i]))], f"{call}[{i}]"
        return self._several_targets(operation, names, takes, call)

    def _several_targets(
        self, operation: Operation, names: list[str], takes: list[bool], call: str
    ) -> tuple[list[str], str]:
        count = 3 if operation.target == BATCH_NORM else len(names)
        if all(takes[:count]):
            return [str(self._place(n)) for n in names[:count]], call
        picked = ", ".join(str(i) for i in range(count) if takes[i])
        targets = [str(self._place(n)) for n, t in zip(names, takes, strict=True) if t]
        return targets, f"pick_results({call}, {picked})"

    def _kept_outputs(self, operation: Operation) -> list[str]:
        """Return the storages an operation makes that somebody reads before they are freed."""
        made = []
        for storage in self.graph.writes(operation):
            life = self.lifetimes.at(self.index[storage], self.moment)
            resident_before = life.begin < self.moment
            used = life.end > self.moment and self.index[storage] not in self._freed_next()
            leaves = self.problem.values[self.index[storage]].held is not Held.FREE
            if (used or leaves) and not resident_before:
                made.append(storage)
        return made

    def _freed_next(self) -> set[int]:
        """Return the values that are freed before any other operation runs."""
        following = itertools.islice(self.steps, self.moment + 1, None)
        frees = itertools.takewhile(lambda step: isinstance(step, Free), following)
        return {step.value for step in frees if isinstance(step, Free)}

    def _drop_others(self, operation: Operation, takes: list[bool]) -> None:
        for output, taken in zip(operation.outputs, takes, strict=True):
            if output and not taken:
                v = self.index[self.graph.tensors[output].storage]
                if self.lifetimes.at(v, self.moment).begin == self.moment:
                    self.dropped.add(v)

    def _write_back(self, operation: Operation) -> None:
        if operation.target == BATCH_NORM:
            return  # the kernel updates its statistics itself
        for mutation in self.graph.mutations:
            if mutation.tensor in operation.outputs or self._views(mutation.tensor, operation):
                target = argument(mutation.target)
                text = f"{target}.copy_({self.expressions.tensor(mutation.tensor)})"
                self.statements.append(Statement(text, source=operation.source))

    def _views(self, tensor: str, operation: Operation) -> bool:
        return self.graph.tensors[tensor].storage in self.graph.writes(operation)

    def _retained(self, operation: Operation) -> int:
        """Return the bytes that an operation makes and that stay until backward."""
        retained = [
            storage
            for storage in self.graph.writes(operation)
            if self.lifetimes.at(self.index[storage], self.moment).end_segment
            >= self.schedule.block_count
        ]
        return self._bytes(retained)

    def _bytes(self, storages: list[str]) -> int:
        return sum(self.problem.values[self.index[s]].nbytes for s in storages)

    def _free(self, v: int) -> None:
        if v in self.dropped:
            self.dropped.discard(v)
            return
        mark = self._place(self.problem.values[v].name)
        nbytes = 0 if v in self.taken_over else self.problem.values[v].nbytes
        self.taken_over.discard(v)
        if self.statements and self.statements[-1].text.startswith("del "):
            last = self.statements.pop()
            nbytes += last.nbytes
            text = f"{last.text}, {mark}"
        else:
            text = f"del {mark}"
        comment = f"free {size(nbytes)}" if nbytes else ""
        self.statements.append(Statement(text, comment=comment, nbytes=nbytes))

    def _place(self, storage: str) -> Mark:
        lifetime = self.lifetimes.at(self.index[storage], self.moment)
        if lifetime.crosses:
            return kept(lifetime.owner, storage)
        if self.graph.storages[storage].kind is Kind.TANGENT:
            return tangent(storage)
        return value(storage)


def _only_locals_die(statement: Statement) -> bool:
    return statement.text.startswith("del ") and all(
        mark.kind == "value" for mark in find(statement.text)
    )
