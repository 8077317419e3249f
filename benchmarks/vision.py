"""Plan OGC's models at its batch sizes on fake tensors: memory cut and overhead beside OGC's.

python benchmarks/vision.py [NUMBER …] > benchmarks/results/vision.md

NUMBERs choose rows, from 0; each row takes from seconds to minutes.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from fake_step import fake_problem
from vision_models import ROWS, Row

from remat_gen.capture.profile.roofline import Rates
from remat_gen.solver.contest.contest import Contest
from remat_gen.solver.contest.registry import Entrant, entrant_for
from remat_gen.solver.contest.subject import Subject, subject_of
from remat_gen.solver.law.replay import Replay
from remat_gen.solver.law.search_types import Effort

RATES = Rates(flops_per_us=40e6, bytes_per_us=2e6, launch_us=0.0)
AROUND = 16  # points of a cut around OGC's within which the deepest is looked for
DASH = "–"
HEAD = (
    "model, batch",
    "operations",
    "eager, GB",
    "OGC, published",
    "`ogc` at its own deepest",
    "`ogc` at OGC's cut",
    "`auto` at OGC's cut",
    "bound",
    "asked",
    "`auto` at half of OGC's overhead",
    "`auto` at OGC's overhead",
)
PREAMBLE = """# OGC's table

Cut: how much lower the replayed peak may be than with nothing re-run ("eager"), in %; overhead:
replayed time above running each operation once, in %. fp32, the loss inside, roofline of 40 TFLOP/s
and 2 TB/s, storages in blocks of 512 bytes, no workspace, traced with fake tensors. OGC's own
figures were measured, with convolution workspaces in its eager peak; its eager networks run ReLU in
place. `ogc` is our implementation of it on the same graph and costs. "bound": no schedule whose
backward runs block by block has less overhead at this cut. Where OGC has no row, or its NASNet
is another network (that of CIFAR-10, 64 images of 32²), "OGC" is `ogc` at its own deepest.
The last two columns are the deepest cuts, in whole points, at no more than half of OGC's overhead,
and, where `auto` at OGC's cut has more than that, at no more than all of it.
"""


@dataclass(slots=True)
class Planned:
    """A row's problem and its strategies: fronts are built once."""

    subject: Subject
    plain: Replay
    entrants: dict[str, Entrant] = field(default_factory=dict)

    def at(self, strategy: str, cut: float) -> Contest:
        """Return what a strategy finds at a cut in %."""
        if strategy not in self.entrants:
            self.entrants[strategy] = entrant_for(strategy, self.subject, Effort.NORMAL)
        contest = Contest(self.subject, int(self.plain.peak_bytes * (1 - cut / 100)))
        self.entrants[strategy].enter(contest)
        return contest

    def overhead(self, contest: Contest) -> float | None:
        """Return the extra time of a contest's best in %."""
        return None if contest.best is None else self.extra(contest.best.replay.time_us)

    def extra(self, time_us: float) -> float:
        """Return a time above running each operation once, in %."""
        return 100 * (time_us / self.plain.time_us - 1)

    def deepest(self, strategy: str) -> tuple[float, float]:
        """Return the deepest cut of a strategy and its overhead."""
        judged = self.subject.judge(self.entrants[strategy].smallest())[1]
        return 100 * (1 - judged.peak_bytes / self.plain.peak_bytes), self.extra(judged.time_us)

    def deepest_within(self, overhead: float, cut: float) -> float | None:
        """Return the deepest cut of auto in whole points near `cut` at no more than an overhead."""
        low, high = max(0, round(cut) - AROUND), min(100, round(cut) + AROUND)
        found = None
        while high - low > 1:
            middle = (low + high) // 2
            extra = self.overhead(self.at("auto", middle))
            if extra is not None and extra <= overhead:
                found = low = middle
            else:
                high = middle
        return found


def planned(row: Row) -> Planned:
    """Return a row's problem."""
    subject = subject_of(fake_problem(row.build, row.inputs, RATES))
    return Planned(subject, subject.eager())


def line(row: Row) -> tuple[str, ...]:
    """Return a row of the table."""
    plan = planned(row)
    plan.at("ogc", row.cut or 0)
    deepest = plan.deepest("ogc")
    cut, overhead = (row.cut, row.overhead) if row.cut and row.overhead else deepest
    ours = plan.at("auto", cut)
    extra = plan.overhead(ours)
    half = extra is not None and extra <= overhead / 2
    return (
        row.name,
        str(len(plan.subject.problem.operations)),
        f"{plan.plain.peak_bytes / 1e9:.2f}",
        f"−{row.cut} %, +{row.overhead} %" if row.cut else DASH,
        "−{:.1f} %, +{:.1f} %".format(*deepest),
        shown(plan.overhead(plan.at("ogc", cut))),
        shown(extra),
        shown(plan.extra(ours.own_bound_us)),
        DASH if row.asked is None else f"{row.asked} %",
        shown(plan.deepest_within(overhead / 2, cut), "−{:.0f} %"),
        shown(None if half else plan.deepest_within(overhead, cut), "−{:.0f} %"),
    )


def shown(number: float | None, form: str = "+{:.2f} %") -> str:
    """Return a figure in %, or a dash."""
    return DASH if number is None else form.format(number)


def main() -> None:
    """Print the table, each row at once."""
    print(PREAMBLE)
    print(f"| {' | '.join(HEAD)} |\n{'|---' * len(HEAD)}|", flush=True)
    for number in [int(word) for word in sys.argv[1:]] or range(len(ROWS)):
        print(f"| {' | '.join(line(ROWS[number]))} |", flush=True)


if __name__ == "__main__":
    main()
