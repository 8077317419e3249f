"""Draw a sweep: peak across, time added upwards, what people use as marks on the same axes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remat_gen.picture.plot_figure import (
    BLUE,
    GREEN,
    HAIR,
    INK,
    ORANGE,
    SOFT_INK,
    VERMILION,
    picture_bytes,
    picture_format,
    write_picture,
)
from remat_gen.trade_off.sweeping import Curve, Rival, Sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MIB = 1 << 20
_HEIGHT = 3.1  # inches
# after the first strategy, which is drawn thicker; Okabe and Ito, then greys
_COLOURS = (ORANGE, "#009e73", "#cc79a7", "#56b4e9", "#8c6d1f", SOFT_INK, "#999999", HAIR, GREEN)
_DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1)))
_TOP_OF_RIVALS = 1.2  # the axis ends this much above the slowest thing that people use
_LABELLED = 0.045  # of the height: labels at least so far apart


def sweep_picture(found: Sweep, form: str = "svg") -> bytes:
    """Return the picture, as "svg" or "png".

    Raises:
        UsageError: matplotlib is not installed.
    """
    return picture_bytes(form, found.title, lambda figure: _draw(figure, found), height=_HEIGHT)


def write_sweep(found: Sweep, output: Path) -> None:
    """Draw a sweep into a file whose name says in which format.

    Raises:
        UsageError: the file is called otherwise or cannot be written, or matplotlib is missing.
    """
    write_picture(output, sweep_picture(found, picture_format(output)))


def _draw(figure: Figure, found: Sweep) -> None:
    axes = figure.add_subplot()
    eager = found.eager_peak_bytes / _MIB
    least = found.budgets[0] / _MIB
    highest = max([eager, *(r.peak_bytes / _MIB for r in found.rivals)])
    top = highest_shown(found)
    axes.set_xlim(max(0, least - 0.2 * (highest - least)), highest + 0.12 * (highest - least))
    axes.set_ylim(-0.03 * top, top)
    axes.set_xlabel("activation peak (MiB)")
    axes.set_ylabel("time added to eager's step (%)")
    _infeasible(axes, least, top)
    for i, curve in reversed(list(enumerate(found.curves))):
        _curve(axes, found, curve, i)
    _rivals(axes, found, top)
    _legend(figure, found)
    _shares(axes, eager)


def highest_shown(found: Sweep) -> float:
    """Return where the axis of time ends, in percent: what people use is to be told apart."""
    rivals = [100 * found.overhead(r.time_us) for r in found.rivals]
    points = [100 * found.overhead(p.time_us) for c in found.curves for p in c.points]
    wanted = _TOP_OF_RIVALS * max([*rivals, 0.0])
    return max(min(wanted or max(points, default=0.0), max([*points, *rivals]) * 1.05), 5.0)


def _infeasible(axes: Axes, least: float, top: float) -> None:
    axes.axvspan(0, least, facecolor="#f6f6f6", edgecolor="#dddddd", hatch="////", linewidth=0)
    axes.annotate(
        f"infeasible below {least:.4g} MiB",
        ((axes.get_xlim()[0] + least) / 2, top / 2),
        rotation=90,
        ha="center",
        va="center",
        color=SOFT_INK,
        bbox={"facecolor": "#f6f6f6", "pad": 1, "linewidth": 0},
    )


def _curve(axes: Axes, found: Sweep, curve: Curve, i: int) -> None:
    """Draw a staircase: what a peak makes possible, more memory does too."""
    corners = staircase(found, curve)
    xs, ys = [x for x, _ in corners], [y for _, y in corners]
    style = _style(i)
    axes.step(xs, ys, where="post", label=curve.strategy, zorder=4 if i == 0 else 2, **style)
    if i == 0:
        axes.plot(xs, ys, linestyle="", marker="o", markersize=2.2, color=BLUE, zorder=5)


def staircase(found: Sweep, curve: Curve) -> list[tuple[float, float]]:
    """Return peaks in MiB and percents of time, falling, to eager's peak."""
    corners: list[tuple[float, float]] = []
    for peak_bytes, time_us in sorted(_known(found, curve)):
        overhead = 100 * found.overhead(time_us)
        if not corners or overhead < corners[-1][1]:
            corners.append((peak_bytes / _MIB, overhead))
    end = found.eager_peak_bytes / _MIB
    return corners + [(end, corners[-1][1])] * bool(corners and corners[-1][0] < end)


def _known(found: Sweep, curve: Curve) -> Iterator[tuple[int, float]]:
    """Yield peaks and times that a strategy reaches; the first one's also beside what people use.

    Without these a sweep of few budgets would draw its steps above marks that it lies below.
    """
    yield from ((point.peak_bytes, point.time_us) for point in curve.points)
    if curve is found.curves[0]:
        yield from ((r.peak_bytes, r.ours_us) for r in found.rivals if r.ours_us is not None)


def _style(i: int) -> dict[str, Any]:
    if i == 0:
        return {"color": BLUE, "linewidth": 1.4}
    colour = _COLOURS[(i - 1) % len(_COLOURS)]
    return {"color": colour, "linewidth": 0.9, "linestyle": _DASHES[(i - 1) % len(_DASHES)]}


def _rivals(axes: Axes, found: Sweep, top: float) -> None:
    for compiled, marker in ((True, "D"), (False, "s")):
        group = [r for r in found.rivals if (r.ratio is not None) == compiled]
        xs = [r.peak_bytes / _MIB for r in group]
        ys = [100 * found.overhead(r.time_us) for r in group]
        colour = VERMILION if compiled else INK
        axes.plot(xs, ys, marker=marker, markersize=3, color=colour, linewidth=0, zorder=6)
    for rival, height in _spread(found, top):
        axes.annotate(
            rival.name if rival.ratio is None else f"{rival.ratio:g}",
            (rival.peak_bytes / _MIB, height),
            xytext=(4, 0),
            textcoords="offset points",
            fontsize=5.5,
            va="center",
            color=VERMILION if rival.ratio is not None else INK,
            zorder=7,
            bbox={"facecolor": "white", "alpha": 0.75, "pad": 0.3, "linewidth": 0},
        )


def _spread(found: Sweep, top: float) -> list[tuple[Rival, float]]:
    """Return heights of labels, in percent: those that stand close together are moved apart."""
    room, wide = _LABELLED * top, 0.2 * found.eager_peak_bytes
    placed: list[tuple[Rival, float]] = []
    for rival in sorted(found.rivals, key=lambda r: (r.time_us, r.peak_bytes)):
        height = 100 * found.overhead(rival.time_us)
        near = [h for r, h in placed if abs(r.peak_bytes - rival.peak_bytes) < wide]
        height = max([height, *(h + room for h in near if height < h + room)])
        placed.append((rival, height))
    return placed


def _shares(axes: Axes, eager: float) -> None:
    """Put shares of eager's peak on the upper edge."""
    both: Any = (lambda mib: 100 * mib / eager, lambda share: share * eager / 100)
    axes.secondary_xaxis("top", functions=both).set_xlabel("share of eager's peak (%)")


def _legend(figure: Figure, found: Sweep) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], label=c.strategy, **_style(i)) for i, c in enumerate(found.curves)]
    if any(rival.ratio is not None for rival in found.rivals):
        mark: dict[str, Any] = {"color": VERMILION, "marker": "D", "markersize": 3, "linewidth": 0}
        handles.append(Line2D([], [], label="torch.compile, budget", **mark))
    figure.legend(
        handles=handles,
        loc="outside lower left",
        ncols=4,
        fontsize=6.5,
        frameon=False,
        handlelength=1.6,
        handletextpad=0.4,
        columnspacing=1.2,
        borderpad=0.1,
    )
