"""What eager sees around a step, or in the values of tensors, and a planned one does not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from pairs import make_pair_of
from sources import model_source
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.module import register_module_forward_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


@pytest.mark.limit(
    "the checks of `torch.distributions` whether arguments lie in their domain",
    "not made in a planned step, whose numbers are eager's; `forward_eager()` makes them",
)
def test_distributions(monkeypatch: pytest.MonkeyPatch) -> None:
    # Dynamo leaves the checks out for good when it is first used by itself.
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)
    lines = "q = torch.distributions.Normal(self.body(x), 1.0)\nreturn q.rsample().square().mean()"
    pair = make_pair_of(model_source(lines), "1GB", "per-layer")
    _, planned = pair.models()
    args, _ = pair.inputs()
    assert planned(*args).isfinite()
    assert planned(args[0] * torch.nan).isnan()
    with pytest.raises(ValueError, match="Expected parameter loc"):
        planned.forward_eager(args[0] * torch.nan)


def _writes(output: Tensor, _: Any) -> None:
    output.data.mul_(3)


def _writes_by_numpy(output: Tensor, _: Any) -> None:
    output.detach().numpy()[:] *= 3


def _refills(_: Tensor, given: Any) -> None:
    given[:] *= 3


@pytest.mark.untold(
    "`out.data.mul_(…)` and writes through `out.numpy()` on an output before backward, and such "
    "writes into an input (an array that `torch.from_numpy` was given, refilled before backward): "
    "PyTorch's version check sees neither; what a plan runs again reads what was written, so that "
    "gradients differ from eager's."
)
@pytest.mark.parametrize("write", [_writes, _writes_by_numpy, _refills])
def test_writes_that_no_version_counts(write: Callable[[Tensor, Any], None]) -> None:
    lines = """
        y = self.body(x)
        z = self.last(self.wide(y.repeat(1, 16).sigmoid()).sigmoid())
        return y, z.sum()
    """
    init = "self.wide = nn.Linear(128, 128)\nself.last = nn.Linear(128, 128)"
    pair = make_pair_of(model_source(lines, init=init))
    gradients = []
    for model in pair.models():
        torch.manual_seed(0)
        given = pair.inputs()[0][0].numpy()
        out, loss = model(torch.from_numpy(given))
        write(out, given)
        loss.backward()
        gradients.append(model.layers[0].up.weight.grad)
    assert not torch.allclose(*gradients)


@pytest.mark.untold(
    "`torch.nn.attention.sdpa_kernel(…)` around a step that was planned without it: attention's "
    "kernel is the planned one (last bits differ)."
)
def test_other_kernels_of_attention_are_not_asked_for() -> None:
    lines = "y = self.body(x)[None, None]\nreturn F.scaled_dot_product_attention(y, y, y).sum()"
    pair = make_pair_of(model_source(lines), "1GB", "per-layer")
    _, planned = pair.models()
    args, _ = pair.inputs()
    losses = []
    for context in (contextlib.nullcontext(), sdpa_kernel(SDPBackend.MATH)):
        torch.manual_seed(0)
        with context:
            losses.append(planned(*args))
    assert torch.equal(*losses)
    assert "flash_attention_for_cpu" in pair.text


class _OtherSoftmax(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is F.softmax else result


_SOFT = model_source("return self.head(F.softmax(self.body(x), -1)).square().mean()")
AROUND: dict[str, tuple[str, Callable[[], AbstractContextManager[object]]]] = {
    "a library's function": (_SOFT, lambda: mock.patch.object(F, "softmax", F.log_softmax)),
    "a mode for functions": (_SOFT, _OtherSoftmax),
    "hooks that round": (
        _SOFT,
        lambda: torch.autograd.graph.saved_tensors_hooks(torch.round, lambda t: t),
    ),
}


def _step(model: Any, args: tuple[Any, ...]) -> list[Tensor | None]:
    torch.manual_seed(0)
    loss = model(*args)
    loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters())]


@pytest.mark.untold(
    "What a `TorchFunctionMode`, `saved_tensors_hooks` that round or a library's function that is "
    "replaced (`F.scaled_dot_product_attention = …`) would do to calls of a planned model: it "
    "keeps by itself, and runs what it was planned for."
)
@pytest.mark.parametrize(("source", "around"), AROUND.values(), ids=AROUND)
def test_what_stands_around_a_call(
    source: str, around: Callable[[], AbstractContextManager[object]]
) -> None:
    pair = make_pair_of(source)
    args, _ = pair.inputs()
    with around():
        eager, planned = (_step(model, args) for model in pair.models())
    assert not all(map(torch.equal, eager, planned))  # type: ignore[arg-type]


@pytest.mark.untold(
    "`p.data = …` and `p.data.mul_(…)` between a step's forward and its backward: backward, and "
    "what it runs again, read the new numbers, eager's some of the old ones. (Parameters that are "
    "changed in place by themselves raise, as in eager; also where only what runs again reads "
    "them.)"
)
@pytest.mark.parametrize("in_place", [False, True])
def test_data_that_is_replaced_before_backward(*, in_place: bool) -> None:
    pair = make_pair_of(model_source("return self.head(self.body(x)).square().mean()"))
    args, _ = pair.inputs()
    gradients = []
    for model in pair.models():
        torch.manual_seed(0)
        loss = model(*args)
        layer = model.layers[0]
        if in_place:
            layer.up.weight.data.mul_(2)
        else:
            layer.down.weight.data = 2 * layer.down.weight.data
        loss.backward()
        gradients.append(model.layers[0].up.weight.grad)
    assert not torch.equal(*gradients)


@pytest.mark.untold(
    "A mode that `forward` itself sets (`self.norm.eval()`): the step computes as eager's, and "
    "behind it the module is in the mode that it was in. What it sets for all of torch "
    "(`torch.set_…`) and leaves so is not set."
)
def test_a_mode_that_forward_sets() -> None:
    forward = "self.norm.eval()\nreturn self.head(self.norm(self.body(x)))"
    pair = make_pair_of(model_source(forward, init="self.norm = nn.BatchNorm1d(8)"))
    args, _ = pair.inputs()
    outputs, modes = [], []
    for model in pair.models():
        torch.manual_seed(0)
        outputs.append(model(*args))
        modes.append(model.norm.training)
    assert torch.equal(*outputs)
    assert modes == [False, True]


class _Enabled(TorchDispatchMode):
    """Whether oneDNN is enabled where something is convolved."""

    def __init__(self, found: list[bool]) -> None:
        super().__init__()
        self.found = found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.convolution.default:
            self.found.append(torch.backends.mkldnn.enabled)
        return func(*args, **(kwargs or {}))


@pytest.mark.untold(
    "`torch.backends.mkldnn.flags(…)` and other settings of torch's that `forward` itself changes "
    "around some of its calls: they run with what is set around the step."
)
@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_settings_that_forward_changes() -> None:
    lines = "with torch.backends.mkldnn.flags(enabled=False):\n    y = self.conv(x[None])\n"
    pair = make_pair_of(
        model_source(f"{lines}return self.body(y[0]).sum()", init="self.conv = nn.Conv1d(6, 6, 1)")
    )
    enabled = []
    for model in pair.models():
        with _Enabled(enabled):
            model(*pair.inputs()[0])
    assert enabled == [False, True]


def test_what_forward_sets_for_all_of_torch() -> None:
    pair = make_pair_of(
        model_source("torch.set_printoptions(precision=9)\nreturn self.head(self.body(x)).sum()")
    )
    left = []
    for model in pair.models():
        with torch._tensor_str.printoptions(precision=4):
            model(*pair.inputs()[0])
            left.append(torch._tensor_str.PRINT_OPTS.precision)
    assert left == [9, 4]


@pytest.mark.untold(
    "Hooks for all modules (`register_module_forward_hook`) are called for the model as a whole."
)
def test_hooks_for_all_modules() -> None:
    pair = make_pair_of(model_source("return self.head(self.body(x)).square().mean()"))
    args, _ = pair.inputs()
    called: list[list[nn.Module]] = []
    for model in pair.models():
        called.append([])
        handle = register_module_forward_hook(lambda m, *_, into=called[-1]: into.append(m))
        model(*args)
        handle.remove()
        assert called[-1][-1] is model
    assert len(called[0]) > len(called[1]) == 1
