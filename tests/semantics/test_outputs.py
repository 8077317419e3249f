"""What the model returns, whatever its nesting, and which of it carries a gradient."""

from __future__ import annotations

import pytest
import torch
from pairs import LOWEST, Pair, make_pair_of
from sources import model_source
from steps import assert_right

from remat_gen.ir.errors import TraceError
from remat_gen.verification.peak import model_peak

H = "h = self.head(self.body(x))\n"
CASES = {
    "tuple of two": model_source("x = self.body(x)\nreturn self.head(x), x"),
    "the same tensor twice": model_source(H + "return h, h"),
    "the same and a view": model_source(H + "return h, h, h[:]"),
    "an input as it is": model_source(H + "return h, x"),
    "a view of an input": model_source(H + "return x.view(-1), h"),
    "a parameter": model_source(H + "return h, self.head.weight, self.head.weight.t()"),
    "a detached parameter": model_source(H + "return h, self.head.weight.detach()"),
    "views": model_source(H + "return h, h.view(-1), h[:, 1:]"),
    "splits": model_source(H + "return torch.stack(list(h.unbind(1))), h.split(2, 1)"),
    "integers and booleans": model_source(
        H + "return {'h': h, 'best': h.argmax(-1), 'positive': h > 0}"
    ),
    "detached": model_source(H + "return h, h.detach(), h.detach() * 2, torch.ones(3)"),
    "constants between": model_source(H + "return [h, None, 'name', 3, 2.5, True, (h * 2,)]"),
    "shapes": model_source(H + "return h, h.shape, h.size()[:1], x.shape"),
    "loss and logits": model_source(H + "return h.mean(), h"),
    "two scalars": model_source(H + "return h.mean(), h.sum(), h"),
    "named tuple": model_source(
        H + "return Out(h, h.detach().sum())",
        prelude="class Out(NamedTuple):\n    h: Tensor\n    total: Tensor",
    ),
    "keys of other kinds": model_source(
        H + "return {Task.SEG: h, ('user', 'buys'): h.sum(0), (Task.CLS,): {3: h * 2}, True: x}",
        prelude="import enum\n\n\nclass Task(str, enum.Enum):\n    SEG = 'seg'\n    CLS = 'cls'",
    ),
    "dataclass": model_source(
        H + "return Out(h, {'total': h.sum()}, None)",
        prelude="@dataclass\nclass Out:\n    h: Tensor\n    inner: Any\n    none: Any",
    ),
}


@pytest.mark.parametrize("source", CASES.values(), ids=CASES)
def test_outputs_are_eagers(source: str) -> None:
    assert_right(make_pair_of(source, "1GB", "per-layer"))


def test_keys_are_of_eagers_kinds() -> None:
    pair = make_pair_of(CASES["keys of other kinds"], "1GB", "per-layer")
    (args, _), (_, planned) = pair.inputs(), pair.models()
    first, *others = planned(*args)
    assert first is pair.planned.Task.SEG
    assert others == [("user", "buys"), (pair.planned.Task.CLS,), True]


def test_the_same_tensor_twice_is_one_object() -> None:
    pair = make_pair_of(CASES["the same tensor twice"], "1GB", "per-layer")
    _, planned = pair.models()
    one, other = planned(*pair.inputs()[0])
    assert one is other


def test_a_shape_is_a_size() -> None:
    pair = make_pair_of(CASES["shapes"], "1GB", "per-layer")
    for model in pair.models():
        h, *shapes = model(*pair.inputs()[0])
        assert shapes == [h.shape, h.shape[:1], pair.inputs()[0][0].shape]
        assert {type(shape) for shape in shapes} == {torch.Size}


def test_an_input_is_handed_on_itself() -> None:
    pair = make_pair_of(CASES["an input as it is"], "1GB", "per-layer")
    _, planned = pair.models()
    (x,), _ = pair.inputs()
    assert planned(x)[1] is x


WRITTEN = (
    "h = self.head(self.body(x))\nmemory.mul_(0.9).add_(h.detach(), alpha=0.1)\n"
    "self.seen.lerp_(h.detach().mean(0), 0.1)\nreturn h, memory, [self.seen], memory"
)


def test_what_forward_writes_and_returns_is_itself() -> None:
    """Who changes it afterwards changes what the next step reads."""
    source = model_source(
        WRITTEN,
        init="self.register_buffer('seen', torch.zeros(4))",
        inputs="(torch.randn(6, 8), torch.zeros(6, 4))",
    )
    before, forward, after = source.rpartition("def forward(self, x: Tensor")
    source = f"{before}{forward}, memory: Tensor{after}"
    pair = make_pair_of(source, "1GB", "per-layer")
    assert_right(pair)
    found = []
    for model in pair.models():
        x, memory = pair.inputs()[0]
        for _ in range(2):
            torch.manual_seed(3)
            h, written, (seen,), again = model(x, memory)
            assert written is memory and again is memory and seen is model.seen
            h.sum().backward()
            found.append((h, memory.clone(), seen.clone()))
            memory.zero_()
            seen.zero_()
    for one, other in zip(found[:2], found[2:], strict=True):
        assert all(map(torch.equal, one, other))


VIEWED = {
    "written whole": "seen.mul_(0.9).add_(h.detach(), alpha=0.1)",
    "a part written": "seen[1:4].add_(h[1:4].detach())",
    "written through a view": "seen.view(-1).copy_(h.detach().view(-1))",
}


@pytest.mark.parametrize("written", VIEWED.values(), ids=VIEWED)
@pytest.mark.parametrize("of", ["a buffer", "an argument"])
def test_views_of_what_forward_writes_share_its_memory(written: str, of: str) -> None:
    """Who writes into them afterwards changes what the next step reads."""
    buffer = of == "a buffer"
    seen = "seen = self.seen\n" if buffer else ""
    source = model_source(
        f"{seen}h = self.head(self.body(x))\n{written}\n"
        "return h + seen, seen.view(-1)[2:], seen.t(), seen[1], seen.detach()",
        init="self.register_buffer('seen', torch.zeros(6, 4))" if buffer else "",
        arguments="self, x: Tensor" if buffer else "self, x: Tensor, seen: Tensor",
        inputs="(torch.randn(6, 8),)" if buffer else "(torch.randn(6, 8), torch.zeros(6, 4))",
    )
    pair = make_pair_of(source, "1GB", "per-layer")
    assert_right(pair)
    found = []
    for model in pair.models():
        args, _ = pair.inputs()
        torch.manual_seed(3)
        for place in (1, 2, 3, 4):
            h, *views = model(*args)
            h.sum().backward()
            views[place - 1].mul_(2).add_(1)
            found.append((h, *map(torch.clone, views)))
    for one, other in zip(found[:4], found[4:], strict=True):
        assert all(map(torch.equal, one, other))


@pytest.mark.parametrize("chosen", [(0,), (1,), (1, 0)])
def test_gradients_into_some_outputs(open_ended: Pair, chosen: tuple[int, ...]) -> None:
    def backward(outputs: tuple[torch.Tensor, ...]) -> None:
        torch.autograd.backward([outputs[i] for i in chosen], [outputs[i] * 0.5 for i in chosen])

    assert_right(open_ended, backward=backward)


def test_no_gradient_into_an_output_of_other_strides() -> None:
    source = model_source("y = self.body(x)\nreturn (y * 2).t(), self.head(y)")
    pair = make_pair_of(source, "1GB", "per-layer")
    for chosen in (0, 1):
        assert_right(pair, backward=lambda outputs, i=chosen: outputs[i].square().sum().backward())


def test_a_gradient_into_a_part_of_a_larger_value_takes_its_own_bytes() -> None:
    """Keys that are handed out as a cache, say: an output has the strides of what it is a part."""
    source = model_source(
        "y = self.body(x).repeat(1, 64).tanh()\n"
        "return self.head(y[:, :8]), y.view(-1, 64, 8)[:, :2].mT"
    )
    pair = make_pair_of(source, "1GB", "per-layer")
    assert_right(pair)
    for chosen in (0, 1):
        assert_right(pair, backward=lambda outputs, i=chosen: outputs[i].square().sum().backward())
    (_, planned), (args, kwargs) = pair.models(), pair.inputs()
    peak = model_peak(planned, args, kwargs, torch.device("cpu")).peak_bytes
    assert peak == pair.plan.predicted.peak_bytes


def test_expanded_gradients(open_ended: Pair) -> None:
    original, planned = open_ended.models()
    for model in (original, planned):
        torch.manual_seed(0)
        a, b = model(*open_ended.inputs()[0])
        (a.sum() + b.sum(1).mean()).backward()
    pairs = zip(original.parameters(), planned.parameters(), strict=True)
    for mine, theirs in pairs:  # sums over another layout may round differently
        torch.testing.assert_close(theirs.grad, mine.grad)


@pytest.mark.limit(
    "a gradient into another output where `forward` returns one scalar: that is the loss",
    "an error, and the command that plans again",
)
def test_a_gradient_into_another_output_than_the_loss_is_refused(loss_and_logits: Pair) -> None:
    _, planned = loss_and_logits.models()
    loss, logits = planned(*loss_and_logits.inputs()[0])
    assert logits.requires_grad  # as eager's: without it, the sum below would be silently wrong
    with pytest.raises(RuntimeError, match=r"planned for the gradient of the loss(.|\n)*remat-gen"):
        (loss + logits.sum()).backward()


@pytest.mark.limit(
    "an output that is changed in place behind the model (`logits /= t`), where its last operation "
    "is a transpose or a slice, or where it is also kept or returned twice",
    "PyTorch's error on views; `logits = logits / t`",
)
def test_an_output_that_is_a_view_is_not_changed_in_place() -> None:
    source = model_source("return self.head(self.body(x).view(2, 3, 8).sin()).transpose(1, 2)")
    pair = make_pair_of(source, "1GB", "per-layer")
    _, planned = pair.models()
    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        planned(*pair.inputs()[0]).div_(2)


RESHAPED = "h = self.head(self.body(x).view(2, 3, 8).sin())\n"


@pytest.mark.parametrize("returned", ["h", "h.mean(), h"])
def test_a_linear_layers_output_may_be_changed_in_place(returned: str) -> None:
    pair = make_pair_of(model_source(RESHAPED + f"return {returned}"), "1GB", "per-layer")
    assert "as_result(" in pair.text
    gradients = []
    for model in pair.models():
        out = model(*pair.inputs()[0])
        h = out if isinstance(out, torch.Tensor) else out[-1]
        if isinstance(out, torch.Tensor):
            h.mul_(2.0).sum().backward()
            gradients.append([parameter.grad for parameter in model.parameters()])
        else:
            gradients.append([out[0].detach(), h.detach().mul_(2.0)])
    assert all(map(torch.equal, *gradients))


@pytest.mark.parametrize("part", ["real", "imag"])
def test_a_part_of_a_complex_buffer_is_refused(part: str) -> None:
    """PyTorch traces it as a constant without memory, and to read that ends the process."""
    init = "self.register_buffer('turn', torch.ones(4, dtype=torch.complex64))"
    source = model_source(f"return self.head(self.body(x)), self.turn.{part}", init=init)
    with pytest.raises(TraceError, match=r"return a clone\(\) of it"):
        make_pair_of(source, "1GB", "per-layer")


INFINITE = {
    "a root at zero": "return self.head(h), (h * (h > 0)).sqrt()",
    "a norm of nothing": "return self.head(h), (h * 0).pow(2).sum(-1).sqrt()",
    "a logarithm of nothing": "return self.head(h), (h * 0).log(), h.sum(-1)",
    "an overflow": "return self.head(h), (h * 1e4).exp()",
    "rows of both": "a, b = h.unbind(0)[:2]\nreturn self.head(a), (b * 0).sqrt(), h",
    "an input": "return self.head(h) * x.mean(), (x * 0).sqrt()",
    "a tensor that both change": "y = self.head(h)\nreturn y * y, (y * 0).sqrt() * y",
}


@pytest.mark.parametrize("budget", ["1GB", LOWEST])
@pytest.mark.parametrize("returned", INFINITE.values(), ids=INFINITE)
def test_an_output_without_a_gradient_adds_no_nan(returned: str, budget: str) -> None:
    """Its gradient is none, not zeros: 0 times an infinite derivative is nan."""
    source = model_source("h = self.body(x)\n" + returned)
    pair = make_pair_of(source, budget, "per-layer")
    assert_right(pair, backward=lambda outputs: outputs[0].sum().backward())


def test_layers_that_return_what_they_make() -> None:
    forward = (
        "x, seen = self.body(x), []\nfor layer in self.more:\n"
        "    x = x + layer(x).pow(2).sum(-1, True).sqrt()\n    seen.append(x)\nreturn seen"
    )
    init = "self.more = nn.ModuleList(nn.Linear(8, 8) for _ in range(6))"
    pair = make_pair_of(model_source(forward, init=init), "1GB", "per-layer")
    for chosen in (-1, 2):
        assert_right(pair, backward=lambda outputs, i=chosen: outputs[i].sum().backward())


OWN = """
from collections import OrderedDict, defaultdict

class Named(dict):
    def __getattr__(self, name):
        return self[name]

class Ordered(OrderedDict):
    pass
"""
TYPED = {
    "a dict of one's own": ("y = self.head(self.body(x))\nreturn Named(y=y, h=y * 2)", "h"),
    "an ordered one": ("return Ordered(y=self.head(self.body(x)))", "move_to_end"),
    "of torch": ("y = self.head(self.body(x))\nreturn y, y.max(dim=1)", "indices"),
    "of defaults": (
        "found = defaultdict(float)\nfound['y'] += self.head(self.body(x))\nreturn found",
        "default_factory",
    ),
}


@pytest.mark.parametrize(("forward", "has"), TYPED.values(), ids=TYPED)
def test_containers_keep_their_types(forward: str, has: str) -> None:
    pair = make_pair_of(model_source(forward, prelude=OWN), "lowest", "per-layer")
    original, planned = (model(*pair.inputs()[0]) for model in pair.models())
    last, ours = (out[-1] if isinstance(out, tuple) else out for out in (original, planned))
    assert type(ours).__name__ == type(last).__name__
    assert getattr(ours, has, None) is not None


ENUM = "import enum\nclass Name(str, enum.Enum):\n    Y = 'y'"


def test_keys_that_no_source_can_say_are_refused() -> None:
    inside = "import enum\nclass Names:\n    class Name(str, enum.Enum):\n        Y = 'y'"
    with pytest.raises(TraceError, match=r"returns a dict with the key <Name\.Y: 'y'>"):
        make_pair_of(model_source("return {Names.Name.Y: self.head(self.body(x))}", prelude=inside))
    source = model_source(
        "return self.head(self.body(x[Name.Y]))",
        prelude=ENUM,
        arguments="self, x",
        inputs="({Name.Y: torch.randn(6, 8)},)",
    )
    with pytest.raises(TraceError, match=r"an argument is a dict with the key <Name\.Y: 'y'>"):
        make_pair_of(source)
