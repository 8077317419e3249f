"""Draw the memory timeline of a schedule: stacked bands, budget, peak, eager behind, measured over.

Bands are painted from the highest to the lowest, each from zero: no hairline of the background
shows between two of them, whatever looks at the SVG.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from remat_gen.ir.byte_text import size
from remat_gen.picture.plot_figure import (
    BLUES,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    SOFT_INK,
    VERMILION,
    picture_bytes,
)
from remat_gen.picture.timeline_owners import Part
from remat_gen.picture.timeline_view import Curve, TimelineView, peak_text, thinned

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MIB = 1 << 20
_COLOURS = {Part.RERUN: ORANGE, Part.FETCHED: PURPLE, Part.GRADIENT: GREEN, Part.TRANSIENT: GREY}
_ROOM_ABOVE = 1.06  # of the highest curve
_BUDGET_LABEL = 0.3  # of the width of the axes
_LEAST_BAND = 0.045  # of the height of the axes: a label needs so much


def timeline_picture(view: TimelineView, form: str = "svg") -> bytes:
    """Return the picture, as "svg" or "png".

    Raises:
        UsageError: matplotlib is not installed.
    """
    return picture_bytes(form, view.title, lambda figure: _draw(figure, view))


def _draw(figure: Figure, view: TimelineView) -> None:
    axes = figure.add_subplot()
    top = _ROOM_ABOVE * max(view.peak_bytes, view.eager.peak_bytes, view.budget_bytes) / _MIB
    right = max(view.times_us[-1], view.eager.times_us[-1]) / 1000
    axes.set_xlim(0, right)
    axes.set_ylim(0, top)
    axes.set_xlabel("time in the step (ms)")
    axes.set_ylabel("activation memory (MiB)")
    _eager(axes, view.eager)
    _bands(axes, view)
    _halves(axes, view)
    _budget(axes, view, right)
    if view.measured:
        times, heights = _corners(view.measured.times_us, view.measured.nbytes)
        axes.step(times, heights, where="post", color=INK, linewidth=0.6)
    peak = (view.peak_us / 1000, view.peak_bytes / _MIB)
    axes.plot(*peak, marker="o", markersize=2.5, color=INK, clip_on=False)
    axes.set_title(f"peak {peak_text(view)}", loc="left", fontsize=7, pad=14)
    _legend(figure, axes, view)


def _eager(axes: Axes, eager: Curve) -> None:
    times, heights = _corners(eager.times_us, eager.nbytes)
    axes.fill_between(times, heights, step="post", color="#f3f3f3", linewidth=0)
    axes.step(times, heights, where="post", color=SOFT_INK, linewidth=0.5)
    at = max(range(len(heights)), key=heights.__getitem__)
    place: dict[str, Any] = {"xytext": (5, 0), "textcoords": "offset points"}
    text = f"eager {size(eager.peak_bytes)}"
    axes.annotate(text, (times[at], heights[at]), color=SOFT_INK, va="top", **place)


def _corners(times_us: Sequence[float], nbytes: Sequence[int]) -> tuple[list[float], list[float]]:
    """Return where a staircase changes, in ms and MiB, and its end."""
    kept = thinned(times_us, nbytes)
    corners = [i for k, i in enumerate(kept) if k == 0 or nbytes[i] != nbytes[kept[k - 1]]]
    times = [times_us[i] / 1000 for i in corners] + [times_us[-1] / 1000]
    heights = [nbytes[i] / _MIB for i in corners]
    return times, [*heights, heights[-1]]


def _bands(axes: Axes, view: TimelineView) -> None:
    sums = list(accumulate((band.nbytes for band in view.bands), _added))
    stacked = zip(view.bands, sums, _colours(view), strict=True)
    for band, nbytes, colour in reversed(list(stacked)):
        times, heights = _corners(view.times_us, nbytes)
        axes.fill_between(times, heights, step="post", color=colour, linewidth=0, label=band.label)
    times, heights = _corners(view.times_us, sums[-1])
    axes.step(times, heights, where="post", color=SOFT_INK, linewidth=0.4)
    _name_bands(axes, view)


def _added(below: tuple[int, ...], row: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(below, row, strict=True))


def _colours(view: TimelineView) -> list[str]:
    return [_COLOURS.get(band.part) or BLUES[i % 2] for i, band in enumerate(view.bands)]


def _name_bands(axes: Axes, view: TimelineView) -> None:
    """Write each module's name into its band, left of where backward begins: all are there."""
    at = next(i for i, t in enumerate(view.times_us) if t >= view.backward_us) - 1
    base, height = 0.0, axes.get_ylim()[1]
    for band, colour in zip(view.bands, _colours(view), strict=True):
        thick = band.nbytes[at] / _MIB
        if band.part is Part.RETAINED and thick > _LEAST_BAND * height:
            place = (view.backward_us / 1000, base + thick / 2)
            axes.annotate(
                band.label,
                place,
                xytext=(-3, 0),
                textcoords="offset points",
                fontsize=6,
                ha="right",
                va="center_baseline",
                bbox={"facecolor": colour, "alpha": 0.8, "pad": 0.4, "linewidth": 0},  # over curves
            )
        base += thick


def _halves(axes: Axes, view: TimelineView) -> None:
    x = view.backward_us / 1000
    axes.axvline(x, color=INK, linewidth=0.6, linestyle=(0, (1, 1.5)))
    top: dict[str, Any] = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points"}
    axes.annotate("forward", (x, 1), xytext=(-3, 3), ha="right", color=SOFT_INK, **top)
    axes.annotate("backward", (x, 1), xytext=(3, 3), ha="left", color=SOFT_INK, **top)


def _budget(axes: Axes, view: TimelineView, right: float) -> None:
    height = view.budget_bytes / _MIB
    axes.axhline(height, color=VERMILION, linewidth=0.8)
    left = _is_free(view, 0.0, _BUDGET_LABEL) and not _is_free(view, 1 - _BUDGET_LABEL, 1.0)
    axes.annotate(
        f"budget {size(view.budget_bytes)}",
        (0 if left else right, height),
        xytext=(3 if left else 0, 2),
        textcoords="offset points",
        ha="left" if left else "right",
        color=VERMILION,
        bbox={"facecolor": "white", "alpha": 0.8, "pad": 0.4, "linewidth": 0},
    )


def _is_free(view: TimelineView, begin: float, end: float) -> bool:
    """Tell whether eager's outline stays below the budget in a share of the time."""
    length = max(view.times_us[-1], view.eager.times_us[-1])
    pairs = zip(view.eager.times_us[1:], view.eager.times_us, view.eager.nbytes, strict=False)
    crossing = (n for t1, t0, n in pairs if t1 >= begin * length and t0 <= end * length)
    return all(nbytes < view.budget_bytes for nbytes in crossing)


def _legend(figure: Figure, axes: Axes, view: TimelineView) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Patch(color=BLUES[0], label="retained, by module")]
    seen = {band.part for band in view.bands if band.highest_bytes}
    handles += [Patch(color=c, label=part.value) for part, c in _COLOURS.items() if part in seen]
    if view.measured:
        handles.append(Line2D([], [], color=INK, linewidth=0.7, label="measured"))
    figure.legend(
        handles=handles,
        loc="outside lower left",
        ncols=len(handles),
        frameon=False,
        handlelength=0.9,
        handleheight=0.8,
        handletextpad=0.4,
        columnspacing=1.2,
        borderpad=0.1,
    )
