"""A schedule's segments as statements with marks: what each block does forward and backward."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from remat_gen.codegen.expressions.called_kernels import kernels_of
from remat_gen.codegen.expressions.expressions import BATCH_NORMS, Expressions
from remat_gen.codegen.expressions.marks import Mark, argument, assigned, tangent
from remat_gen.codegen.statements.free_names import VERSION
from remat_gen.codegen.statements.gradient_reach import Reach, apart, reach_of
from remat_gen.codegen.statements.in_place import InPlace
from remat_gen.codegen.statements.journeys import Journeys
from remat_gen.codegen.statements.kept_outputs import returned
from remat_gen.codegen.statements.leaving import Leaving
from remat_gen.codegen.statements.lifetimes import hand_over_moments, moments
from remat_gen.codegen.statements.linear_gradients import Gradients, linear_gradients
from remat_gen.codegen.statements.moments import Now
from remat_gen.codegen.statements.statements import Body, Function, Statement
from remat_gen.ir.graph import Graph, Operation, Trait, refs_in
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.schedule import Fetch, Free, Run, Schedule, Send, Step

_MIND_MASKS = frozenset(
    f"aten.{norm}_backward.default"
    for norm in ("native_batch_norm", "native_group_norm", "native_layer_norm", "_fused_rms_norm")
)
_CONVOLUTION = "aten.convolution_backward.default"
_NO_BIAS = (True, True, False)


def _with_only_read(bodies: Iterable[Body], graph: Graph) -> tuple[Body, ...]:
    """Find the arguments of each block that a later one has the gradient of, or that have none."""
    bodies = tuple(bodies)
    without = {gradient.of for gradient in graph.gradients if gradient.tensor is None}
    returned = {name: body.block for body in bodies for name in body.backward.returns}

    def only_read(body: Body) -> frozenset[str]:
        later = (a for a in body.arguments() if returned.get(a, -1) > body.block)
        return frozenset(without.intersection(body.arguments()).union(later))

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
    taken: frozenset[str] = frozenset()  # names of the file's
    now: Now = field(init=False)
    expressions: Expressions = field(init=False)
    in_place: InPlace = field(init=False)
    ran: set[int] = field(default_factory=set)
    dropped: set[int] = field(default_factory=set)  # results that no variable was given to
    taken_over: dict[int, int] = field(default_factory=dict)  # by value, what is written over it
    aliases: dict[int, list[Mark]] = field(default_factory=dict)  # other variables of its memory
    statements: list[Statement] = field(default_factory=list)
    leaving: Leaving = field(init=False)
    hand_overs: dict[int, frozenset[int]] = field(init=False)  # gradients, by moments behind
    reach: Reach = field(init=False)
    journeys: Journeys = field(init=False)
    gradients: dict[int, Gradients] = field(init=False)  # of linear layers, by moment
    together: Gradients | None = None  # those that are being written
    outer: list[Statement] = field(default_factory=list)
    late: list[int] = field(default_factory=list)  # values to free behind them

    def __post_init__(self) -> None:
        self.now = Now(self.graph, self.problem, self.schedule)
        kernels = kernels_of(self.graph, self.taken)
        self.expressions = Expressions(self.graph, self.now.place, helps=True, kernels=kernels)
        self.in_place = InPlace(self.graph, self.problem, self.schedule)
        self.leaving = Leaving(self.graph, self.problem, self.now, self.expressions)
        self.reach = reach_of(self.graph)
        self.journeys = Journeys(self.now)
        self.hand_overs = hand_over_moments(self.problem, self.schedule)
        found = linear_gradients(self.graph, self.problem, self.schedule)
        self.gradients = {m: g for m, g in found.items() if not self._is_cut(m, g)}

    def _is_cut(self, first: int, gradients: Gradients) -> bool:
        """Tell whether gradients leave between some that one call would compute."""
        return not self.hand_overs.keys().isdisjoint(range(first + 1, gradients.last + 1))

    def run(self) -> tuple[Body, ...]:
        count = self.schedule.block_count
        functions: list[Function] = []
        current = 0
        self._begin_segment(0)
        for moment, segment, step in moments(self.schedule):
            if segment != current:
                functions.append(self._end_segment(current))
                current = segment
                self.now.moment = moment
                self._begin_segment(segment)
            self.now.moment = moment
            self._step(segment, step)
        functions.append(self._end_segment(current))
        return _with_only_read(
            (
                Body(
                    block=k,
                    forward=functions[k],
                    backward=functions[2 * count - 1 - k],
                    operations=self._operations(k),
                    tangents=self._tangents(functions[k]),
                    last=k == count - 1,
                )
                for k in range(count)
            ),
            self.graph,
        )

    def _tangents(self, forward: Function) -> tuple[str, ...]:
        tangents = (output.tangent for output in returned(self.graph, forward.returns))
        return tuple(dict.fromkeys(filter(None, tangents)))

    def _operations(self, block: int) -> tuple[Operation, ...]:
        steps = self.schedule.segments[block].steps
        runs = dict.fromkeys(step.operation for step in steps if isinstance(step, Run))
        operations = (self.graph.operations[p] for p in runs)
        return tuple(o for o in operations if o.target != "remat.rng_state")

    # -- segments ------------------------------------------------------------------------

    def _begin_segment(self, segment: int) -> None:
        self.statements = []
        self.leaving.begin()
        self.aliases.clear()
        if segment >= self.schedule.block_count:
            for v in self._given_in(segment):
                if self.now.lifetime(v).crosses:
                    name = self.problem.values[v].name
                    self.statements.append(Statement(f"{self.now.place(name)} = {tangent(name)}"))
            self._check_outputs(segment)

    def _given_in(self, segment: int) -> list[int]:
        """Return the incoming gradients that a segment is given."""
        block = self.schedule.segments[segment].block
        return [v for v in self.problem.given if self.now.lifetimes.leaving.at(v) == block]

    def _check_outputs(self, segment: int) -> None:
        """Outputs are the user's: what backward reads of them must not have been written since."""
        for v in sorted(self.now.outputs_read_in(segment)):
            if v not in self.problem.given and self.now.lifetime(v).crosses:
                mark = self._mark(v)
                self.statements.append(Statement(f"check_output({mark}, {mark}{VERSION})"))

    def _end_segment(self, segment: int) -> Function:
        if segment < self.schedule.block_count:
            self.statements += self.leaving.outputs(segment)
        if segment >= self.schedule.block_count:
            self.statements += self.leaving.rest(segment)
            self._release_held(segment)
        statements = list(self.statements)
        while statements and _only_locals_die(statements[-1]):
            statements.pop()  # they die with the function anyway
        return Function(tuple(statements), dict(self.leaving.returns), tuple(self.leaving.turns))

    def _release_held(self, segment: int) -> None:
        """Let go of gradients that were kept for a later block, after their last use."""
        waited = (v for v, last in self.now.lifetimes.waits.items() if last == segment)
        block = self.schedule.segments[segment].block
        given = (v for v in self.problem.given if self.now.lifetimes.leaving.at(v) >= block)
        for v in (*given, *waited):
            lifetime = self.now.lifetime(v)
            if lifetime.crosses and lifetime.end_segment == segment:
                self._free(v)

    # -- steps ---------------------------------------------------------------------------

    def _step(self, segment: int, step: Step | None) -> None:
        if gradients := self.hand_overs.get(self.now.moment):
            self.statements += self.leaving.hand_over(gradients, segment)
        if together := self.gradients.get(self.now.moment):
            self.together, self.outer, self.statements = together, self.statements, []
        if isinstance(step, Run):
            self._run(segment, step.operation)
        elif isinstance(step, Free) and self.together:
            self.late.append(step.value)
        elif isinstance(step, Free):
            self._free(step.value)
        elif isinstance(step, Send):
            self.statements.append(self.journeys.send(step.value))
        elif isinstance(step, Fetch):
            self.statements.append(self.journeys.fetch(step.value))
        if self.together and self.now.moment == self.together.last:
            self._call_together(self.together)

    def _call_together(self, gradients: Gradients) -> None:
        """Write the gradients of a linear layer as one call, and free what had to wait."""
        made, self.statements, self.together = self.statements, self.outer, None
        results = [assigned(statement.text) for statement in made]
        if all(results) and len(results) == len(gradients.operations):
            rows = map(self.expressions.matrix, gradients.rows)
            weight = (self.expressions.together(name, 2) for name in gradients.weight)
            call = f"{', '.join(results)} = {gradients.function}({', '.join((*rows, *weight))})"
            made = [Statement(call, source=made[0].source)]
        self.statements += made
        late, self.late = self.late, []
        for v in late:
            self._free(v)

    def _run(self, segment: int, p: int) -> None:
        operation = self.graph.operations[p]
        again = p in self.ran
        self.ran.add(p)
        self.statements += self.journeys.before_reading({*self.problem.operations[p].inputs})
        if operation.target == "remat.rng_state" and not self._reruns_reader(p):
            self.dropped.update(self.problem.operations[p].outputs)
            return
        if self.in_place.updates(p):
            self.dropped.update(self.problem.operations[p].outputs)
            text = self.expressions.call_in_place(operation, 0)
            self.statements.append(Statement(text, source=operation.source))
            return
        if self._is_for_nothing(operation):
            self.dropped.update(self.problem.operations[p].outputs)
            return
        for storage, outputs in apart(self.graph, operation, self.reach).items():
            came = ", ".join(self.leaving.came(i, segment) for i in sorted(outputs))
            text = f"zero_unless_came({self.now.place(storage)}, {came})"
            self.statements.append(Statement(text, source=operation.source))
        targets, call = self._targets(operation, self._call(p, again=again))
        for names in self.aliases.values():
            names[:] = [name for name in names if str(name) not in targets]
        text = f"{', '.join(targets)} = {call}" if targets else call
        over = any(v in self.taken_over.values() for v in self.problem.operations[p].outputs)
        statement = Statement(text, source=operation.source, over=over)
        if again:
            made = self.now.wanted(operation)
            listed = ", ".join(str(self.now.place(name)) for name in made)
            statement = replace(statement, again=listed, remade=self.now.nbytes(made))
        elif segment < self.schedule.block_count:
            statement = replace(statement, retained=self.now.retained_bytes(operation))
        self.statements.append(statement)
        if not again:
            self._write_back(operation)

    def _is_for_nothing(self, operation: Operation) -> bool:
        """Tell whether nobody reads a run: one of forward that only backward wants, made again."""
        acts = bool({Trait.RANDOM, Trait.UPDATES_BUFFER}.intersection(operation.traits))
        acts = acts or any(self._makes(operation, m.tensor) for m in self.graph.mutations)
        known = operation.target.startswith("aten.")  # a user's own may do anything
        return known and not acts and not self.now.wanted(operation)

    def _call(self, p: int, *, again: bool) -> str:
        operation = self.graph.operations[p]
        position = self.in_place.argument(p, self.now.freed_next() - self.journeys.sending)
        if position is None:
            return self.expressions.call(operation, again=again)
        (taken,) = refs_in(operation.args[position])
        over = self.now.index[self.graph.storage_of(taken).name]
        (self.taken_over[over],) = self.problem.operations[p].outputs[:1]
        return self.expressions.call_in_place(operation, position)

    def _reruns_reader(self, p: int) -> bool:
        (state,) = self.problem.operations[p].outputs
        readers = [
            q for q, operation in enumerate(self.problem.operations) if state in operation.inputs
        ]
        return any(self.now.lifetimes.run_counts[q] > 1 for q in readers)

    def _targets(self, operation: Operation, call: str) -> tuple[list[str], str]:
        """Return the variables that take the results; those freed at once get none."""
        wanted = self.now.wanted(operation)
        mutated = {self.graph.tensors[m.tensor].storage for m in self.graph.mutations}
        outputs = filter(None, operation.outputs)
        wanted_too = {o for o in outputs if self.graph.tensors[o].storage in mutated}
        if operation.target in BATCH_NORMS:
            wanted_too = set()
        names = [self.graph.tensors[o].storage if o else "" for o in operation.outputs]
        takes = [
            (name in wanted or o in wanted_too) and o not in self.expressions.updates
            for name, o in zip(names, operation.outputs, strict=True)
        ]
        self._drop_others(operation, takes)
        if operation.single or not any(takes):
            return [str(self.now.place(n)) for n, t in zip(names, takes, strict=True) if t], call
        if sum(takes) == 1:
            i = takes.index(True)
            return [str(self.now.place(names[i]))], f"{call}[{i}]"
        return self._several_targets(operation, names, takes, call)

    def _several_targets(
        self, operation: Operation, names: list[str], takes: list[bool], call: str
    ) -> tuple[list[str], str]:
        _, count = BATCH_NORMS.get(operation.target, ("", len(names)))
        if all(takes[:count]):
            return [str(self.now.place(n)) for n in names[:count]], call
        if all(t or not made for t, made in zip(takes, _made(operation), strict=True)):
            places = zip(names, takes, strict=True)
            return [str(self.now.place(n)) if t else "_" for n, t in places], call
        picked = [i for i in range(count) if takes[i]]
        targets = [str(self.now.place(n)) for n, t in zip(names, takes, strict=True) if t]
        first, end = picked[0], picked[-1] + 1
        if end - first == len(picked):
            return targets, f"{call}[{first or ''}:{end if end < len(names) else ''}]"
        return targets, f"pick_results({call}, {', '.join(map(str, picked))})"

    def _drop_others(self, operation: Operation, takes: list[bool]) -> None:
        for output, taken in zip(operation.outputs, takes, strict=True):
            if output and not taken:
                v = self.now.index[self.graph.tensors[output].storage]
                if self.now.lifetime(v).begin == self.now.moment:
                    self.dropped.add(v)

    def _write_back(self, operation: Operation) -> None:
        if operation.target in BATCH_NORMS:
            return  # the kernel updates its statistics itself
        for mutation in self.graph.mutations:
            if self._makes(operation, mutation.tensor):
                target = argument(mutation.target)
                text = f"{target}.copy_({self.expressions.tensor(mutation.tensor)})"
                self.statements.append(Statement(text, source=operation.source))

    def _makes(self, operation: Operation, tensor: str) -> bool:
        """Tell whether an operation makes a tensor, or what it views."""
        made = self.graph.writes(operation)
        return tensor in operation.outputs or self.graph.tensors[tensor].storage in made

    def _free(self, v: int) -> None:
        marks = self.aliases.pop(v, [])
        if v in self.dropped:
            self.dropped.discard(v)
        else:
            marks.insert(0, self._mark(v))
            self.statements += self.journeys.before_freeing(v)
            self.statements += self.journeys.left_on_host(v)
        result = self.taken_over.pop(v, None)
        if result is not None:  # variables of this function go with what their memory is now
            self.aliases.setdefault(result, []).extend(m for m in marks if m.kind == "value")
            marks = [mark for mark in marks if mark.kind != "value"]
        if not marks:
            return
        nbytes = 0 if result is not None else self.problem.values[v].nbytes
        frees = [(marks[0], nbytes), *((mark, 0) for mark in marks[1:])]
        before: tuple[tuple[Mark, int], ...] = ()
        if self.statements and self.statements[-1].frees:
            before = self.statements.pop().frees
        self.statements.append(Statement(frees=(*before, *frees)))

    def _mark(self, v: int) -> Mark:
        return self.now.place(self.problem.values[v].name)


def _only_locals_die(statement: Statement) -> bool:
    marks = [mark for mark, _ in statement.frees]
    return bool(marks) and all(mark.kind == "value" for mark in marks)


def _made(operation: Operation) -> tuple[bool, ...]:
    """Return which results an operation makes: the others are None, as its mask says.

    Other kernels make what they are asked not to: oneDNN's convolution the weight's gradient
    beside the bias's, a GPU's attention the query's.
    """
    mask = operation.args[-1] if operation.args else ()
    no_bias = operation.target == _CONVOLUTION and mask == _NO_BIAS
    if isinstance(mask, tuple) and (no_bias or operation.target in _MIND_MASKS):
        return tuple(map(bool, mask))
    return (True,) * len(operation.outputs)
