"""Draw what was fitted: the batch across, samples per second upwards, eager's beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from remat_gen.best_batch.fitting import Fit, Row
from remat_gen.picture.plot_figure import (
    BLUE,
    INK,
    SOFT_INK,
    picture_bytes,
    picture_format,
    write_picture,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def fit_picture(found: Fit, form: str = "svg") -> bytes:
    """Return the picture, as "svg" or "png".

    Raises:
        UsageError: matplotlib is not installed.
    """
    return picture_bytes(form, found.title, lambda figure: _draw(figure, found))


def write_fit(found: Fit, output: Path) -> None:
    """Draw into a file whose name says in which format.

    Raises:
        UsageError: the file is called otherwise or cannot be written, or matplotlib is missing.
    """
    write_picture(output, fit_picture(found, picture_format(output)))


def _draw(figure: Figure, found: Fit) -> None:
    axes = figure.add_subplot()
    planned = [row for row in found.rows if row.time_us]
    fitting = [row for row in found.rows if row.fits_eager]
    above = [*fitting[-1:], *(row for row in found.rows if not row.fits_eager)]
    style = {"color": SOFT_INK, "linewidth": 0.9}
    _line(axes, above, "eager, had it the memory", linestyle=(0, (1, 1)), **style)
    _line(axes, fitting, "eager", **style)
    xs, ys = [row.batch for row in planned], [row.samples_per_s for row in planned]
    axes.plot(xs, ys, color=BLUE, linewidth=1.4, marker="o", markersize=2.6, label="planned")
    axes.set_xlim(0, 1.06 * found.rows[-1].batch)
    axes.set_ylim(0, 1.15 * max(row.eager_samples_per_s for row in found.rows))
    axes.set_xlabel(f"batch, within {found.limit}")
    axes.set_ylabel("samples per second")
    _note(axes, found)
    figure.legend(loc="outside lower center", ncols=3, fontsize=6.5, frameon=False)


def _line(axes: Axes, rows: list[Row], label: str, **style: object) -> None:
    xs, ys = [row.batch for row in rows], [row.eager_samples_per_s for row in rows]
    axes.plot(xs, ys, label=label, **style)  # type: ignore[arg-type]  # matplotlib's keywords


def _note(axes: Axes, found: Fit) -> None:
    """Write beside the best batch, and where the largest ones end."""
    best, over = found.best, found.relative(found.best)
    gain = "" if over is None else f", {100 * (over - 1):+.0f} %"
    axes.annotate(
        f"{best.batch}{gain}",
        (best.batch, best.samples_per_s),
        xytext=(0, -14),
        textcoords="offset points",
        ha="center",
        color=BLUE,
    )
    ends = [("eager's largest", found.eager), ("largest", found.largest)]
    for text, row in ends:
        if row is not None:
            axes.axvline(row.batch, color=SOFT_INK, linewidth=0.5, linestyle=(0, (4, 2)), zorder=0)
            axes.annotate(
                f"{text}: {row.batch}",
                (row.batch, 0),
                xytext=(-2, 4),
                textcoords="offset points",
                rotation=90,
                ha="right",
                va="bottom",
                fontsize=6,
                color=INK,
            )
