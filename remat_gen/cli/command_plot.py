"""The command `plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from remat_gen.cli import option_texts as o
from remat_gen.terminal.interrupt import reported
from remat_gen.terminal.printing import say, write_stdout

PictureOption = Annotated[
    str | None,
    typer.Option(
        "-o", "--output", metavar="FILE", help=".svg or .png [MODEL_remat.svg]; - is stdout."
    ),
]


def plot(
    file: o.GeneratedFile,
    output: PictureOption = None,
    rung: o.RungOption = None,
    quiet: o.QuietOption = False,
    debug: o.DebugOption = False,
) -> None:
    """Draw the memory timeline of a generated module.

    \b
    remat-gen plot model_remat.py                   (model_remat.svg)
    remat-gen plot model_remat.py -o timeline.png
    remat-gen plot model_remat.py --rung 'length<=64'

    Stacked are what is retained, by module, what is run again, gradients and transient memory,
    under the budget, with eager's outline behind. After `remat-gen verify model_remat.py` the
    measured memory is drawn over it. Nothing is measured or allocated here.
    """
    from remat_gen.picture.plot_figure import picture_format, require_matplotlib

    form = "svg" if output in (None, "-") else picture_format(Path(output))
    require_matplotlib()
    with reported(quiet=quiet) as progress:
        progress.stage("trace")
        from remat_gen.picture.timeline_picture import timeline_picture
        from remat_gen.review.retrace import view_file

        view = view_file(file, rung)
        progress.stage("draw")
        content = timeline_picture(view, form)
    if output == "-":
        write_stdout(content)
        return
    from remat_gen.picture.plot_figure import write_picture
    from remat_gen.picture.timeline_view import peak_text

    words = view.rung.words if view.rung else ()  # without a name: beside the module, by its rung's
    target = Path(output) if output else file.with_name("_".join((file.stem, *words)) + ".svg")
    write_picture(target, content)
    lines = [f"{'peak':<12}{peak_text(view)}", f"written     {target}"]
    if view.measured is None and view.rung is None:
        lines.insert(1, "measured    not yet; remat-gen verify measures, then plot draws it too")
    if not quiet:
        say(lines)
