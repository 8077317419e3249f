"""What no trace of a model shows, or shows wrongly: refused before it is traced."""

from __future__ import annotations

import contextlib
import inspect
import types
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from remat_gen.capture.device.absent import AbsentDevice
from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.process.libraries import is_of_library
from remat_gen.capture.process.replaced import kept_dicts
from remat_gen.capture.refuse.library_hooks import collects_outputs
from remat_gen.ir.errors import TraceError

PLAIN = torch.Tensor.__torch_function__, nn.Parameter.__torch_function__  # of torch's own classes

_OF_MODULES = "parameters", "buffers", "modules"
_TOLD = (*_OF_MODULES, *(f"named_{name}" for name in _OF_MODULES))


class ReplacedError(TraceError):
    """Forward puts another tensor in place of a buffer."""


def refuse_modules(model: nn.Module, stands_for: AbsentDevice | None) -> None:
    """Refuse modules that no plan has as they are: one reason after the other, of all modules."""
    reasons = _scripted, _hidden, _lazy, partial(_hooked, model), partial(_recurrent, stands_for)
    for reason in reasons:  # lazy ones before their hooks, which go by a run
        for path, module in model.named_modules():
            if found := reason(module, path):
                raise TraceError(f"{path or type(model).__name__} {found}")


def _hooked(model: nn.Module, module: nn.Module, path: str) -> str:
    """Refuse hooks on submodules that a trace of forward has not as they are.

    Those of forward are a part of it, where all that they hold is the model, or where they are the
    library's that collect hidden states (`library_hooks.py`): a backbone may have them from the
    beginning; or torch's that make a weight anew in every step (`torch.nn.utils.weight_norm`).
    Those on the model itself are called around it, unless they make a weight.
    """
    forwards = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
    for hook in (hook for hooks in _tables(module) for hook in hooks.values()):
        known = collects_outputs(hook) or _holds_nothing_beside(hook, model)
        traced = hook in forwards and (known or made_by(hook) != "")
        if not traced if path else _is_of_utils(hook):
            return (
                f"has a hook ({getattr(hook, '__qualname__', type(hook).__name__)}), which a "
                "planned forward would not call as it should: remove it, let it hold no values "
                "(defaults, a closure), or do its work in forward"
            )
    return ""


def _holds_nothing_beside(hook: Any, model: nn.Module) -> bool:
    """Tell whether a hook is a function, or the model's method, that has no values of its own.

    Its name tells it from others then; a method's may be another module's, too.
    """
    function = getattr(hook, "__func__", hook)
    held = [getattr(function, name, None) for name in ("__closure__", "__defaults__")]
    held += [getattr(function, "__kwdefaults__", None), vars(function) or None]
    owner = getattr(hook, "__self__", None)
    is_plain = isinstance(function, types.FunctionType) and held == [None] * 4
    return is_plain and (owner is None or owner is model)


def refuse_other_self(model: nn.Module) -> None:
    """Refuse a forward whose first parameter is not `self`, as the planned one's is; a `__call__`.

    Raises:
        TraceError: it is not, or the class has a call of its own, which a trace would go through.
    """
    first, *_ = (*inspect.signature(type(model).forward).parameters, "")
    if first != "self":
        raise TraceError(f"forward's first parameter is called {first!r}: rename it to self")
    if not is_of_library(type(model).__call__):
        raise TraceError(
            f"{type(model).__name__} has a __call__ of its own, which would run around the planned "
            "forward, and in it: put what it does into forward"
        )


def _hidden(module: nn.Module, _path: str) -> str:
    """Refuse modules that do not tell of all that they have: what is compared goes by that."""
    for told in _TOLD:
        own, whole = getattr(type(module), told), getattr(nn.Module, told)
        if own is not whole and len([*own(module)]) != len([*whole(module)]):
            return (
                f"has a {told}() of its own, which does not return all that it has: call that by "
                "another name"
            )
    return ""


def _lazy(module: nn.Module, _path: str) -> str:
    """Refuse lazy modules that have not run: their shapes are not known."""
    return (
        "has no weights before it has run: run the model once in build_model(), under "
        "torch.no_grad()"
    ) * any(map(is_lazy, module.parameters(recurse=False)))


def _scripted(module: nn.Module, _path: str) -> str:
    """Refuse modules that TorchScript has compiled: there is no Python left to trace."""
    return (
        "is a torch.jit.ScriptModule, which cannot be traced: use the module that it was made of"
    ) * isinstance(module, torch.jit.ScriptModule)


def refuse_data_parallel(model: nn.Module) -> None:
    """Refuse modules that are copied in each step."""
    for name, module in model.named_modules():
        if isinstance(module, nn.DataParallel):
            raise TraceError(
                f"{name or 'the model'} is an nn.DataParallel, which copies what it wraps to each "
                "GPU in each step: plan the module in it, and wrap the planned model in "
                "DistributedDataParallel"
            )


def refuse_subclasses(model: nn.Module, inputs: Iterable[tuple[str, object]]) -> None:
    """Refuse tensors whose class answers for torch's functions: what it does is in no trace.

    `inputs` are those of forward, by name.

    Raises:
        TraceError: a parameter, a buffer, a module's attribute or an input is one.
    """
    tensors = chain(model.named_parameters(), model.named_buffers(), _held(model), inputs)
    for name, tensor in tensors:
        if isinstance(tensor, torch.Tensor) and type(tensor).__torch_function__ not in PLAIN:
            raise TraceError(
                f"{name} is a {type(tensor).__name__}, whose __torch_function__ takes the place of "
                "torch's functions, which a plan calls: use tensors of torch's own classes "
                "(x.as_subclass(torch.Tensor))"
            )


def _held(model: nn.Module) -> Iterator[tuple[str, object]]:
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            yield f"{path}.{name}".lstrip("."), value


def _tables(module: nn.Module) -> tuple[dict[int, Any], ...]:
    return (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )


def _is_of_utils(hook: object) -> bool:
    return type(hook).__module__.startswith("torch.nn.utils")


def made_by(hook: object) -> str:
    """Return the attribute that a hook of torch's makes anew in every step, or "".

    Numbers are all that such a hook may hold beside: they stand in the table, with its name.
    """
    held = vars(hook) if _is_of_utils(hook) else {}
    plain = all(isinstance(value, str | int | float | None) for value in held.values())
    return str(held.get("name", held.get("_tensor_name", ""))) if plain else ""


@contextlib.contextmanager
def hooks_aside(model: nn.Module) -> Iterator[None]:
    """Take the hooks of the model itself off while it is traced: a planned call runs them too."""
    with kept_dicts(*_tables(model)):
        for table in _tables(model):
            table.clear()
        yield


def refuse_seeds(seeded: bool) -> None:
    """Refuse a forward that sets the random seed or asks for it: a trace does not show it."""
    if seeded:
        raise TraceError(
            "forward sets the random seed or the generator's state (torch.random.fork_rng puts it "
            "back), or asks for the seed, which a planned forward would not do: do it outside of "
            "forward"
        )


def _recurrent(stands_for: AbsentDevice | None, module: nn.Module, _path: str) -> str:
    """Refuse RNNs of a GPU that is not here, and what cuDNN drops out by its own numbers."""
    if not isinstance(module, nn.RNNBase):
        return ""
    if stands_for is not None and kind_of(stands_for.kind).has_fused_rnns:
        return (
            f"is an nn.{type(module).__name__}, which cuDNN runs as one kernel on a GPU: plan on "
            "that GPU, or plan the rest of the model in a module of its own, without the RNN"
        )
    fused = any(kind_of(p.device).has_fused_rnns for p in module.parameters())
    if fused and module.dropout and module.num_layers > 1 and module.training:
        return (
            f"is an nn.{type(module).__name__} on a GPU whose layers have dropout between them, by "
            "numbers that cuDNN keeps to itself: give each layer an RNN of its own, with "
            "nn.Dropout between them"
        )
    return ""


def refuse_replaced(names: tuple[str, ...]) -> None:
    """Refuse a forward that puts another tensor in place of a buffer: the trace loses it."""
    if names:
        raise ReplacedError(
            f"forward puts another tensor in place of self.{names[0]}, which a planned forward "
            f"would not do: write into it (self.{names[0]}.copy_(...)); where this happens in the "
            "first step only, run the model once in build_model(), under torch.no_grad()"
        )
