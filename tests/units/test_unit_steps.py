"""Steps of units equal eager's to the bit, within one budget over all of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import planned_units
import pytest
import torch
import torch.distributed as dist
from planned_units import PATTERNS, Pair, peak, plan, same_bits
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.tensor import Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

import remat_gen
from remat_gen.verification.step import training_step


@pytest.fixture(scope="module")
def routed(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return plan(tmp_path_factory.mktemp("routed"), "routed", "55%")


@pytest.fixture(scope="module", params=sorted(PATTERNS))
def pair(
    request: pytest.FixtureRequest, routed: Pair, tmp_path_factory: pytest.TempPathFactory
) -> Pair:
    if request.param == "routed":
        return routed
    return plan(tmp_path_factory.mktemp(request.param), request.param, "75%")


def test_steps_are_bitwise_and_within_the_budget(pair: Pair) -> None:
    assert pair.generated.plan.predicted.reruns > 0
    assert same_bits(pair)
    original, planned = pair.models()
    assert peak(pair, planned) <= pair.generated.plan.predicted.peak_bytes
    assert peak(pair, planned) < peak(pair, original)


def test_a_mixture_of_experts_takes_half_of_eager(routed: Pair) -> None:
    original, planned = routed.models()
    assert peak(routed, planned) <= 0.55 * peak(routed, original)


def test_the_same_plan_gives_the_same_bytes(pair: Pair) -> None:
    assert pair.generated.output is not None
    assert not remat_gen.check(pair.generated.output).stale


def test_units_keep_their_class_names_and_their_hooks(pair: Pair) -> None:
    for original, planned in zip(*(m.modules() for m in pair.models()), strict=True):
        assert type(original).__name__ in (type(planned).__name__, type(planned).__base__.__name__)
    _, model = pair.models()
    path = pair.generated.plan.blocks[0].name
    ran: list[str] = []
    unit = model.get_submodule(path)
    unit.register_forward_hook(lambda *_: ran.append("forward"))
    unit.register_full_backward_hook(lambda *_: ran.append("backward"))
    training_step(model, *pair.example)
    calls = sum(block.name == path for block in pair.generated.plan.blocks)
    assert ran == ["forward"] * calls + ["backward"] * calls


def test_units_of_several_kinds_are_of_one_class(tmp_path: Path) -> None:
    """FSDP's policies ask for a layer's class; the first one's input requires no grad."""
    frozen = (
        "    model = LlamaForCausalLM(config)\n    model.model.embed_tokens.requires_grad_(False)\n"
    )
    changes = {"    return LlamaForCausalLM(config)": f"{frozen}    return model"}
    pair = plan(tmp_path, "llama", "90%", changes)
    for model in pair.models():
        first, *others = model.model.layers
        assert all(type(layer) is type(first) for layer in others)
    assert first._planned_forward != others[0]._planned_forward


def test_what_changed_is_named_by_its_path_in_the_model(routed: Pair) -> None:
    _, model = routed.models()
    training_step(model, *routed.example)
    model.h[2].drop.p = 0.5
    with pytest.raises(ValueError, match=r"h\.2\.drop\.p is 0\.5, planned for 0\.2"):
        training_step(model, *routed.example)
    model.h[2].drop.p = 0.2
    training_step(model, *routed.example)
    model.h[1] = routed.planned.Layer()
    with pytest.raises(ValueError, match="this Layer is none of the units planned for"):
        training_step(model, *routed.example)


def test_an_input_that_changed_is_named_with_its_unit(routed: Pair) -> None:
    """The model's own inputs may be called the same."""
    _, model = routed.models()
    model.requires_grad_(False).h[1].requires_grad_(True)
    with pytest.raises(
        ValueError, match=r"x of h\.0 is float32.* on cpu, planned for .* requires grad"
    ):
        training_step(model, *routed.example)


def test_two_steps_may_be_in_flight(routed: Pair) -> None:
    found = []
    for model in routed.models():
        losses = []
        for seed in (1, 2):
            torch.manual_seed(seed)
            losses.append(model(*routed.example[0]))
        for loss in losses:  # the first one's backward runs after the second one's forward
            loss.backward()
        found.append([p.grad for p in model.parameters()])
    assert all(map(torch.equal, *found))


TWICE = {  # a layer is given one tensor for two arguments, and the head reads it, too
    "x: Tensor) -> Tensor:\n        q": "x: Tensor, y: Tensor) -> Tensor:\n        x, q",
    "x, q, k, v =": "x = x * 0.5 + y\n        q, k, v =",
    "x = self.embed(ids)\n        for": "x = first = self.embed(ids)\n        for",
    "x = layer(x)": "x = layer(x, first)",
    "self.head(x)": "self.head(x + first)",
}


def _steps(model: nn.Module, ids: torch.Tensor) -> None:
    model(ids).backward()


def _steps_with_what_layers_are_given(model: nn.Module, ids: torch.Tensor) -> None:
    given: list[torch.Tensor] = []
    for layer in model.h:  # type: ignore[union-attr]
        layer.register_forward_pre_hook(lambda _, args: given.append(args[0]))
    (model(ids) + sum(x.square().mean() for x in given)).backward()


@pytest.mark.untold(
    "Units whose inputs the loss reads, too, where the planned step did not show it (a hook that "
    "collects them, an argument that returns them later): gradients are added up in another order "
    "than eager's, and differ in the last bits. So are those of a tensor that a unit is given for "
    "two arguments and that something else reads, too (`x = block(x, x0)`, first with `x0` for "
    "both), and those of DDP in three processes and more, by the order of its buckets "
    "(`docs/distributed.md`)."
)
@pytest.mark.parametrize(
    ("changes", "step"), [(TWICE, _steps), ({}, _steps_with_what_layers_are_given)]
)
def test_sums_that_are_added_up_in_another_order(
    tmp_path: Path,
    changes: dict[str, str],
    step: Callable[[nn.Module, torch.Tensor], None],
) -> None:
    found: list[list[torch.Tensor]] = []
    pair = plan(tmp_path, "deep", "75%", changes)
    for model in pair.models():
        torch.manual_seed(1)
        step(model, *pair.example[0])
        found.append([p.grad for p in model.parameters() if p.grad is not None])
    assert not all(map(torch.equal, *found))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)  # some thousand roundings


FLAGGED = {
    "self.drop = nn": "self.register_buffer('zero', torch.tensor(0.0))\n        self.drop = nn",
    "return x + self.down(F.gelu(self.up(x)))": "x = x + self.zero.requires_grad_()\n"
    "        return x + self.down(F.gelu(self.up(x)))",
}


def test_a_buffer_that_a_unit_lets_require_grad(tmp_path: Path) -> None:
    """The flag that the model's own step left while planning was part of the plan."""
    pair = plan(tmp_path, "deep", "90%", FLAGGED)
    assert same_bits(pair)
    _, model = pair.models()
    for _ in range(2):
        training_step(model.train(), *pair.example)
        model.eval()(*pair.example[0])


def test_a_unit_that_returns_one_tensor_twice(tmp_path: Path) -> None:
    changes = {
        "return x + self.down(F.gelu(self.up(x)))": "x = x + self.down(F.gelu(self.up(x)))\n"
        "        return x, x",
        "x = layer(x)": "x, y = layer(x)\n            x = x + y.sin()",
    }
    pair = plan(tmp_path, "deep", "95%", changes)
    assert {block.name for block in pair.generated.plan.blocks} >= {"h.0", "h.1", "h.2"}
    assert same_bits(pair)


def test_without_training_the_original_forward_runs(routed: Pair) -> None:
    original, planned = (model.eval() for model in routed.models())
    assert torch.equal(original(*routed.example[0]), planned(*routed.example[0]))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"units": ["layers.*"]}, r"names no submodule; the model has h\.\*, moe\.\*"),
        ({"units": ["h"]}, "h is a list, which is never called"),
        ({"units": ["h.*", "h.0.up"]}, r"h\.0\.up lies in h\.0, which is a unit itself"),
        ({"units": ["auto", "h.*"]}, "--units auto finds all units: give it alone"),
        ({}, r"nonzero .*--units auto plans submodules alone \(h\.\*, \d+% of what modules keep"),
        ({"units": ["h.*"], "target": "h200"}, "--units and --target exclude each other"),
    ],
)
def test_refusals(tmp_path: Path, options: dict[str, object], words: str) -> None:
    source = planned_units.MODELS / "routed.py"
    with pytest.raises(remat_gen.RematError, match=words):
        remat_gen.generate(source, budget="80%", output=tmp_path / "x.py", **options)


def test_an_input_of_a_unit_that_is_written_into_is_refused(tmp_path: Path) -> None:
    """Eager's backward may not read it again, a unit's does."""
    doubled = "x = x * 2\n        q, k, v ="
    changes = {"x = layer(x)": "x.add_(layer(x))", "q, k, v =": doubled}
    with pytest.raises(remat_gen.RematError, match="a unit keeps what it is called with"):
        plan(tmp_path, "deep", "90%", changes)


@pytest.mark.parametrize(
    "first",
    [
        "x = x + 1.0",
        "x = (x + 1.0) * x.sum(-1, keepdim=True)",
        "on, z, h = x.detach() != 0, self.ln(x).tanh(), x + 1; x = (h.cos() + h.tanh() + z) * on",
    ],
)
def test_what_a_unit_adds_up_behind_its_input_is_one_summand(tmp_path: Path, first: str) -> None:
    """Autograd adds it to what comes from elsewhere as a whole."""
    changes = {"q, k, v =": f"{first}\n        q, k, v =", "x = layer(x)": "x = layer(x) * x.cos()"}
    assert same_bits(plan(tmp_path, "deep", "90%", changes))


def test_what_the_model_returns_of_a_units_input_is_added_in_eagers_order(tmp_path: Path) -> None:
    """As hidden states for a distillation: what the loss makes of them comes first."""
    changes = {"x = layer(x)": "states.append(x); x = layer(x)"}
    changes |= {
        "for layer in": "states = []\n        for layer in",
        "return F.cross": "return *states, F.cross",
    }
    pair = plan(tmp_path, "deep", "90%", changes)
    found = []
    for model in pair.models():
        torch.manual_seed(1)
        *states, loss = model(*pair.example[0])
        (loss + states[1].square().mean() + states[2].cos().mean()).backward()
        found.append([p.grad for p in model.parameters()])
    assert all(map(torch.equal, *found))


def test_inputs_of_a_unit_that_are_one_are_named_where_it_asks(tmp_path: Path) -> None:
    changes = {
        "forward(self, x: Tensor)": "forward(self, x: Tensor, y: Tensor)",
        "q, k, v =": "x = x if x is y else x + y\n        q, k, v =",
        "x = layer(x)": "x = layer(x, x if self.same else x.sin())",
        "self.embed =": "self.same = False\n        self.embed =",
    }
    pair = plan(tmp_path, "deep", "90%", changes)
    assert same_bits(pair)
    _, model = pair.models()
    model.same = True
    with pytest.raises(ValueError, match="y is the same as x, planned for one that is not"):
        training_step(model, *pair.example)


def test_checkpointing_around_units_is_refused(routed: Pair) -> None:
    _, model = routed.models()
    for name, unit in list(model.h.named_children()):
        setattr(model.h, name, checkpoint_wrapper(unit))
    args, kwargs = routed.example
    with pytest.raises(RuntimeError, match="take activation checkpointing away from it"):
        training_step(model, args, kwargs)


def test_tensor_parallel_parameters_are_refused_by_class(routed: Pair) -> None:
    _, model = routed.models()
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        mesh = dist.init_device_mesh("cpu", (2,))
        weight = distribute_tensor(model.h[1].up.weight.detach(), mesh, [Shard(0)])
        model.h[1].up.weight = nn.Parameter(weight)
        args, kwargs = routed.example
        with pytest.raises(ValueError, match=r"h\.1\.up is Linear\(.*a DTensor \[Shard\(dim=0\)\]"):
            training_step(model, args, kwargs)
    finally:
        dist.destroy_process_group()


def test_summands_are_explained_where_they_are_handed_in(tmp_path: Path) -> None:
    output = plan(tmp_path, "shared", "100%").generated.output
    assert output is not None
    text = output.read_text()
    assert "memory=memory" in text and "memory_2=memory" in text
    assert re.search(r"# .*memory_2.*: for more summands of a gradient", text)


TRANSPOSED = """\
import torch
from torch import Tensor, nn


class Turned(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).transpose(0, 1)


def build_model() -> nn.Module:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = Turned(64, 256), nn.Linear(256, 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.down(self.up(x)).square().mean()

    return Net()


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(32, 16, 64),)
"""


def test_a_gradient_in_other_strides_than_a_units_result_is_counted_twice(tmp_path: Path) -> None:
    """One unit makes it as its kernel does, the other's backward takes it as it had returned."""
    source = tmp_path / "net.py"
    source.write_text(TRANSPOSED, encoding="utf-8")
    generated = remat_gen.generate(
        source, budget="4MB", units=["up", "down"], static=True, device="cpu"
    )
    pair = planned_units.pair_of(source, generated)
    assert same_bits(pair)
    _, planned = pair.models()
    assert peak(pair, planned) <= generated.plan.predicted.peak_bytes
    assert generated.plan.units is not None
    *_, at_end = generated.plan.units.held_bytes
    assert at_end >= 2 * 32 * 16 * 256 * 4  # where `up` goes back: what came, and in its strides
