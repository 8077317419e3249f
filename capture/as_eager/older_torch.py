"""What torch 2.11 and 2.12 trace otherwise than 2.13: made alike, all of it in this place.

Nothing here asks for torch's version: each difference is looked for where it is.
"""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Iterator
from types import CodeType
from typing import Any

import torch
from torch._dynamo.convert_frame import GraphCaptureOutput
from torch._dynamo.functional_export import _DynamoBytecodeCodeGen
from torch._functorch._aot_autograd.schemas import MemoryFormatMeta
from torch._guards import detect_fake_mode
from torch._higher_order_ops.effects import _get_effect, _register_effectful_op
from torch._library.effects import EffectType
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from remat_gen.capture.process.replaced import replaced

_TAKEN = "allow_non_fake_inputs"
_CHECK = torch.ops.aten._linalg_check_errors.default


@contextlib.contextmanager
def as_in_newest() -> Iterator[None]:
    """Trace as torch 2.13 does, and leave torch as it was."""
    with (
        _tangents_as_outputs(),
        _checks_are_effects(),
        _builtins_are_there(),
        _held_tensors_are_taken(),
    ):
        yield


@contextlib.contextmanager
def _tangents_as_outputs() -> Iterator[None]:
    """Expect each incoming gradient with its output's strides: the engine brings it so.

    torch 2.11 expects a contiguous one: that of a transposed output would be copied when it comes,
    above the peak that was replayed. Where its shape varies, all versions do.
    """
    in_a_format = MemoryFormatMeta.from_tensor

    def as_output(tensor: torch.Tensor, *rest: Any, **options: Any) -> Any:
        varies = tensor._has_symbolic_sizes_strides and tensor.layout is torch.strided
        overlaps = any(isinstance(step, int) and step == 0 for step in tensor.stride())
        if varies and not overlaps:
            return MemoryFormatMeta(size=tensor.size(), stride=tensor.stride())
        return in_a_format(tensor, *rest, **options)

    with (
        torch._functorch.config.patch(guess_tangent_strides_as_outputs=True),
        replaced(MemoryFormatMeta, "from_tensor", staticmethod(as_output)),
    ):
        yield


@contextlib.contextmanager
def _checks_are_effects() -> Iterator[None]:
    """Keep the check of `torch.linalg.inv` and others in the trace, where it is refused.

    torch 2.11 drops it as an operation that nobody uses: a singular matrix would give infinities
    where eager raises.
    """
    if _get_effect(_CHECK) is not None:
        yield
        return
    handle = _register_effectful_op(_CHECK, EffectType.ORDERED)
    try:
        yield
    finally:
        handle.destroy()


@contextlib.contextmanager
def _builtins_are_there() -> Iterator[None]:
    """Let Dynamo's bytecode name builtins (`type`, in what makes a model's output class).

    torch 2.11 looks for them among the globals of the forward's module and refuses the model, any
    of transformers for example.
    """
    of_bytecode, there = GraphCaptureOutput._get_external_refs, vars(builtins)

    def without_builtins(bytecode: CodeType) -> set[str]:
        return of_bytecode(bytecode) - there.keys()

    patched = staticmethod(without_builtins)
    with replaced(GraphCaptureOutput, "_get_external_refs", patched):
        yield


@contextlib.contextmanager
def _held_tensors_are_taken() -> Iterator[None]:
    """Take tensors that are neither parameters nor buffers: `self.rope.cos`, of a plain object.

    Before 2.13 torch finds them beside its tensors without values, and refuses the model.
    """
    inputs = _DynamoBytecodeCodeGen.process_inputs
    if _TAKEN in inputs.__code__.co_names:
        yield
        return

    def with_held(codegen: _DynamoBytecodeCodeGen, *given: Any) -> Any:
        found, mode = inputs(codegen, *given), detect_fake_mode()
        if mode is not None and any(_is_real(leaf, mode) for leaf in pytree.tree_leaves(found)):
            mode.allow_non_fake_inputs = True
        return found

    with replaced(_DynamoBytecodeCodeGen, "process_inputs", with_held):
        yield


def _is_real(leaf: object, mode: FakeTensorMode) -> bool:
    return isinstance(leaf, torch.Tensor) and not mode.is_our_fake(leaf)
