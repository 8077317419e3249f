"""Find what builds the model in a user's module, and build it."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from torch import nn

from remat_gen.capture.load.named_calls import Build, named_call, required
from remat_gen.capture.process.isolation import UserCode
from remat_gen.ir.errors import UsageError

BUILDER = "build_model"


def build_model(module: ModuleType, path: Path, wanted: str | None) -> tuple[str, nn.Module]:
    """Return how the builder is named, with its arguments, and the model that it built.

    The builder is `wanted` (a name, or a call of it with literals), else `build_model`, else the
    only class that builds without arguments.

    Raises:
        UsageError: there is no such builder, it fails, or it returns no module.
    """
    name, build = find_builder(module, path, wanted)
    if missing := required(build):
        raise UsageError(
            f"{path}: {name} needs arguments ({', '.join(missing)}); give them with --model, or "
            f"write `def {BUILDER}()` that passes them"
        )
    called = name if name.endswith(")") else f"{name}()"
    with UserCode(path, called):
        model = build()
    if not isinstance(model, nn.Module):
        raise UsageError(
            f"{path}: {called} returned {described(model)}; it must return a torch.nn.Module"
        )
    return name, model


def find_builder(module: ModuleType, path: Path, wanted: str | None) -> tuple[str, Build]:
    """Return what builds the model, and its name in the file.

    Raises:
        UsageError: nothing does, or several might.
    """
    if wanted is not None:
        return wanted, _named(module, path, wanted)
    if callable(build := getattr(module, BUILDER, None)):
        return BUILDER, build
    classes = own_classes(module)
    ready = [name for name, cls in classes.items() if not required(cls)]
    if len(ready) == 1:
        return ready[0], classes[ready[0]]
    raise UsageError(f"{path}: {_why_none(classes, ready)}")


def _why_none(classes: dict[str, type[nn.Module]], ready: list[str]) -> str:
    write = f"write `def {BUILDER}() -> nn.Module`"
    if not classes:
        return f"defines no model; {write}, or name a class or function with --model"
    if not ready:
        needs = "; ".join(f"{name}({', '.join(required(cls))})" for name, cls in classes.items())
        return f"no model builds without arguments: {needs}; {write}"
    return f"several classes may be the model: {', '.join(ready)}; choose with --model, or {write}"


def _named(module: ModuleType, path: Path, wanted: str) -> Build:
    call = named_call(wanted, "--model")
    found: object = getattr(module, call.name, None)
    if callable(found) and not isinstance(found, nn.Module):
        return call.of(found)
    if isinstance(found, nn.Module):
        what = "is a model that was built already; name the class or function that builds it"
    elif hasattr(module, call.name):
        what = f"is {described(found)}; name a class or function"
    else:
        names = [BUILDER] * hasattr(module, BUILDER) + list(own_classes(module))
        what = f"is not in the file, which has: {', '.join(names) or 'no model'}"
    raise UsageError(f"{path}: --model {call.name} {what}")


def own_classes(module: ModuleType) -> dict[str, type[nn.Module]]:
    """Return the module classes that the file itself defines, in its order."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, nn.Module)
        and value.__module__ == module.__name__
    }


def described(value: object) -> str:
    """Return `None`, or the kind of a value as `a Tensor`."""
    if value is None:
        return "None"
    name = value.__name__ if isinstance(value, type) else type(value).__name__
    article = "the class" if isinstance(value, type) else "an" if name[0] in "aeiouAEIOU" else "a"
    return f"{article} {name}"
