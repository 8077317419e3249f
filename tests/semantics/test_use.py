"""The planned model is a module like any other: copied, saved, called functionally, in threads."""

from __future__ import annotations

import copy
import io
import re
import threading
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from pairs import Pair, make_pair_of
from sources import model_source
from steps import assert_right, assert_same, run_steps, same
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from remat_gen.ir.errors import TraceError


def test_state_dict_has_the_same_keys_and_shapes(mixed: Pair) -> None:
    original, planned = mixed.models()
    shapes = [{k: v.shape for k, v in m.state_dict().items()} for m in (original, planned)]
    assert shapes[0] == shapes[1]


def test_deepcopy_steps_alike_and_apart(mixed: Pair) -> None:
    original, planned = mixed.models()
    copied = copy.deepcopy(planned)
    expected = run_steps(original, mixed)
    assert_same(expected, run_steps(copied, mixed))
    assert all(p.grad is None for p in planned.parameters())


def test_a_saved_model_steps_alike(mixed: Pair) -> None:
    original, planned = mixed.models()
    file = io.BytesIO()
    torch.save(planned, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert_same(run_steps(original, mixed), run_steps(loaded, mixed))


READ_FIRST = model_source(
    "h = self.body(x + self.head.weight.detach().sum())\nreturn self.head(h).square().mean()"
)


def _other_object(layer: nn.Module) -> None:
    layer.weight = nn.Parameter(layer.weight.detach() + 1)


def _other_memory(layer: nn.Module) -> None:
    layer.weight.data = layer.weight.data + 1


def _other_numbers(layer: nn.Module) -> None:
    with torch.no_grad():
        layer.weight.add_(1)


@pytest.mark.parametrize("change", [_other_object, _other_memory, _other_numbers])
def test_a_step_has_the_parameters_of_its_time(deep: Pair, change: Callable[..., None]) -> None:
    """The generated forward does not fetch them anew where it saw no other object."""
    found = []
    for model in deep.models():
        run_steps(model, deep)
        model.zero_grad()
        change(model.get_submodule("layers.1.up"))
        found.append(run_steps(model, deep))
    assert_same(*found)


@pytest.mark.parametrize("change", [_other_object, _other_memory, _other_numbers])
def test_what_a_block_only_reads_is_of_the_step(change: Callable[..., None]) -> None:
    """It is handed a view, as a later block has the gradient; the view is made anew."""
    pair = make_pair_of(READ_FIRST, "1GB", "per-layer")
    assert re.search(r"^    borrowed = .*head", pair.text, re.MULTILINE)
    found = []
    for model in pair.models():
        run_steps(model, pair)
        model.zero_grad()
        change(model.get_submodule("head"))
        found.append(run_steps(model, pair))
    assert_same(*found)


def test_functional_call(deep: Pair) -> None:
    args, _ = deep.inputs()
    gradients = []
    for model in deep.models():
        others = {n: (p.detach() + 0.1).requires_grad_() for n, p in model.named_parameters()}
        torch.manual_seed(0)
        loss = torch.func.functional_call(model, others, args)
        gradients.append(torch.autograd.grad(loss, list(others.values())))
    assert all(map(torch.equal, *gradients))


def test_functional_call_with_frozen_tensors() -> None:
    """They are no parameters, but stand where frozen ones do."""
    init = "self.head.requires_grad_(False)"
    source = model_source("return self.head(self.body(x))", init=init)
    source = source.replace("nn.Dropout(0.5)", "nn.Identity()")
    pair = make_pair_of(source, "1GB", "per-layer")
    args, _ = pair.inputs()
    gradients = []
    for model in pair.models():
        others = {
            name: p.detach().clone().requires_grad_(p.requires_grad)
            for name, p in model.named_parameters()
        }
        torch.func.functional_call(model, others, args).square().sum().backward()
        gradients.append([p.grad for p in others.values() if p.requires_grad])
        assert any(not p.requires_grad for p in others.values())
    assert all(map(torch.equal, *gradients))


def test_two_threads_step_two_models() -> None:
    pair = make_pair_of(_without_dropout(), "1GB", "per-layer")
    args, _ = pair.inputs()
    models = [pair.models(seed) for seed in (0, 1)]

    def work(planned: nn.Module) -> None:
        for _ in range(20):
            planned(*args).square().sum().backward()

    threads = [threading.Thread(target=work, args=(planned,)) for _, planned in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for original, planned in models:
        work(original)
        pairs = zip(original.parameters(), planned.parameters(), strict=True)
        assert all(same(p.grad, q.grad) for p, q in pairs)


def _without_dropout() -> str:
    source = model_source("return self.head(self.body(x))")
    return source.replace("nn.Dropout(0.5)", "nn.Identity()")


def test_hooks_on_the_model_and_on_parameters(deep: Pair) -> None:
    logs: list[list[str]] = []
    for model in deep.models():
        log: list[str] = []
        model.register_forward_pre_hook(lambda *_, log=log: log.append("before"))
        model.register_forward_hook(lambda *_, log=log: log.append("after"))
        model.register_full_backward_hook(lambda *_, log=log: log.append("backward"))
        for name, parameter in model.named_parameters():
            parameter.register_post_accumulate_grad_hook(
                lambda p, name=name, log=log: log.append(f"{name} {p.grad.norm().item()}")
            )
            parameter.register_hook(lambda g, log=log: log.append(f"{g.sum().item()}"))
        torch.manual_seed(0)
        model(*deep.inputs()[0]).backward()
        logs.append(log)
    assert sorted(logs[0]) == sorted(logs[1])
    assert logs[1][:2] == ["before", "after"]


def test_a_parameters_hook_changes_its_gradient(deep: Pair) -> None:
    _, planned = deep.models()
    planned.head.weight.register_hook(lambda gradient: torch.zeros_like(gradient))
    planned(*deep.inputs()[0]).backward()
    assert not planned.head.weight.grad.any()


@pytest.mark.parametrize(
    "register",
    [
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_full_backward_hook",
        "register_full_backward_pre_hook",
    ],
)
def test_a_hook_on_a_submodule_is_refused(deep: Pair, register: str) -> None:
    _, planned = deep.models()
    getattr(planned.layers[3].up, register)(lambda *_: None)
    with pytest.raises(
        ValueError, match=r"layers\.3\.up is .* with hook (.|\n)*remat-gen model\.py"
    ):
        planned(*deep.inputs()[0])


def test_a_backward_hook_on_a_submodule_is_refused_when_the_model_is_planned() -> None:
    source = model_source(
        "return self.head(self.body(x))",
        init="self.layers[0].up.register_full_backward_hook(lambda module, into, out: into)",
    )
    with pytest.raises(TraceError, match=r"layers\.0\.up has a hook"):
        make_pair_of(source, "1GB", "per-layer")


HOOKS = [
    "self.register_forward_pre_hook(lambda module, args: (2 * args[0],))",
    "self.register_forward_hook(lambda module, args, output: output * 3)",
    "self.register_full_backward_hook(lambda module, into, out: (into[0] * 2,))",
]


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_on_the_model_that_build_model_puts_there_is_kept(hook: str) -> None:
    source = model_source(
        "return self.head(self.body(x))",
        init=hook,
        inputs="(torch.randn(6, 8, requires_grad=True),)",
    )
    assert_right(make_pair_of(source, "1GB", "per-layer"))


def test_eval_and_no_grad_run_the_original_forward(mixed: Pair) -> None:
    original, planned = mixed.models()
    args, _ = mixed.inputs()
    for prepare in (lambda m: m, lambda m: m.eval()):
        with torch.no_grad():
            results = []
            for model in (original, planned):
                torch.manual_seed(0)
                results.append(prepare(model)(*args))
        assert torch.equal(results[0], results[1])
    gradients = [_gradients_in_eval(model, args) for model in (original, planned)]
    assert all(map(same, *gradients))


def _gradients_in_eval(model: nn.Module, args: tuple[Tensor, ...]) -> list[Tensor | None]:
    model.eval()
    model(*args).backward()  # eager's autograd, and so it may go twice
    return [p.grad for p in model.parameters()]


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_an_outer_checkpoint_stays_right(use_reentrant: bool) -> None:
    source = model_source(
        "return self.head(self.body(x))", inputs="(torch.randn(6, 8, requires_grad=True),)"
    )
    pair = make_pair_of(source, "1GB", "per-layer")
    gradients = []
    for model in pair.models():
        (x,), _ = pair.inputs()
        torch.manual_seed(0)
        output = checkpoint(model, x * 2, use_reentrant=use_reentrant)
        output.square().sum().backward()
        gradients.append([x.grad, *(p.grad for p in model.parameters())])
    assert all(map(same, *gradients))


@pytest.mark.limit(
    "`torch.utils.checkpoint` around a planned model that reads a buffer which it writes",
    "an error in backward, where forward runs again: its buffer is another one by then",
)
@pytest.mark.parametrize("use_reentrant", [True, False])
def test_an_outer_checkpoint_of_a_forward_with_a_running_mean_is_refused(
    use_reentrant: bool,
) -> None:
    """Eager's gradients are those of the second run; the plan's would be of the first."""
    norm = "x = self.norm(x)\n"
    running = "self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)\nx = x - self.mean\n"
    init = "self.register_buffer('mean', torch.zeros(8))\nself.norm = nn.BatchNorm1d(8)"
    x = torch.randn(6, 8, requires_grad=True)
    for forward, refused in ((norm, False), (running, True)):
        source = model_source(
            f"{forward}return self.head(self.body(x))",
            init=init,
            inputs="(torch.randn(6, 8, requires_grad=True),)",
        )
        model = make_pair_of(source, "1GB", "per-layer").models()[1]
        output = checkpoint(model, x * 2, use_reentrant=use_reentrant)
        says = "forward runs again in backward, and reads buffers that it has written"
        with pytest.raises(RuntimeError, match=says) if refused else nullcontext():
            output.square().sum().backward()


def test_the_optimizer_trains_both_alike(mixed: Pair) -> None:
    losses = []
    for model in mixed.models():
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        args, _ = mixed.inputs()
        torch.manual_seed(0)
        for _ in range(5):
            optimizer.zero_grad()
            loss = model(*args)
            loss.backward()
            optimizer.step()
        losses.append(loss)
    assert torch.equal(losses[0], losses[1])


def test_another_default_device(mixed: Pair) -> None:
    """What a step makes itself says where."""
    left = []
    for model in mixed.models():
        args, kwargs = mixed.inputs()
        torch.set_default_device("meta")
        try:
            torch.manual_seed(0)
            model(*args, **kwargs).backward()
        finally:
            torch.set_default_device(None)
        left.append({name: p.grad for name, p in model.named_parameters()})
    for name, gradient in left[0].items():
        assert gradient is None or torch.equal(gradient, left[1][name]), name


DECORATED = """\
import functools
import torch
from torch import Tensor, nn


def cached(forward):
    @functools.wraps(forward)
    def wrapper(self, *args, **kwargs):
        kwargs["cache"] = kwargs.get("cache")
        return forward(self, *args, **kwargs)

    return wrapper


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    @cached
    def forward(self, x: Tensor, mask: Tensor | None = None, cache: object = None) -> Tensor:
        y = self.down(self.up(x).sin())
        return y.square().mean() if mask is None else (y * mask).square().mean()


def build_model() -> nn.Module:
    return Model()


def example_inputs() -> object:
    return (torch.randn(4, 8), torch.ones(8))
"""


def test_a_decorator_may_add_names_to_those_that_forward_is_given() -> None:
    """As those of transformers do: by position they would be given twice."""
    pair = make_pair_of(DECORATED)
    assert "self.forward_eager(x, mask, cache=cache)" in pair.text
    original, planned = (model.eval() for model in pair.models())
    x = torch.randn(2, 8)
    assert same(original(x), planned(x))
    assert same(original(x, torch.zeros(8)), planned(x, mask=torch.zeros(8)))
