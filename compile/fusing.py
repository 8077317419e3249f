"""Bodies with parts: where a part's operations stood, a call of its function stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from remat_gen.codegen.expressions.expressions import Expressions
from remat_gen.codegen.expressions.marks import compiled
from remat_gen.codegen.statements.bodies import BodyWriter
from remat_gen.codegen.statements.in_place import InPlace
from remat_gen.codegen.statements.lifetimes import hand_over_moments, moments
from remat_gen.codegen.statements.long_sums import in_two_steps
from remat_gen.codegen.statements.statements import Body, Statement
from remat_gen.compile.part_text import PartText, write_part
from remat_gen.ir.graph import Graph
from remat_gen.solver.compiled import fused
from remat_gen.solver.compiled.fused import PartFigures, fuse
from remat_gen.solver.compiled.parts import Ends, Part, ends_of
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.replay import replay
from remat_gen.solver.law.schedule import Run, Schedule


@dataclass(frozen=True, slots=True)
class Fused:
    """Every block of a schedule, and the function of each of its parts."""

    bodies: tuple[Body, ...]
    texts: Mapping[Part, PartText]


def write_fused(
    graph: Graph,
    problem: Problem,
    schedule: Schedule,
    parts: Mapping[Part, PartFigures],
    taken: frozenset[str] = frozenset(),
) -> Fused:
    """Write every block of a schedule, with calls of its parts."""
    offsets, total = [], 0
    for segment in schedule.segments:
        offsets.append(total)
        total += max(len(segment.steps), 1)
    writer = FusingWriter(graph, problem, schedule, taken)
    writer.gradients = {} if parts else writer.gradients
    writer.parts = {offsets[part.segment] + part.start: part for part in parts}
    writer.stops = {offsets[part.segment] + part.stop - 1 for part in writer.parts.values()}
    if parts:
        made = fuse(problem, schedule, parts)
        replays = (replay(made.problem, made.schedule, keep_gradients=k) for k in (False, True))
        judged = [(made.problem, found) for found in replays]
        writer.in_place = InPlace(graph, problem, schedule, judged)
        writer.hand_overs = _between_calls(schedule, writer, made)
    bodies = writer.run()
    return Fused(bodies, dict(writer.texts))


def _between_calls(
    schedule: Schedule, writer: FusingWriter, made: fused.Fused
) -> dict[int, frozenset[int]]:
    """Return the gradients that leave, by the moments behind: never inside of a part."""
    inside = {
        moment
        for first, part in writer.parts.items()
        for moment in range(first + 1, first + part.stop - part.start)
    }
    outside = (moment for moment in _runs(schedule) if moment not in inside)
    starts = dict(zip(_runs(made.schedule), outside, strict=True))
    leaving = hand_over_moments(made.problem, made.schedule)
    return {starts[moment]: gradients for moment, gradients in leaving.items()}


def _runs(schedule: Schedule) -> Iterator[int]:
    """Yield the moments of a schedule at which an operation runs."""
    return (moment for moment, _, step in moments(schedule) if isinstance(step, Run))


@dataclass(slots=True)
class FusingWriter(BodyWriter):
    """Writes what a part runs into a function; `parts` by their first moment, `stops` their last.

    Inside, nothing is written over and nothing is freed: most of it never is in memory. What dies
    with the part is let go of after the call.
    """

    parts: Mapping[int, Part] = field(default_factory=dict)
    stops: set[int] = field(default_factory=set)
    texts: dict[Part, PartText] = field(default_factory=dict)
    part: Part | None = None
    dying: list[int] = field(default_factory=list)
    apart: list[str] = field(default_factory=list)  # what runs where the part is not compiled
    calls: tuple[str, str] = ("", "")  # of the operation: compiled, and as it runs alone
    bare: Expressions = field(init=False)  # inside of a part, which calls none of the file's
    alone: InPlace = field(init=False)  # decides for the schedule without parts

    def __post_init__(self) -> None:
        BodyWriter.__post_init__(self)
        self.bare = Expressions(self.graph, self.now.place)
        self.alone = self.in_place

    def _run(self, segment: int, p: int) -> None:
        if self.now.moment in self.parts:
            self.part = self.parts[self.now.moment]
            self.outer, self.statements, self.dying, self.apart = self.statements, [], [], []
        before = len(self.statements)
        BodyWriter._run(self, segment, p)
        if self.part is not None and len(self.statements) > before:
            self.apart.append(self.statements[-1].text.replace(*self.calls))
        if self.now.moment in self.stops:
            self._close()

    def _call(self, p: int, *, again: bool) -> str:
        if self.part is None:
            return BodyWriter._call(self, p, again=again)
        operation = self.graph.operations[p]
        call = self.bare.call(operation, again=again)
        position = self.alone.argument(p, self.now.freed_next())
        over = None if position is None else self.expressions.call_in_place(operation, position)
        written = in_two_steps(self.expressions, operation) or call
        self.calls = written, over or call
        return written

    def _free(self, v: int) -> None:
        if self.part is None:
            BodyWriter._free(self, v)
        else:
            self.dying.append(v)

    def _close(self) -> None:
        """Write the function of what was run, and its call."""
        assert self.part is not None
        inner, self.statements = self.statements, self.outer
        ends = ends_of(self.problem, self.schedule, self.part)
        results = tuple(self._mark(v) for v in ends.results)
        operations = tuple(self.graph.operations[p] for p in self.part.runs(self.schedule))
        text = write_part(self.graph, inner, self.apart, results, operations)
        self.texts[self.part] = text
        self.statements.append(self._call_of(text, inner))
        made = {
            v for p in self.part.runs(self.schedule) for v in self.problem.operations[p].outputs
        }
        self.dropped.update(made.difference(ends.results))
        part, self.part = self.part, None
        self._let_go(part, ends)

    def _let_go(self, part: Part, ends: Ends) -> None:
        for v in self.dying:
            if v in ends.inputs:
                BodyWriter._free(self, v)
            else:
                self.dropped.discard(v)

    def _call_of(self, text: PartText, inner: list[Statement]) -> Statement:
        results = ", ".join(map(str, text.results))
        pairs = zip(text.given, text.handed, strict=True)
        given = ", ".join(f"{mark}{way.value}" for mark, way in pairs)
        call = f"{results} = {compiled(text.key)}({given})"
        retained = [s for s in inner if s.retained]
        statement = Statement(
            call,
            source=inner[0].source,
            retained=sum(s.retained for s in retained),
            keeps="".join(s.text.partition(" = ")[0] for s in retained),
        )
        again = [s for s in inner if s.again]
        if not again:
            return statement
        left = [m.name for m in text.results if any(m.name in s.again for s in again)]
        return replace(
            statement, again=", ".join(s.again for s in again), remade=self.now.nbytes(left)
        )
