"""How plans and sweeps show themselves in a notebook: tables, and a picture if it can be drawn.

Text comes from users' files: all of it is escaped. Without matplotlib there is the table alone.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from remat_gen.ir.byte_text import size
from remat_gen.ir.errors import UsageError
from remat_gen.ir.plan import Plan
from remat_gen.terminal.printing import listed

if TYPE_CHECKING:
    from remat_gen.best_batch.fitting import Fit
    from remat_gen.picture.timeline_view import TimelineView
    from remat_gen.trade_off.sweeping import Sweep

_NAMED = 4  # names in a cell; more are counted
_CELL = 'style="text-align:left"'


def plan_html(plan: Plan, view: TimelineView | None = None) -> str:
    """Return a plan as HTML: its figures, its blocks, and the timeline if it is given."""
    parts = [_table(("", "eager", "planned"), _figures(plan))]
    if view and (picture := plan_svg(view)):
        parts.append(_image(picture, view.title))
    header = ("block", "operations", "retained", "bytes", "run again")
    parts.append(_table(header, _blocks(plan)))
    return "\n".join(parts)


def plan_svg(view: TimelineView) -> str | None:
    """Return the timeline as SVG; None where matplotlib is not installed."""
    from remat_gen.picture.timeline_picture import timeline_picture

    try:
        return timeline_picture(view).decode()
    except UsageError:
        return None


def fit_html(found: Fit) -> str:
    """Return what was fitted as HTML: the picture if it can be drawn, and the table."""
    from remat_gen.best_batch.fit_picture import fit_picture
    from remat_gen.best_batch.fit_text import fit_lines, fit_rows

    parts = [_table(*fit_rows(found)), *(f"<p>{escape(line)}</p>" for line in fit_lines(found))]
    with contextlib.suppress(UsageError):
        parts.insert(0, _image(fit_picture(found).decode(), found.title))
    return "\n".join(parts)


def sweep_html(found: Sweep) -> str:
    """Return a sweep as HTML: the picture if it can be drawn, the trade-off, what people use."""
    from remat_gen.trade_off.sweep_picture import sweep_picture
    from remat_gen.trade_off.sweep_text import rival_rows, trade_off_rows

    parts = [_table(*trade_off_rows(found)), _table(*rival_rows(found))]
    with contextlib.suppress(UsageError):
        parts.insert(0, _image(sweep_picture(found).decode(), found.title))
    return "\n".join(parts)


def _figures(plan: Plan) -> Iterable[tuple[str, str, str]]:
    predicted = plan.predicted
    eager = f"{size(predicted.eager.nbytes)} ({predicted.eager.source})"
    yield "activation peak", eager, size(predicted.peak_bytes)
    yield "budget", "", f"{size(plan.asked.budget_bytes)} ({plan.asked.budget})"
    eager_ms, ours_ms = predicted.eager_time_us / 1000, predicted.time_us / 1000
    yield "step", f"{eager_ms:.1f} ms", f"{ours_ms:.1f} ms, × {predicted.time_ratio:.3f}"
    yield "run again", "", f"{predicted.reruns} operations"
    yield "solver", "", f"{plan.solver.strategy}, {plan.solver.status}".strip(", ")


def _blocks(plan: Plan) -> Iterable[tuple[str, ...]]:
    for block in plan.blocks:
        largest = sorted(block.retained, key=lambda name: (-block.retained[name], name))
        yield (
            block.name,
            str(block.operations),
            _listed(block.name, largest),
            size(sum(block.retained.values())),
            _listed(block.name, block.rematerialised),
        )


def _listed(block: str, names: Sequence[str]) -> str:
    return listed([name.removeprefix(f"{block}.") for name in names], _NAMED)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th {_CELL}>{escape(cell)}</th>" for cell in header)
    body = "".join(
        f"<tr>{''.join(f'<td {_CELL}>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _image(svg: str, title: str) -> str:
    """Return a picture as an image: ids inside of several SVGs on one page would clash."""
    data = base64.b64encode(svg.encode()).decode()
    style = 'style="max-width:100%;width:40em"'
    return f'<img alt="{escape(title)}" {style} src="data:image/svg+xml;base64,{data}">'
