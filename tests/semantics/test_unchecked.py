"""What eager looks at in the values of tensors, and a planned step does not."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from pairs import Pair, make_pair_of
from sources import model_source
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.module import register_module_forward_hook
from torch.overrides import TorchFunctionMode


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


READS = """\
import contextvars

SCALE = contextvars.ContextVar("SCALE", default=2.0)


def scaled(x):
    return x * 2.0
"""
Patch = pytest.MonkeyPatch
UNSEEN: dict[str, Callable[[Any, Patch], object]] = {
    "other code of a function": lambda file, patch: patch.setattr(
        file.scaled, "__code__", (lambda x: x * 3.0).__code__
    ),
    "a context variable": lambda file, patch: file.SCALE.set(3.0),
}


@pytest.mark.parametrize("change", UNSEEN.values(), ids=UNSEEN)
def test_what_no_error_tells(change: Callable[[Any, Patch], object], monkeypatch: Patch) -> None:
    """It stands in docs/limits.md: forward_eager() has other numbers then."""
    lines = "return (self.head(scaled(self.body(x))) * SCALE.get()).square().mean()"
    pair = make_pair_of(model_source(lines, prelude=READS), "1GB", "per-layer")
    context = contextvars.copy_context()
    context.run(goes_on, pair, lambda _: change(pair.planned, monkeypatch))


ELSEWHERE = """\
import enum
import types


class Options:
    def __init__(self, scale): self.scale = scale
    def __call__(self, y): return y * 1.5
    def __len__(self): return 2


class Others(Options):
    pass


class Kind(enum.Enum):
    A = 1


Kind.A.gain = 1.5
X = 1.5
"""
HOLDS = """
self.by_kind, self.options, self.text = {Kind.A: Options(1.5)}, Options(1.5), "X * 2"
self.made = types.ModuleType("made")
self.made.gain = 1.5
"""
READS_THERE = """
y = self.head(self.body(x)) * self.by_kind[Kind.A].scale * Kind.A.gain * self.made.gain
y = self.options(y) * len(self.options) * eval(self.text) * max(0.5, 1.5)
y = y * (2.0 if "LATE" in globals() else 1.0)
return (y * (2.0 if type(self.options) is Options else 1.0)).square().mean()
"""
UNHEARD: dict[str, tuple[Callable[[Any, Any], Any], str, Any]] = {
    "an object by a key that is no name": (
        lambda m, f: m.by_kind[f.Kind.A],
        "scale",
        9.0,
    ),
    "of an Enum's member": (lambda m, f: f.Kind.A, "gain", 9.0),
    "of a module made by hand": (lambda m, f: m.made, "gain", 9.0),
    "what a text names": (lambda m, f: f, "X", 9.0),
    "over a function of Python's": (lambda m, f: f, "max", lambda *_: 9.0),
    "a name among globals": (lambda m, f: f, "LATE", True),
    "how an object is called": (lambda m, f: f.Options, "__call__", lambda _, y: y * 9.0),
    "how long an object is": (lambda m, f: f.Options, "__len__", lambda _: 9),
}


@pytest.fixture(scope="module")
def there() -> Pair:
    return make_pair_of(
        model_source(READS_THERE, prelude=ELSEWHERE, init=HOLDS), "1GB", "per-layer"
    )


@pytest.mark.parametrize("case", UNHEARD)
def test_what_no_row_says(there: Pair, case: str, monkeypatch: Patch) -> None:
    where, name, value = UNHEARD[case]
    goes_on(
        there,
        lambda model: monkeypatch.setattr(where(model, there.planned), name, value, raising=False),
    )


def test_another_class_of_the_same_object(there: Pair) -> None:
    goes_on(there, lambda model: setattr(model.options, "__class__", there.planned.Others), 1)


def goes_on(pair: Pair, change: Callable[[Any], object], steps: int = 0) -> None:
    """A planned step goes on with the example's, eager's with what there is now."""
    (args, _), (_, model) = pair.inputs(), pair.models()

    def losses() -> list[float]:
        found = []
        for step in (model, model.forward_eager):
            torch.manual_seed(0)
            found.append(float(step(*args).detach()))
        return found

    for _ in range(steps):
        model(*args)
    planned, eager = losses()
    assert planned == eager
    change(model)
    again, changed = losses()
    assert again == planned
    assert changed != eager


def test_writes_that_no_version_counts() -> None:
    """What is run again reads what was written: it stands in docs/limits.md."""
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
        out, loss = model(*pair.inputs()[0])
        out.data.mul_(3)
        loss.backward()
        gradients.append(model.layers[0].up.weight.grad)
    assert not torch.allclose(*gradients)


def test_other_kernels_of_attention_are_not_asked_for() -> None:
    """The planned one runs: it stands in docs/limits.md."""
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
_LEAF = model_source(
    "return (self.head(self.body(x)) * (2.0 if x.is_leaf else 3.0)).square().mean()",
    inputs="(torch.randn(6, 8, requires_grad=True),)",
)
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


@pytest.mark.parametrize(("source", "around"), AROUND.values(), ids=AROUND)
def test_what_stands_around_a_call(
    source: str, around: Callable[[], AbstractContextManager[object]]
) -> None:
    """It stands in docs/limits.md: a planned step runs and keeps what it was planned for."""
    pair = make_pair_of(source)
    args, _ = pair.inputs()
    with around():
        eager, planned = (_step(model, args) for model in pair.models())
    assert not all(map(torch.equal, eager, planned))  # type: ignore[arg-type]


def test_what_forward_asks_of_a_tensor() -> None:
    """It stands in docs/limits.md: planned for a leaf, what is none is taken for one."""
    pair = make_pair_of(_LEAF)
    (x,), _ = pair.inputs()
    assert torch.equal(*(_step(model, (x,))[0] for model in pair.models()))  # type: ignore[arg-type]
    eager, planned = (_step(model, (x * 1,))[0] for model in pair.models())
    assert eager is not None and planned is not None and not torch.equal(eager, planned)


@pytest.mark.parametrize("in_place", [False, True])
def test_data_that_is_replaced_before_backward(*, in_place: bool) -> None:
    """It stands in docs/limits.md: backward reads the new numbers, eager's some of the old ones."""
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


def test_a_mode_that_forward_sets() -> None:
    """It stands in docs/limits.md: the step is eager's, the mode stays as it was."""
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


def test_hooks_for_all_modules() -> None:
    """It stands in docs/limits.md: a planned step calls no submodule."""
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
