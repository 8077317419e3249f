"""Draw a result: measured peak across, measured time upwards, both as shares of eager's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.published import Figure as Theirs
from bench.results import Result, Row
from remat_gen.picture.plot_figure import (
    BLUE,
    INK,
    SOFT_INK,
    VERMILION,
    picture_bytes,
    picture_format,
    write_picture,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEIGHT = 3.0  # inches
_LETTER, _LINE = 0.013, 0.045  # sizes of a label's letter and line, as shares of the axes
_GREEN = "#009e73"  # Okabe and Ito's: the lighter one of areas is too light for letters
_STYLES: dict[str, dict[str, Any]] = {
    "eager": {"color": INK, "marker": "s"},
    "remat-gen": {"color": BLUE, "marker": "o"},
    "remat-gen --compile": {"color": BLUE, "marker": "P"},
    "checkpoint": {"color": _GREEN, "marker": "^"},
    "torch.compile": {"color": VERMILION, "marker": "D"},
}
_THEIRS: dict[str, Any] = {"color": SOFT_INK, "marker": "x"}


@dataclass(frozen=True, slots=True)
class Label:
    """A word beside a mark at (x, y)."""

    x: float
    y: float
    text: str
    colour: str


def write_picture_of(result: Result, theirs: Sequence[Theirs], path: Path) -> None:
    """Draw a result into a file, .svg or .png.

    Raises:
        UsageError: matplotlib is not installed, or the file cannot be written.
    """
    content = picture_bytes(
        picture_format(path),
        f"{result.model}, side by side",
        lambda figure: _draw(figure, result, theirs),
        height=_HEIGHT,
    )
    write_picture(path, content)


def _draw(figure: Figure, result: Result, theirs: Sequence[Theirs]) -> None:
    axes = figure.add_subplot()
    axes.set_title(f"{result.model}: measured on the CPU", loc="left", fontsize=7)
    axes.set_xlabel("activation peak (% of eager's)")
    axes.set_ylabel("step time (eager's = 1)")
    axes.axhline(1, color=SOFT_INK, linewidth=0.4, linestyle=(0, (4, 3)), zorder=1)
    labels = [_mark(axes, result, row) for row in result.rows if not row.why_not]
    _trail(axes, result)
    for their in theirs:
        if their.ratio is not None:
            axes.plot(
                100 * their.share, their.ratio, markersize=3.5, linewidth=0, zorder=4, **_THEIRS
            )
            labels.append(Label(100 * their.share, their.ratio, their.name, SOFT_INK))
    axes.margins(0.13)
    _write_labels(axes, labels)
    _legend(figure, result, theirs)


def _mark(axes: Axes, result: Result, row: Row) -> Label:
    """Draw a contestant with its interval; return what tells it from others of its kind."""
    x, style = 100 * result.share(row.peak_bytes), _STYLES[row.kind]
    axes.vlines(x, row.low, row.high, color=style["color"], linewidth=0.8, zorder=3)
    axes.plot(x, row.ratio, markersize=3.5, linewidth=0, zorder=4, **style)
    text = row.setting or row.name.removeprefix("checkpoint, ")
    return Label(x, row.ratio, text, style["color"])


def _write_labels(axes: Axes, labels: Sequence[Label]) -> None:
    left, right = axes.get_xlim()
    low, high = axes.get_ylim()
    for label in spread(labels, _LETTER * (right - left), _LINE * (high - low)):
        axes.annotate(
            label.text,
            (label.x, label.y),
            xytext=(4, 0),
            textcoords="offset points",
            fontsize=5.5,
            va="center",
            color=label.colour,
            zorder=3.5,  # over lines, under marks
            bbox={"facecolor": "white", "alpha": 0.75, "pad": 0.3, "linewidth": 0},
        )


def spread(labels: Sequence[Label], letter: float, line: float) -> list[Label]:
    """Return labels moved up until none covers another; `letter` and `line` are their sizes."""
    placed: list[Label] = []
    for label in sorted(labels, key=lambda one: (one.y, one.x)):
        for other in sorted(placed, key=lambda one: one.y):
            beside = label.x > other.x + letter * (len(other.text) + 2)
            beside |= other.x > label.x + letter * (len(label.text) + 2)
            if not beside and abs(label.y - other.y) < line:
                label = replace(label, y=other.y + line)
        placed.append(label)
    return placed


def _trail(axes: Axes, result: Result) -> None:
    """Join the generated modules by falling peak."""
    ours = [row for row in result.rows if row.kind == "remat-gen" and not row.why_not]
    ordered = sorted(ours, key=lambda row: row.peak_bytes)
    xs = [100 * result.share(row.peak_bytes) for row in ordered]
    axes.plot(xs, [row.ratio for row in ordered], color=BLUE, linewidth=0.9, zorder=2)


def _legend(figure: Figure, result: Result, theirs: Sequence[Theirs]) -> None:
    from matplotlib.lines import Line2D

    kinds = dict.fromkeys(row.kind for row in result.rows if not row.why_not)
    marks: dict[str, dict[str, Any]] = {kind: _STYLES[kind] for kind in kinds if kind != "eager"}
    if any(their.ratio is not None for their in theirs):
        marks["theirs"] = _THEIRS
    handles = [
        Line2D([], [], label=kind, linewidth=0, markersize=3.5, **style)
        for kind, style in marks.items()
    ]
    figure.legend(
        handles=handles,
        loc="outside lower left",
        ncols=len(handles),
        frameon=False,
        fontsize=6.5,
        handlelength=1.0,
        handletextpad=0.3,
        columnspacing=1.2,
    )
