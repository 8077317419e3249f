"""The commands as functions: the same work, the same files, results instead of text.

    import remat_gen

    planned = remat_gen.generate("model.py", budget="6GB")
    remat_gen.verify(planned.output).ok

Errors are those of the command line: `remat_gen.RematError` and its subclasses.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from remat_gen.budget import Optimizer
from remat_gen.choice import chosen
from remat_gen.difference import Difference, difference
from remat_gen.interrupt import Interruptible
from remat_gen.ir.errors import UsageError
from remat_gen.pins import make_pins
from remat_gen.pipeline import Generated
from remat_gen.pipeline import generate as run
from remat_gen.progress import progress_for
from remat_gen.request import (
    Request,
    Strategy,
    default_output,
    make_device,
    make_dynamic,
    make_limit,
)
from remat_gen.revisions import read_named_plan
from remat_gen.solver.search import Effort

if TYPE_CHECKING:
    from torch import nn

    from remat_gen.capture.load import Loaded
    from remat_gen.checking import Checked
    from remat_gen.report import Report


def generate(
    model: str | Path | nn.Module,
    inputs: object = None,
    *,
    budget: str | int | None = None,
    device_memory: str | None = None,
    optimizer: str | None = None,
    headroom: str | None = None,
    output: str | Path | None = None,
    builder: str | None = None,
    device: str = "auto",
    target: str | None = None,
    strategy: str = "auto",
    effort: str = "normal",
    dynamic: Sequence[str] | None = None,
    static: bool = False,
    keep: Sequence[str] = (),
    recompute: Sequence[str] = (),
    force: bool = False,
    reprofile: bool = False,
    quiet: bool = True,
) -> Generated:
    """Write a drop-in of a model whose training step fits a memory budget, and its plan.

    Args:
        model: the path of a file, as on the command line; or a model that was built already, whose
            class stands in a file. It is put into training mode.
        inputs: of a file, the name of the function that makes the example (`example_inputs`); of
            a built model, what it is called with: a tuple, a dict, (tuple, dict) or one tensor.
        budget: bytes, "6GB", or "70%" of eager's activation peak; or give `device_memory`.
        output: the generated file; `MODEL_remat.py` beside the model's file by default.
        builder: of a file, the class or function that builds the model (`--model`).
        device: of a file; a built model is planned for the device that it is on.
        target: of a file: a device that need not be here ("h200", or a TOML file of its rates).
        quiet: False shows the progress on stderr.

    The other arguments are the options of `remat-gen generate`.

    Raises:
        RematError: anything that a user can act on; nothing is written then.
    """
    live = _live(model, inputs) if _is_built(model) else None
    path = live.path if live else Path(str(model))
    if live is None and not (inputs is None or isinstance(inputs, str)):
        raise UsageError(
            "inputs: a file makes its own; give the name of the function, or the model itself"
        )
    if live is not None and target:
        raise UsageError(
            "target: a built model is planned for the device that it is on; give a file"
        )
    request = Request(
        model_file=path,
        limit=make_limit(
            None if budget is None else str(budget),
            device_memory,
            chosen(Optimizer, "optimizer", optimizer) if optimizer else None,
            headroom,
            target,
        ),
        output=Path(output) if output else default_output(path),
        model=live.builder if live else builder,
        inputs=inputs if isinstance(inputs, str) else None,
        device=make_device(device, target),
        target=target or "",
        strategy=chosen(Strategy, "strategy", strategy),
        effort=chosen(Effort, "effort", effort),
        dynamic=make_dynamic(dynamic, static=static),
        pins=make_pins(keep, recompute),
        force=force,
        reprofile=reprofile,
        live=live is not None,
    )
    with Interruptible(progress_for(Console(stderr=True), quiet=quiet)) as progress:
        return run(request, progress, live)


def check(path: str | Path, model: nn.Module | None = None, inputs: object = None) -> Checked:
    """Tell whether a generated module is still what its source and its plan give.

    `model` and `inputs` are needed where it was generated from a built model.

    Raises:
        RematError: it cannot be told; a stale module is a result, not an error.
    """
    from remat_gen.checking import check_file

    return check_file(Path(path), _given(model, inputs))


def verify(
    path: str | Path, model: nn.Module | None = None, inputs: object = None, *, time_steps: int = 0
) -> Report:
    """Run a generated module and its original, and compare all that their steps leave behind.

    `model` and `inputs` as in `check`; `time_steps` pairs of steps are timed. What differs is in
    the report (`report.ok`), not an error.

    Raises:
        RematError: one of them cannot be loaded, or the original changed.
    """
    from remat_gen.existing import verify_file

    return verify_file(Path(path), time_steps=time_steps, given=_given(model, inputs))


def diff(old: str | Path, new: str | Path) -> Difference:
    """Return how two schedules differ; each is a module or a plan, of a folder or a git revision.

    Raises:
        UsageError: there is no such plan.
    """
    return difference(read_named_plan(str(old)), read_named_plan(str(new)))


def _given(model: nn.Module | None, inputs: object) -> Loaded | None:
    return None if model is None else _live(model, inputs)


def _live(model: object, inputs: object) -> Loaded:
    from torch import nn

    from remat_gen.live import loaded_live

    if not isinstance(model, nn.Module):
        raise UsageError(f"model: give a path or a torch.nn.Module, not {type(model).__name__}")
    return loaded_live(model, inputs)


def _is_built(model: object) -> bool:
    return not isinstance(model, str | Path)
