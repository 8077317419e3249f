"""A model that was built already, in place of a file: its class's file is what is planned."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from remat_gen.capture.load.load import Loaded, read_source
from remat_gen.capture.load.step_inputs import as_arguments, check_step
from remat_gen.ir.errors import UsageError
from remat_gen.ir.header import text_sha256

GIVEN = "inputs"


def loaded_live(model: nn.Module, inputs: object) -> Loaded:
    """Return a model and the arguments of a step as if its class's file had built them.

    `inputs` are a tuple (positional), a dict (keyword), (tuple, dict), or one tensor. The model is
    put into training mode.

    Raises:
        UsageError: the class is in no file, or not at its top level; the inputs do not fit.
    """
    path = source_file(model)
    step = as_arguments((inputs,) if isinstance(inputs, Tensor) else inputs)
    if step is None:
        raise UsageError(
            "inputs: give what the model is called with: a tuple (positional), a dict (keyword), "
            "(tuple, dict) or one tensor"
        )
    check_step(model, step, path, GIVEN)
    text = read_source(path)
    return Loaded(
        path=path,
        source=text,
        source_sha256=text_sha256(text),
        module=sys.modules[type(model).__module__],
        model=model.train(),
        args=step.args,
        kwargs=step.kwargs,
        builder=type(model).__name__,
        inputs_name=GIVEN,
        device=_device(model),
        siblings={},
    )


def source_file(model: nn.Module) -> Path:
    """Return the file that defines a model's class at its top level.

    Raises:
        UsageError: there is none: a notebook's cell, the interpreter, a class in a function.
    """
    kind = type(model)
    module = sys.modules.get(kind.__module__)
    if "<locals>" in kind.__qualname__ or getattr(module, kind.__name__, None) is not kind:
        raise UsageError(
            f"class {kind.__qualname__} is not defined at the top level of its module, so that a "
            "generated file cannot name it: move it there"
        )
    if hasattr(module, "PlannedStep"):
        raise UsageError(f"{kind.__name__} is planned already: give the model it was planned from")
    place = getattr(module, "__file__", None)
    if place is None or not Path(place).is_file():
        raise UsageError(
            f"class {kind.__name__} is defined in no file, but in a notebook's cell or at a prompt:"
            f" move it to one (%%writefile model.py writes a cell), import it from there, and build"
            " the model again"
        )
    path = Path(place)
    if "site-packages" in path.parts:
        raise UsageError(
            f"class {kind.__name__} comes from a library ({path.name}): write a model.py with "
            "`def build_model()` and `def example_inputs()`, and give its path"
        )
    return path


def _device(model: nn.Module) -> torch.device:
    """Return where the model is.

    Raises:
        UsageError: it is in several places.
    """
    state: list[Any] = [*model.parameters(), *model.buffers()]
    places = sorted({str(tensor.device) for tensor in state})
    if len(places) > 1:
        raise UsageError(f"the model is on {' and '.join(places)}; move it to one device")
    return torch.device(places[0] if places else "cpu")
