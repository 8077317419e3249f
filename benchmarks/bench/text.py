"""Results as tables: for a terminal of 80 columns, and as a page of Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from bench.published import Figure, published_for
from bench.results import Result, Row
from remat_gen.ir.byte_text import size

_HOW = {"measured": "theirs", "published": "published"}
HEAD = ("", "peak", "planned", "time", "interval", "planned", "equal")
PAGE = """# Side by side

`nox -s bench`: everybody's training step in one process, in turn, on the CPU. *Peak*: the
measured activation peak of the second step, `.grad` allocated, as a share of eager's. *Time*: the
median of the step times over eager's in the same round, and its 95 % *interval*. *Planned*: what
the plan promised, by replay. *Equal*: outputs, gradients, buffers, inputs and random state after
two steps; "rounding" is within 16 ε of float32; else the first of what differs is named.

"Pages kept": the C library gave no freed memory back to the system between steps, as `nox -s bench`
tells it. Otherwise a step that follows one of less memory pays for its pages again, eager's the
most; steps stand behind each other equally often, so that it widens intervals for all.

A budget of 60 % is of the *replayed* peak with nothing re-run, which is above eager's measured one
where weights are large: a block's weight gradients live until its backward returns.

*Selective*: checkpoints around every layer that save its products: matrix products, convolutions,
attention. torch.compile's budget is a share of saved bytes, not of the peak; its dropout draws
other numbers than eager's. Rows without a *planned* peak and with "theirs" (their program, run on a
CPU) or "published" in place of an interval are other people's figures: shares of and ratios to
their own eager, on other machines, of a network of the same kind and size (`bench/published.toml`).
"""


def show(result: Result, theirs: Sequence[Figure]) -> None:
    """Print a model's table."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for i, name in enumerate(HEAD):
        table.add_column(name, justify="right" if i in (1, 2, 3, 5) else "left", no_wrap=True)
    refused = []
    for row in result.rows:
        if row.why_not:
            refused.append(f"{row.name}: {row.why_not}")
        else:
            table.add_row(*cells(result, row))
    for figure in theirs:
        table.add_row(*their_cells(figure), style="dim")
    console = Console(highlight=False)
    console.print(f"\n{title(result)}\n", markup=False)
    console.print(table)
    for line in refused:
        console.print(f"not here: {line}", style="dim", markup=False)


def title(result: Result) -> str:
    """Return a model's line: what eager needs."""
    eager, threads = result.eager, counted(result.threads, "thread")
    rounds = counted(result.rounds, "round")
    pages = ", pages kept" * result.pages_kept
    step = f"{eager.step_us / 1000:.0f} ms a step"
    peak = size(eager.peak_bytes)
    return f"{result.model}: eager {peak}, {step}; {rounds} on {threads}{pages}"


def counted(number: int, what: str) -> str:
    """Return "1 thread" or "2 threads"."""
    return f"{number} {what}{'s' * (number != 1)}"


def cells(result: Result, row: Row) -> tuple[str, ...]:
    """Return the cells of a contestant that took part."""
    planned = "" if row.planned_bytes is None else _share(result.share(row.planned_bytes))
    return (
        row.name,
        _share(result.share(row.peak_bytes)),
        planned,
        f"{row.ratio:.3f}",
        "" if row.kind == "eager" else f"{row.low:.3f}–{row.high:.3f}",
        "" if row.planned_ratio is None else f"{row.planned_ratio:.3f}",
        "" if row.kind == "eager" else _agreement(row.equal),
    )


def their_cells(figure: Figure) -> tuple[str, ...]:
    """Return the cells of what others report."""
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
    return (figure.name, _share(figure.share), "", ratio, _HOW[figure.how], "", "")


def page(results: Mapping[str, Result]) -> str:
    """Return all results as Markdown."""
    return "\n".join([PAGE, *(_section(result) for result in results.values())])


def _section(result: Result) -> str:
    lines = [f"## {title(result)}\n", f"torch {result.torch}\n"]
    lines += [_line(HEAD), _line(["---", "--:", "--:", "--:", "---", "--:", "---"])]
    lines += map(_line, _rows(result))
    picture = f"side_by_side_{result.model}.svg"
    return "\n".join([*lines, "", f"![peak against time]({picture})", ""])


def _rows(result: Result) -> Iterator[tuple[str, ...]]:
    for row in result.rows:
        refused = (row.name, *[""] * (len(HEAD) - 2), row.why_not)
        yield refused if row.why_not else cells(result, row)
    for figure in published_for(result.model):
        yield their_cells(figure)


def _line(row: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '·') for cell in row)} |"


def _agreement(equal: str) -> str:
    """Return the first of what differs; the file of results names all."""
    return equal if equal in ("bitwise", "rounding") else f"no: {equal.split(', ')[0]}"


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"
