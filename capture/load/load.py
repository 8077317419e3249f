"""Load a model file: import it apart from everything else, build the model and its inputs."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.utils import _pytree as pytree

from remat_gen.capture.device.absent import AbsentDevice
from remat_gen.capture.device.kinds import KINDS, TYPES, kind_of
from remat_gen.capture.load.builders import build_model
from remat_gen.capture.load.stand_in import refuse_elsewhere, refused_autocast
from remat_gen.capture.load.step_context import remember_context
from remat_gen.capture.load.step_inputs import INPUTS, StepInputs, check_step, moved, step_inputs
from remat_gen.capture.load.without_values import has_constants, take_values_away, without_values
from remat_gen.capture.process.defined_once import defined_once
from remat_gen.capture.process.garbage import libraries_are_loaded
from remat_gen.capture.process.generators import kept_generators
from remat_gen.capture.process.isolation import Ending, UserCode, isolated, private_name
from remat_gen.ir.errors import UsageError
from remat_gen.ir.header import text_sha256


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model file, imported: the model in training mode and the arguments of one step.

    `builder` is the name in the file that built the model, `inputs_name` the one that made the
    arguments. Where the tensors are fakes that stand for those of a GPU, `stands_for` is it.
    Modules that the file imported from its own folder are out of `sys.modules` again:
    work that may import them (tracing does) belongs inside `with loaded.importable():`.
    """

    path: Path
    source: str
    source_sha256: str
    module: ModuleType
    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    builder: str
    inputs_name: str
    device: torch.device
    siblings: Mapping[str, ModuleType]
    stands_for: AbsentDevice | None = None

    @property
    def model_name(self) -> str:
        """Return the name of the model's class."""
        return type(self.model).__name__

    @contextlib.contextmanager
    def importable(self) -> Iterator[None]:
        """Put the file's folder on `sys.path`, and what it imported from there back.

        Raises:
            UsageError: the user's code calls exit().
        """
        with isolated(self.path.parent, self.siblings), Ending(self.path, "running it"):
            yield


def load(
    path: Path,
    model: str | None = None,
    inputs: str | None = None,
    device: str | torch.device = "auto",
    *,
    fake: bool = False,
    stands_for: AbsentDevice | None = None,
) -> Loaded:
    """Import a model file, build its model in training mode and its example inputs.

    Builders run from a fixed seed; the caller's generators are left as they were. `fake` tensors
    have shapes and no values: enough to trace, and nothing is allocated. On the CPU they may stand
    for those of a device that is not here.

    Raises:
        UsageError: anything that the file lacks or does wrong, with its place and what to do.
    """
    target = resolve_device(device)
    text = read_source(path)
    libraries_are_loaded()
    with isolated(path.parent, {}) as siblings:
        module = import_file(path, text)
        mode = without_values() if fake else contextlib.nullcontext()
        with kept_generators(), mode:
            torch.manual_seed(0)
            builder, built = build_model(module, path, model)
            step = step_inputs(module, path, inputs or INPUTS)
            if stands_for:
                refuse_elsewhere(_tensors(built, step), str(path))
            built, step = _on_device(built, step, target, path)
    check_step(built, step, path, inputs or INPUTS)
    kind = stands_for.kind if stands_for else target.type
    with refused_autocast(str(path), stands_for):
        remember_context(built, module, path, kind)
    return Loaded(
        path=path,
        source=text,
        source_sha256=text_sha256(text),
        module=module,
        model=built,
        args=step.args,
        kwargs=step.kwargs,
        builder=builder,
        inputs_name=inputs or INPUTS,
        device=torch.device(kind) if stands_for else target,
        siblings=siblings,
        stands_for=stands_for,
    )


def load_fake(path: Path, model: str | None, inputs: str | None, device: AbsentDevice) -> Loaded:
    """Load a model file for a device that need not be here: without values.

    Where the builder reads values of tensors, or a module has some besides its parameters and
    buffers, the model is built for real, on the CPU, and its values are taken away.
    """
    stands_for = device if kind_of(device.kind).is_accelerator else None
    try:
        loaded = load(path, model, inputs, "cpu", fake=True, stands_for=stands_for)
        if not has_constants(loaded.model):
            return loaded
    except UsageError as error:
        if not isinstance(error.__cause__, DataDependentOutputException):
            raise
    loaded = load(path, model, inputs, "cpu", stands_for=stands_for)
    args, kwargs = take_values_away(loaded.model, (loaded.args, loaded.kwargs))
    return replace(loaded, args=args, kwargs=kwargs)


def resolve_device(device: str | torch.device) -> torch.device:
    """Turn `auto`, a kind of device, or one of several (`cuda:1`) into a device that is there.

    Raises:
        UsageError: there is no such device.
    """
    if device == "auto":
        return torch.device(next(kind.type for kind in KINDS if kind.count()))
    known = f"use auto, {' or '.join(sorted(TYPES))}"
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise UsageError(f"--device {device}: no such device; {known}") from error
    if found.type not in TYPES:
        raise UsageError(f"--device {device}: not supported; {known}")
    kind = kind_of(found)
    count = kind.count()
    if kind.is_accelerator and (found.index or 0) >= count:
        seen = f"PyTorch sees {count} {kind.type.upper()} devices"
        raise UsageError(f"--device {device}: {seen}; use --device cpu")
    return found


def read_source(path: Path) -> str:
    """Return the text of a Python file, newlines normalised.

    Raises:
        UsageError: there is no such file, or it holds no Python text.
    """
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; name the Python file that defines the model")
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    if path.suffix != ".py":
        raise UsageError(f"{path}: is not a Python file; name the .py file that defines the model")
    try:
        return importlib.util.decode_source(content)
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{path}: is not Python text: {error}") from error


def import_file(path: Path, text: str) -> ModuleType:
    """Run a file's text as a module under a private name; no byte code is left beside the file.

    The module stays in `sys.modules`: dataclasses, pickle and Dynamo look classes up there.

    Raises:
        UsageError: a syntax error, or any error while it is imported.
    """
    place = str(path.resolve())
    name = private_name(path)
    try:
        code = compile(text, place, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise UsageError(f"{path}:{error.lineno}: syntax error: {error.msg}") from error
    except ValueError as error:
        raise UsageError(f"{path}: is not Python text: {error}") from error
    except (RecursionError, MemoryError) as error:
        raise UsageError(f"{path}: an expression is too deep for Python's compiler") from error
    spec = importlib.util.spec_from_file_location(name, place)
    assert spec is not None  # there is a loader for every .py file
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    with UserCode(path, "importing it"), defined_once():
        exec(code, module.__dict__)
    return module


def _tensors(model: nn.Module, step: StepInputs) -> list[torch.Tensor]:
    leaves = pytree.tree_leaves((step.args, step.kwargs))
    given = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return [*model.parameters(), *model.buffers(), *given]


def _on_device(
    model: nn.Module, step: StepInputs, device: torch.device, path: Path
) -> tuple[nn.Module, StepInputs]:
    advice = "" if device.type == "cpu" else "; try --device cpu"
    with UserCode(path, f"moving the model to {device}", advice):
        state = (*model.parameters(), *model.buffers())
        there = all(tensor.device == device for tensor in state)  # fake ones cannot be moved
        return (model if there else model.to(device)).train(), moved(step, device)
