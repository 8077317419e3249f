"""The commands as functions: the same work, the same files, results instead of text.

    import remat_gen

    planned = remat_gen.generate("model.py", budget="6GB")
    remat_gen.verify(planned.output).ok
    remat_gen.sweep("model.py", strategies=["auto", "rotor"])

Errors are those of the command line: `remat_gen.RematError` and its subclasses.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remat_gen.ask.choice import several
from remat_gen.ask.generate_options import GenerateOptions
from remat_gen.ask.request import Request, default_output
from remat_gen.ir.errors import UsageError
from remat_gen.plan.pipeline import Generated
from remat_gen.plan.pipeline import generate as run
from remat_gen.review.difference import Difference, difference
from remat_gen.review.revisions import read_named_plan
from remat_gen.terminal.interrupt import reported

if TYPE_CHECKING:
    from torch import nn

    from remat_gen.best_batch.fitting import Fit
    from remat_gen.capture.load.load import Loaded
    from remat_gen.pipelined.planning_stages import PlannedStages
    from remat_gen.review.checking import Checked
    from remat_gen.trade_off.sweeping import Sweep
    from remat_gen.verification.report import Report


_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def _plainly() -> Iterator[None]:
    """Run what plans and compares steps as a step runs: with gradients, and outside of autocast.

    One call at a time, whatever the thread: it puts its own in the place of parts of torch. The
    caller's random streams are as they were.

    Raises:
        UsageError: the caller's own autocast would be traced, and no step be told of it.
    """
    import torch

    from remat_gen.capture.device.kinds import TYPES
    from remat_gen.capture.process.generators import kept_host_generators

    if any(torch.is_autocast_enabled(kind) for kind in TYPES):
        raise UsageError(
            "called inside of torch.autocast: call it outside, and let the model's file say what "
            "a step runs in, by a function step_context() that returns the autocast"
        )
    with (
        _ONE_AT_A_TIME,
        kept_host_generators(),
        torch.inference_mode(mode=False),
        torch.enable_grad(),
    ):
        yield


@_plainly()
def generate(
    model: str | Path | nn.Module,
    inputs: object = None,
    *,
    budget: str | int | None = None,
    device_memory: str | int | None = None,
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
    units: Sequence[str] = (),
    fsdp: int | str | None = None,
    in_flight: int | None = None,
    force: bool = False,
    reprofile: bool = False,
    fresh: bool = False,
    compile: bool = False,
    offload: bool = False,
    captured: bool = False,
    batch: int | None = None,
    rungs: str | Sequence[str] | None = None,
    fix: Sequence[str] = (),
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
    request, live = _request(locals(), beside=True)
    with reported(quiet=quiet) as progress:
        return run(request, progress, live)


@_plainly()
def generate_stages(
    model: str | Path,
    *,
    stages: int,
    micro_batches: int,
    schedule: str = "1F1B",
    devices: int | None = None,
    output: str | Path | None = None,
    builder: str | None = None,
    quiet: bool = True,
    **options: Any,
) -> PlannedStages:
    """Write a drop-in for every stage of a pipeline, within the memory of the device that has it.

    Args:
        model: the path of a file, with functions that build a stage and make its micro-batch.
        stages: stage number s is built by `builder(s, stages)`, `build_stage` by default, and
            called with `inputs(s, stages)`, `stage_inputs` by default.
        micro_batches: of a step.
        schedule: "GPipe", "1F1B" or "Interleaved1F1B", as torch.distributed.pipelining has them.
        devices: stage s stands on device s % devices; one each by default.
        output: the files' name, with `{stage}` in it; `MODEL_stage{stage}_remat.py` by default.

    The other arguments are those of `generate`; `budget` is in bytes, of one device.

    Raises:
        RematError: anything that a user can act on.
    """
    from remat_gen.pipelined.micro_batch_order import make_pipeline
    from remat_gen.pipelined.planning_stages import plan_stages

    pipeline = make_pipeline(schedule, stages, micro_batches, devices)
    place = None if output is None else Path(output)
    asked = GenerateOptions(model=builder, **_with_texts(options))
    with reported(quiet=quiet) as progress:
        return plan_stages(pipeline, asked, Path(model), place, progress)


@_plainly()
def check(path: str | Path, model: nn.Module | None = None, inputs: object = None) -> Checked:
    """Tell whether a generated module is still what its source and its plan give.

    `model` and `inputs` are needed where it was generated from a built model.

    Raises:
        RematError: it cannot be told; a stale module is a result, not an error.
    """
    from remat_gen.review.checking import check_file

    return check_file(Path(path), None if model is None else _live(model, inputs))


@_plainly()
def verify(
    path: str | Path, model: nn.Module | None = None, inputs: object = None, *, time_steps: int = 0
) -> Report:
    """Run a generated module and its original, and compare all that their steps leave behind.

    `model` and `inputs` as in `check`; `time_steps` pairs of steps are timed. What differs is in
    the report (`report.ok`), not an error.

    Raises:
        RematError: one of them cannot be loaded, or the original changed.
    """
    from remat_gen.review.verifying import verify_file

    given = None if model is None else _live(model, inputs)
    return verify_file(Path(path), time_steps=time_steps, given=given)


def diff(old: str | Path, new: str | Path) -> Difference:
    """Return how two schedules differ; each is a module or a plan, of a folder or a git revision.

    Raises:
        UsageError: there is no such plan.
    """
    return difference(read_named_plan(str(old)), read_named_plan(str(new)))


@_plainly()
def sweep(
    model: str | Path | nn.Module,
    inputs: object = None,
    *,
    strategies: Sequence[str] = (),
    points: int = 10,
    builder: str | None = None,
    device: str = "auto",
    target: str | None = None,
    effort: str = "quick",
    reprofile: bool = False,
    quiet: bool = True,
) -> Sweep:
    """Return what memory costs in time: peak against step time, from least to all.

    Beside the strategies stands what people use today, on the same graph and costs. In a notebook
    the result shows its tables and its picture, which `trade_off.sweep_picture.write_sweep` draws.

    Args:
        model: a path or a built model, and `inputs` for it, as in `generate`.
        strategies: of `generate`'s; without any, all that suit the model's size.
        points: how many budgets are tried, at least 2.

    The other arguments are those of `generate`.

    Raises:
        RematError: anything that a user can act on.
    """
    from remat_gen.trade_off.sweeping import sweep_file

    request, live = _request(locals() | {"budget": "100%", "output": None})
    with reported(quiet=quiet) as progress:
        return sweep_file(request, live, several(strategies), points=points, progress=progress)


@_plainly()
def fit(
    model: str | Path | nn.Module,
    inputs: object = None,
    *,
    device_memory: str | int | None = None,
    optimizer: str | None = None,
    headroom: str | None = None,
    budget: str | int | None = None,
    output: str | Path | None = None,
    builder: str | None = None,
    device: str = "auto",
    target: str | None = None,
    strategy: str = "auto",
    effort: str = "normal",
    dynamic: Sequence[str] | None = None,
    static: bool = False,
    offload: bool = False,
    force: bool = False,
    quiet: bool = True,
) -> Fit:
    """Find the batch with the most samples per second that fits a device's memory.

    Args:
        model: a path or a built model, and `inputs` for it, as in `generate`.
        device_memory: what the whole step may take; or give `budget`, in bytes.
        output: the file to write for the best batch; without one nothing is written.

    The other arguments are those of `generate`.

    Raises:
        RematError: anything that a user can act on.
    """
    from remat_gen.best_batch.fitting import fit_file

    request, live = _request(locals())
    with reported(quiet=quiet) as progress:
        return fit_file(request, progress, live, write=request.output is not None)


def _request(given: Mapping[str, Any], *, beside: bool = False) -> tuple[Request, Loaded | None]:
    """Return what a function's arguments ask for, and the model where that was built already.

    Without an output it is the file `beside` the model's, or none.
    """
    asked = {f.name: given[f.name] for f in fields(GenerateOptions) if f.name in given}
    asked = _with_texts(asked)
    inputs, rungs = given["inputs"], asked.get("rungs")
    asked |= {"model": given["builder"], "inputs": inputs if isinstance(inputs, str) else None}
    if rungs is not None:
        asked["rungs"] = rungs if isinstance(rungs, str) else ", ".join(rungs)
    live = _built(given["model"], inputs, given["target"])
    path = live.path if live else Path(str(given["model"]))
    place = Path(given["output"]) if given["output"] else default_output(path) if beside else None
    return GenerateOptions(**asked).request(path, place, live=live.builder if live else None), live


def _with_texts(options: dict[str, Any]) -> dict[str, Any]:
    """Return options whose sizes, which Python may give as numbers, are texts."""
    sizes = (name for name in ("budget", "device_memory") if options.get(name) is not None)
    return options | {name: str(options[name]) for name in sizes}


def _built(model: object, inputs: object, target: str | None) -> Loaded | None:
    """Return a model that was built already, with its inputs; None where a file is named.

    Raises:
        UsageError: what was given goes with the other of the two.
    """
    if isinstance(model, str | Path):
        if inputs is None or isinstance(inputs, str):
            return None
        raise UsageError(
            "inputs: a file makes its own; give the name of the function, or the model itself"
        )
    if target:
        raise UsageError(
            "target: a built model is planned for the device that it is on; give a file"
        )
    return _live(model, inputs)


def _live(model: object, inputs: object) -> Loaded:
    from torch import nn

    from remat_gen.ask.live_model import loaded_live

    if not isinstance(model, nn.Module):
        raise UsageError(f"model: give a path or a torch.nn.Module, not {type(model).__name__}")
    return loaded_live(model, inputs)
