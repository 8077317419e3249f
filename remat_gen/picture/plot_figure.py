"""Figures for papers and pull requests: one style, the same bytes for the same data.

matplotlib is an extra and is imported when a picture is drawn. Its global state is neither read nor
changed: a user's matplotlibrc has no say, and no window opens.
"""

from __future__ import annotations

import importlib.util
import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remat_gen.ir.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 4.0, 2.75  # inches: a paper's column, in which the smallest text has 6 points
PNG_DPI = 300
_PATH, _DECIMALS = (
    re.compile(rb'(?<= d=")[^"]*'),
    re.compile(rb"(\.\d\d)\d+"),
)  # 1/100 point will do
INK, SOFT_INK, HAIR = "#222222", "#666666", "#bbbbbb"

# Okabe and Ito's colours, which people who see fewer colours tell apart; areas are lighter.
BLUES = ("#8db9da", "#b9d5ea")
ORANGE, GREEN, GREY = "#e69f00", "#6bbf9f", "#d2d2d2"
PURPLE = "#9a86c5"
VERMILION, BLUE = "#d55e00", "#0072b2"

_STYLE: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same picture everywhere
    "font.size": 7,
    "axes.linewidth": 0.6,
    "axes.edgecolor": SOFT_INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": SOFT_INK,
    "ytick.color": SOFT_INK,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "text.color": INK,
    "text.parse_math": False,  # a `$` in a name is a `$`
    "svg.fonttype": "path",  # needs no font where it is looked at
    "svg.hashsalt": "remat-gen",
    "savefig.dpi": PNG_DPI,
    "hatch.linewidth": 0.4,
}


def require_matplotlib() -> None:
    """Refuse to begin work whose picture could not be drawn.

    Raises:
        UsageError: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(
            "pictures need matplotlib: pip install 'remat-gen[plot]' (or pip install matplotlib)"
        )


@contextmanager
def _new_figure(height: float) -> Iterator[Figure]:
    """Give a figure; its style holds inside of the block, where it is drawn and saved."""
    require_matplotlib()
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure


def picture_bytes(
    form: str, title: str, draw: Callable[[Figure], None], height: float = HEIGHT
) -> bytes:
    """Return what `draw` puts on a figure as high in inches, as "svg" or "png".

    Raises:
        UsageError: matplotlib is not installed.
    """
    # no date, no fonts, no random ids
    of_svg = {"Date": None, "Creator": "remat-gen", "Title": title}
    metadata = of_svg if form == "svg" else {"Software": "remat-gen", "Title": title}
    out = io.BytesIO()
    with _new_figure(height) as figure:
        draw(figure)
        figure.savefig(out, format=form, metadata=metadata)
    if form == "png":
        return out.getvalue()
    text = _PATH.sub(lambda path: _DECIMALS.sub(rb"\1", path[0]), out.getvalue())
    return b"\n".join(line.rstrip() for line in text.splitlines()) + b"\n"


def picture_format(path: Path) -> str:
    """Return "svg" or "png", as a file is called.

    Raises:
        UsageError: it is called otherwise, or its folder is not there.
    """
    if path.suffix.lower() not in (".svg", ".png"):
        raise UsageError(f"{path}: pictures are written as .svg or .png; name it so with -o")
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}; create it first")
    return path.suffix.lower()[1:]


def write_picture(path: Path, content: bytes) -> None:
    """Write a picture through a temporary file beside it.

    Raises:
        UsageError: the file cannot be written; the old one is still there.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error
