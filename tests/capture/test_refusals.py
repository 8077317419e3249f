"""What cannot be traced is refused in a sentence with the user's line that says what to do."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
import torch
from torch import nn
from tracing import LINEAR, line_of, source, traced

from remat_gen.capture.load.load import load
from remat_gen.capture.refuse.reasons import explain
from remat_gen.capture.refuse.untraceable import where_sizes_are_read
from remat_gen.capture.trace.trace import trace
from remat_gen.capture.values.side_effects import refused_side_effects
from remat_gen.ir.errors import TraceError, UnwrittenSizeError

_SCALE = """
@torch.library.custom_op("remat_test_{n}::scale", mutates_args=())
def scale(x: Tensor) -> Tensor:
    return 2 * x
"""
_COUNT = """
@torch.library.custom_op("remat_test_c::count", mutates_args={"seen"})
def count(seen: Tensor, y: Tensor) -> None:
    seen.add_(y.sum())
"""
_FAKE = """
@scale.register_fake
def _(x):
    return torch.empty_like(x)
"""

# forward, the text on the line that is named, what the message says, the code before the class
AT_A_LINE = {
    "coin": (
        "y = self.lin(x)\nif torch.rand(()) > 0.5:\n    y = 2 * y\nreturn y.sum()",
        "if torch.rand",
        "set it to 0; else draw before forward",
        "",
    ),
    "item": (
        "y = self.lin(x)\nn = y.sum().item()\nreturn y.sum() * n",
        ".item()",
        "Python number",
        "",
    ),
    "int": ("y = self.lin(x)\nn = int(y.sum())\nreturn y.sum() * n", "int(y", "Python number", ""),
    "mask": ("y = self.lin(x)\nreturn y[y > 0].sum()", "y > 0", "aten.nonzero", ""),
    "ctc": (
        "y = self.lin(x).log_softmax(-1)[:, None]\nn = torch.tensor([2])\n"
        "return F.ctc_loss(y, torch.ones(1, 2, dtype=torch.long), 2 * n, n)",
        "F.ctc_loss",
        "outside of the model",
        "",
    ),
    "packed": (
        "y = self.lin(x)[:, None]\nrows = torch.ones(len(y), dtype=torch.long)\n"
        "return nn.utils.rnn.pack_padded_sequence(y, rows, batch_first=True).data.sum()",
        "pack_padded",
        "on the padded sequences, and mask",
        "",
    ),
    "condition": (
        "y = self.lin(x)\nreturn torch.where((x > 0).byte(), y, -y).sum()",
        "torch.where",
        "condition of uint8: make it one by .bool",
        "",
    ),
    "counted": (
        "return self.lin(x).sum() * torch.bincount((x > 0).long().flatten()).sum()",
        "torch.bincount",
        "give it a minlength above all of them",
        "",
    ),
    "index of bytes": (
        "y = self.lin(x)\nreturn y[(x > 0).byte()].sum()",
        "y[(x",
        "use torch.where with a mask",
        "",
    ),
    "number that is an argument": (
        "y = self.lin(x)\nn = y.argmax().item()\nreturn y.sum() * torch.arange(n).sum()",
        "torch.arange",
        "keep it a tensor; or give --fix",
        "",
    ),
    "drawn across memory": (
        "noise = torch.empty(8, 4).t().random_(0, 3)\nreturn self.lin(x + noise).sum()",
        "random_",
        "draw by torch.randint",
        "",
    ),
    "resized": (
        "w = self.lin.weight\nm = w.data.new().resize_((8, 1)).bernoulli_(0.9).expand_as(w)\n"
        "return F.linear(x, m * w)",
        ".resize_",
        "x.new_empty(shape)",
        "",
    ),
    "raises": ('raise ValueError("my words")', "raise", "my words", ""),
    "shapes": ("return self.lin(x.t()).sum()", "x.t()", "reduction dim", ""),
    "cond": (
        "y = self.lin(x)\nreturn torch.cond(y.sum() > 0, torch.sin, torch.cos, (y,)).sum()",
        "torch.cond",
        "torch.where",
        "",
    ),
    "no backward": (
        "return torch.ops.remat_test_a.scale(self.lin(x)).sum()",
        "torch.ops",
        "torch.library.register_autograd",
        _SCALE.format(n="a") + _FAKE,
    ),
    "no fake": (
        "return torch.ops.remat_test_b.scale(self.lin(x)).sum()",
        "torch.ops",
        "torch.library.register_fake",
        _SCALE.format(n="b"),
    ),
    "constant": (
        "return (self.lin(x).sum() * torch.tensor(MANY)).sum()",
        "torch.tensor",
        "register it as a buffer",
        "MANY = [float(i) for i in range(5000)]\n",
    ),
}


# What a reader of docs/limits.md is told of each case: what is not supported, and what to do.
LINES_TOLD = {
    "index of bytes": ("an index of `uint8`", "refused with your line; `torch.where`"),
    "number that is an argument": (
        "a number of `.item()` as an argument of an operation (`torch.arange(n)`)",
        "refused with your line; keep it a tensor, or `--fix` its input",
    ),
    "drawn across memory": (
        "`random_(low, high)` into a tensor whose rows lie across memory (`y.t()`)",
        "refused with your line; `torch.randint`",
    ),
    "resized": (
        "`resize_` in `forward`",
        "refused with your line; `new_empty` in its shape",
    ),
    "condition": ("`torch.where` with a condition of `uint8`", "refused with your line; `.bool()`"),
    "coin": (
        "`if` on a random number (LayerDrop, stochastic depth by a coin)",
        "refused with your line; set its rate to 0",
    ),
    "item": (
        "`.item()`: a tensor's value as a Python number (but a buffer's that stays, or that of a "
        "frozen parameter, which each step compares)",
        "refused with your line; keep it a tensor",
    ),
    "int": ("`int(tensor)`, `float(tensor)`", "refused with your line; keep it a tensor"),
    "mask": (
        "`y[y > 0]` and others whose result's shape depends on values",
        "refused with your line; use a mask and `torch.where`",
    ),
    "ctc": (
        "`F.ctc_loss`: its memory depends on the lengths",
        "refused with your line; call it outside of the model",
    ),
    "packed": (
        "`pack_padded_sequence`: how many rows there are depends on values",
        "refused with your line; run the padded sequences, and mask what comes back",
    ),
    "raises": ("a `forward` that raises", "its words are quoted, with your line"),
    "shapes": ("shapes that do not fit", "PyTorch's words are quoted, with your line"),
    "cond": ("`torch.cond`", "refused with your line; use `torch.where`"),
    "no backward": (
        "`torch.library` operators without a registered backward",
        "refused with your line; `torch.library.register_autograd`",
    ),
    "no fake": (
        "`torch.library` operators without a fake kernel",
        "refused with your line; `torch.library.register_fake`",
    ),
    "counted": (
        "`torch.bincount` without `minlength`, or with weights",
        "refused with your line; planned with one above all indices (a greater one raises)",
    ),
    "constant": (
        "large constants made in `forward` from Python lists",
        "refused with your line; register a buffer",
    ),
}


def limits(cases: Iterable[str], told: Mapping[str, tuple[str, str]]) -> list[object]:
    """Return cases with their rows of docs/limits.md; each must have one."""
    return [pytest.param(case, marks=pytest.mark.limit(*told[case])) for case in cases]


@pytest.mark.parametrize("case", limits(AT_A_LINE, LINES_TOLD))
def test_the_users_line_and_what_to_do(tmp_path: Path, case: str) -> None:
    forward, place, says, before = AT_A_LINE[case]
    text = source(LINEAR, forward, before=before)
    with pytest.raises(TraceError) as caught:
        traced(tmp_path, text)
    message = str(caught.value)
    inside = text[text.index("def forward") :]
    line = line_of(text, "def forward") - 1 + line_of(inside, place)
    assert message.startswith(f"net.py:{line}: ")
    assert says in message
    assert len(message) < 300
    assert message.count("cannot be traced") <= 1


@pytest.mark.parametrize(
    ("forward", "says"),
    [
        ("return (self.lin(x) * scale).sum()", "NameError: name 'scale' is not defined"),
        (
            "return self.lin(x, 3).sum()",
            "TypeError: Linear.forward() takes 2 positional arguments but 3 were given",
        ),
        ("return self.lin().sum()", "TypeError: Linear.forward() missing 1 required positional"),
        ("return self.lin(y=x).sum()", "TypeError: Linear.forward() got an unexpected keyword"),
    ],
)
def test_python_says_itself_what_it_misses(tmp_path: Path, forward: str, says: str) -> None:
    text = source(LINEAR, forward)
    with pytest.raises(TraceError) as caught:
        traced(tmp_path, text)
    start = f"net.py:{line_of(text, forward)}: the model cannot be traced: forward raises {says}"
    assert str(caught.value).startswith(start)


TORCH_LOOKS = {
    "average": (
        "self.norm = nn.BatchNorm1d(8, momentum=None)",
        "return self.norm(x).sin().sum()",
        "give it a momentum",
    ),
}
LOOKS_TOLD = {
    "average": ("BatchNorm with `momentum=None`", "refused with your line; give it a momentum"),
}


@pytest.mark.parametrize("case", limits(TORCH_LOOKS, LOOKS_TOLD))
def test_what_torch_itself_looks_at(tmp_path: Path, case: str) -> None:
    init, forward, says = TORCH_LOOKS[case]
    with pytest.raises(TraceError, match=r"^net\.py:\d+: the model cannot be traced") as caught:
        traced(tmp_path, source(init, forward))
    assert says in str(caught.value)


WITHOUT_A_LINE = {
    "no gradient": (LINEAR, "return self.lin(x).detach()", "no output"),
    "the model itself": (
        LINEAR,
        "y = self.lin(x)\nreturn self(y[:2]).sum() if len(x) > 2 else y",
        r"call self\.forward",
    ),
    "python state": (
        LINEAR,
        "self.calls = getattr(self, 'calls', 0) + 1\nreturn self.lin(x)",
        "self.calls",
    ),
    "tensor state": (
        LINEAR,
        "y = x + getattr(self.lin, 'kept', 0)\nself.lin.kept = x\nreturn self.lin(y)",
        "self.lin.kept",
    ),
    "list state": (
        LINEAR + "\nself.seen = []",
        "self.seen.append(1)\nreturn self.lin(x)",
        "self.seen",
    ),
    "python random": (
        LINEAR,
        "import random\nreturn self.lin(x) * random.random()",
        "random numbers",
    ),
    "numpy random": (
        LINEAR,
        "import numpy\nreturn self.lin(x) * numpy.random.rand()",
        "random numbers",
    ),
    "numpy seeded, as it was before": (
        LINEAR + "\nimport numpy\nnumpy.random.seed(0)\nnumpy.random.rand()",
        "import numpy\nnumpy.random.seed(0)\nreturn self.lin(x) * numpy.random.rand()",
        "random numbers",
    ),
    "scripted": (
        LINEAR + "\nself.fast = torch.jit.script(nn.Linear(8, 8))",
        "return self.fast(self.lin(x))",
        "fast is a torch.jit.ScriptModule",
    ),
    "frozen for a while": (
        LINEAR,
        "for p in self.lin.parameters():\n    p.requires_grad = False\ny = self.lin(x)\n"
        "for p in self.lin.parameters():\n    p.requires_grad = True\nreturn y + self.lin(x)",
        "forward turns requires_grad of parameters on and off",
    ),
    "a weight in a list": (
        LINEAR + "\nself.weights = [self.lin.weight]",
        "return sum(w.square().sum() for w in self.weights) + self.lin(x).sum()",
        "reads a parameter.* by another way than its module, as in a list",
    ),
    "data parallel": (
        LINEAR + "\nself.fast = nn.DataParallel(nn.Linear(8, 8))",
        "return self.fast(self.lin(x))",
        "fast is an nn.DataParallel, .*: plan the module in it",
    ),
    "lazy": (
        "self.lin = nn.LazyLinear(8)",
        "return self.lin(x)",
        "lin has no weights.*build_model",
    ),
    "hook": (
        LINEAR + "\nself.lin.register_forward_hook(lambda *a, by=2: a[-1] * by)",
        "return self.lin(x)",
        r"lin has a hook \(.*<lambda>\)",
    ),
    "a layer of the first step": (
        LINEAR + "\nself.out = None",
        "self.out = self.out or nn.Linear(8, 8).to(x.device)\nreturn self.out(self.lin(x))",
        r"^net\.py:\d+: forward changes self\.out \(from None to Linear object\).* build_model\(\)",
    ),
    "class attribute": (
        LINEAR + "\nNet.calls = 0",
        "Net.calls += 1\nreturn self.lin(x)",
        r"Net\.calls",
    ),
    "global variable": (
        LINEAR,
        "global torch_calls\ntorch_calls = globals().get('torch_calls', 0) + 1\nreturn self.lin(x)",
        "global variable torch_calls",
    ),
    "tensor attribute that is written": (
        LINEAR + "\nself.ema = torch.zeros(8)",
        "self.ema.mul_(0.9).add_(x.detach().mean(0))\nreturn self.lin(x) + self.ema",
        r"^net\.py:\d+: forward writes into self\.ema, a tensor that is no buffer",
    ),
    "tensor attribute that is an out=": (
        LINEAR + "\nself.ema = torch.zeros(8)",
        "torch.add(self.ema, x.detach().mean(0), out=self.ema)\nreturn self.lin(x) + self.ema",
        r"^net\.py:\d+: forward writes into self\.ema, a tensor that is no buffer",
    ),
    "buffer that gets a gradient": (
        LINEAR + "\nself.register_buffer('seen', torch.zeros(8))",
        "y = self.lin(x)\nself.seen[:] = y.mean(0)\nreturn y",
        r"^net\.py:\d+: forward writes what has a gradient into seen: write its detach\(\)",
    ),
    "child that is called as a method": (
        LINEAR + "\nself.children = nn.ModuleList([self.lin])",
        "return self._modules['children'][0](x)",
        "has the name of a method of nn.Module",
    ),
    "view of a tensor that is written": (
        LINEAR + "\nself.rows = [torch.zeros(2, 8)]",
        "self.rows[0][1].add_(1)\nreturn self.lin(x) + self.rows[0][1]",
        r"writes into self\.rows, a tensor that is no buffer",
    ),
    "requires_grad_ of an argument": (
        LINEAR,
        "x.requires_grad_()\nreturn self.lin(x)",
        r"requires_grad_\(\) on an argument",
    ),
    "seed": (LINEAR, "torch.manual_seed(3)\nreturn self.lin(x)", "sets the random seed"),
    "seed that is asked for": (
        LINEAR,
        "return self.lin(x) * (torch.initial_seed() % 7)",
        "asks for the seed",
    ),
    "generator state": (
        LINEAR + "\nself.state = torch.get_rng_state()",
        "torch.set_rng_state(self.state)\nreturn self.lin(x)",
        "sets the random seed",
    ),
    "generator state that is put back": (
        LINEAR,
        "with torch.random.fork_rng():\n    noise = torch.rand(4, 8)\nreturn self.lin(x) + noise",
        "fork_rng",
    ),
    "own generator": (
        LINEAR + "\nself.g = torch.Generator()",
        "return self.lin(x) + torch.rand(4, 8, generator=self.g)",
        "generator of its own",
    ),
    "parameter that is written": (
        LINEAR,
        "with torch.no_grad():\n    self.lin.weight.clamp_(-1, 1)\nreturn self.lin(x)",
        r"^net\.py:\d+: forward writes into lin\.weight",
    ),
    "check of a result": (
        LINEAR,
        "return self.lin(x) @ torch.linalg.inv(torch.eye(8) + self.lin.weight)",
        r"net\.py:\d+: .*inv_ex",
    ),
    "weight that a hook makes": (
        "from torch.nn.utils import prune\n"
        "self.lin = prune.custom_from_mask(nn.Linear(8, 8), 'weight', torch.ones(8, 8))",
        "return self.lin(x)",
        r"lin has a hook \(CustomFromMask\)",
    ),
    "buffer that backward needs": (
        LINEAR + "\nself.register_buffer('n', torch.ones(8))",
        "y = self.lin(x) * self.n\nself.n += 1\nreturn y.sum()",
        "changed in place",
    ),
}

TOLD = {
    "the model itself": (
        "a `forward` that calls the model, `self(…)`: hooks on it run once more in eager",
        "refused; call `self.forward(…)`",
    ),
    "no gradient": ("a step without any output that has a gradient", "refused"),
    "python state": (
        "numbers and other Python state that `forward` keeps on `self`",
        "refused with its name; count outside of the model, or in a buffer",
    ),
    "tensor state": (
        "tensors that `forward` keeps on `self` or a submodule, and reads in the next step",
        "refused with its name; return it, or write into a buffer",
    ),
    "tensor attribute that is written": (
        "tensors that are no buffers and that `forward` writes into",
        "refused with its name; register it as a buffer",
    ),
    "tensor attribute that is an out=": (
        "such tensors as an operation's `out=`",
        "refused with your line; register it as a buffer",
    ),
    "buffer that gets a gradient": (
        "values that have a gradient, written into a buffer",
        "refused with your line; write their `detach()`",
    ),
    "child that is called as a method": (
        "a child that is called as a method of `nn.Module` (`self.parameters`, a `ParameterList`)",
        "refused; rename it",
    ),
    "view of a tensor that is written": (
        "rows of such a tensor, in a list or dict as well",
        "refused with its name; register it as a buffer",
    ),
    "requires_grad_ of an argument": (
        "`x.requires_grad_()` of an argument in `forward`: eager leaves `x.grad`",
        "refused; call the model with a tensor that requires grad",
    ),
    "list state": ("lists on `self` that `forward` appends to", "refused with its name"),
    "python random": ("`random.random()` in `forward`", "refused; draw with torch"),
    "numpy random": ("`numpy.random` in `forward`", "refused; draw with torch"),
    "numpy seeded, as it was before": (
        "`numpy.random.seed()` or `random.seed()` in `forward`",
        "refused; draw with torch",
    ),
    "hook": (
        "hooks on submodules that hold values (defaults, a closure), or are of backward",
        "refused by name; others are planned; those on the model or a parameter work",
    ),
    "class attribute": ("class attributes that `forward` changes", "refused with its name"),
    "global variable": ("global variables that `forward` changes", "refused with its name"),
    "seed": ("`torch.manual_seed` in `forward`", "refused; set it before the step"),
    "seed that is asked for": ("`torch.initial_seed` in `forward`", "refused; pass it in"),
    "generator state": ("`torch.set_rng_state` in `forward`", "refused; set it before the step"),
    "lazy": (
        "a lazy module that has not run (`nn.LazyLinear`)",
        "refused; run the model once in `build_model`, under `torch.no_grad()`",
    ),
    "a layer of the first step": (
        "layers and parameters that `forward` makes in its first step",
        "refused with its name; make them in `__init__`, or run the model once in `build_model()`",
    ),
    "data parallel": ("`nn.DataParallel`", "refused; plan what it wraps, train by DDP"),
    "frozen for a while": (
        "`requires_grad` of parameters that `forward` turns on and off (a GAN's step in one)",
        "refused; freeze them before the step, or `torch.func.functional_call` with detached ones",
    ),
    "a weight in a list": (
        "parameters that `forward` reads in a list before it reads them on their module",
        "refused with your line; read them there first, or keep them in `nn.ParameterList`",
    ),
    "scripted": ("a submodule made by `torch.jit.script`", "refused; use the one it was made of"),
    "generator state that is put back": (
        "`torch.random.fork_rng` in `forward`",
        "refused; draw before the step, and pass what was drawn",
    ),
    "own generator": ("random numbers from a `torch.Generator` of its own", "refused"),
    "parameter that is written": (
        "parameters that `forward` writes into",
        "refused with its name; do so after `optimizer.step()`",
    ),
    "check of a result": (
        "operations that check their result, as `torch.linalg.inv` does",
        "refused with your line and a form that does not check",
    ),
    "weight that a hook makes": (
        "hooks that hold more than numbers, as of `torch.nn.utils.prune.custom_from_mask` and "
        "of a layer that was pruned twice",
        "refused with the module's name; use `torch.nn.utils.parametrizations`, or keep the mask "
        "in a buffer",
    ),
    "buffer that backward needs": (
        "a buffer that is changed in place and that backward reads",
        "refused, as in PyTorch; clone it first",
    ),
}


@pytest.mark.parametrize("case", limits(WITHOUT_A_LINE, TOLD))
def test_refused(tmp_path: Path, case: str) -> None:
    init, forward, says = WITHOUT_A_LINE[case]
    with pytest.raises(TraceError, match=says):
        traced(tmp_path, source(init, forward))


@pytest.mark.limit(
    "sparse gradients (`nn.Embedding(sparse=True)`)",
    "refused; `sparse=False`",
)
def test_sparse_gradients_are_refused(tmp_path: Path) -> None:
    init = "self.e = nn.Embedding(10, 8, sparse=True)"
    with pytest.raises(TraceError, match="sparse=False"):
        traced(tmp_path, source(init, "return self.e(x).sum()", "(torch.arange(4),)"))


@pytest.mark.limit(
    "a hook that `forward` puts on an argument or a parameter, where it stays",
    "refused; put it there once, outside of `forward`, or on what `forward` makes",
)
@pytest.mark.parametrize("hooked", ["x", "self.lin.weight"])
def test_hooks_that_stay_are_refused(tmp_path: Path, hooked: str) -> None:
    forward = f"{hooked}.register_hook(lambda g: g * 2)\nreturn self.lin(x)"
    inputs = "(torch.randn(4, 8, requires_grad=True),)"
    with pytest.raises(TraceError, match="puts a hook on an argument or a parameter"):
        traced(tmp_path, source(LINEAR, forward, inputs))


def test_what_forward_did_to_the_model_while_it_was_asked_is_undone(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(source(LINEAR, "self.kept = x\nreturn self.lin(x)"), encoding="utf-8")
    loaded = load(path, None, None, "cpu")
    assert trace(loaded.model, loaded.args, loaded.kwargs, path).returned.kept.keys() == {"kept"}
    assert not hasattr(loaded.model, "kept")


def test_an_attribute_that_stays_is_no_side_effect() -> None:
    model = nn.Linear(2, 2)
    model.scale = 3  # type: ignore[assignment]
    with refused_side_effects(model):
        model.scale = 3  # type: ignore[assignment]
    with pytest.raises(TraceError, match=r"self\.scale"), refused_side_effects(model):
        model.scale = 4  # type: ignore[assignment]
    assert model.scale == 3


def test_a_mode_is_none_but_what_is_called_like_one_is() -> None:
    model = nn.Linear(2, 2)
    with refused_side_effects(model):
        model.training = False
    model.pretraining = True  # type: ignore[assignment]
    with pytest.raises(TraceError, match=r"self\.pretraining"), refused_side_effects(model):
        model.pretraining = False  # type: ignore[assignment]


_LOG = "import logging, warnings\nLOG = logging.getLogger('x')\n"


@pytest.mark.parametrize("says", ["LOG.warning('!')", "warnings.warn('!')"])
def test_messages_for_people_are_no_reason_to_refuse(tmp_path: Path, says: str) -> None:
    text = source(LINEAR, f"{says}\nreturn self.lin(x).sum()", before=_LOG)
    logging.disable()
    with warnings.catch_warnings(action="ignore"):
        assert traced(tmp_path, text).strict
    logging.disable(logging.NOTSET)


def test_nothing_is_drawn_from_the_users_generator(tmp_path: Path) -> None:
    before = torch.get_rng_state()
    traced(tmp_path, source(LINEAR, "return F.dropout(self.lin(x)).sum()"))
    assert torch.equal(before, torch.get_rng_state())


def test_an_operator_that_torch_knows_for_the_example_alone_is_named(tmp_path: Path) -> None:
    forward = "return torch.fake_quantize_per_tensor_affine(self.lin(x), 0.1, 0, 0, 255).sum()"
    found = traced(tmp_path, source(LINEAR, forward), dynamic=None)
    assert not found.graph.lengths
    assert "no rule for the shapes that aten.fake_quantize_per_tensor" in found.pinned


def test_a_size_that_cannot_be_written_has_the_line_that_reads_it() -> None:
    node = torch.fx.Graph().placeholder("x")
    node.stack_trace = 'File "/home/me/net.py", line 7, in forward\n    h = h[:rows]\n'
    with (
        pytest.raises(TraceError, match=r"^net\.py:7: .*too odd"),
        where_sizes_are_read(node, "/home/me/net.py"),
    ):
        raise UnwrittenSizeError("too odd")


def test_an_unknown_reason_is_quoted_short() -> None:
    message = explain(RuntimeError("something odd\nand much more"), ValueError(""))
    assert message == "the model cannot be traced: RuntimeError: something odd"
    assert len(explain(RuntimeError("x" * 1000))) < 300
    assert explain(RuntimeError("")).startswith("the model cannot be traced: ")


def test_a_cache_that_is_returned_is_switched_off() -> None:
    """A decoder of transformers is called without use_cache first."""
    message = explain(
        RuntimeError("Found <class 'transformers.cache_utils.DynamicCache'> in output")
    )
    assert "returns a DynamicCache" in message and "give use_cache=False" in message


def test_the_place_is_that_of_the_error_that_gave_the_reason(tmp_path: Path) -> None:
    """Dynamo refuses to set requires_grad; the number is what must be told."""
    forward = "x.requires_grad = True\ny = self.lin(x)\nn = int(y.sum())\nreturn y.sum() * n"
    text = source(LINEAR, forward)
    with pytest.raises(TraceError, match=rf"net\.py:{line_of(text, 'int(y')}: .*Python number"):
        traced(tmp_path, text)


def test_what_torch_says_about_fake_tensors_is_not_shown(tmp_path: Path) -> None:
    said: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = said.append  # type: ignore[method-assign]
    logging.getLogger("torch").addHandler(handler)
    try:
        with pytest.raises(TraceError):
            traced(tmp_path, source(LINEAR, "return torch._grouped_mm(x, x.t()).sum()"))
    finally:
        logging.getLogger("torch").removeHandler(handler)
    assert said == []


def test_libraries_hear_that_they_are_traced_where_dynamo_refuses(tmp_path: Path) -> None:
    """As transformers does, which decides by values else."""
    forward = (
        "torch._dynamo.graph_break()\n"
        "y = self.lin(x)\n"
        "if not torch.compiler.is_compiling() and (y == 0).all():\n    y = -y\n"
        "return y.sum()"
    )
    assert not traced(tmp_path, source(LINEAR, forward)).strict


_EMA = LINEAR + "\nself.register_buffer('ema', torch.zeros(8))"


@pytest.mark.limit(
    "a buffer that `forward` replaces by another one in each step (`self.ema = …`)",
    "refused with its name; `self.ema.copy_(…)`",
)
def test_a_buffer_that_layers_hold_too_may_be_one_of_theirs(tmp_path: Path) -> None:
    """As VeRA's matrices are: layers do not reach the model that has them."""
    before = (
        "class Layer(nn.Module):\n    def __init__(self, shared):\n        super().__init__()\n"
        "        self.shared = shared\n\n    def forward(self, x):\n"
        "        return x @ self.shared"
    )
    init = (
        f"{LINEAR}\nself.register_buffer('kept', torch.eye(8))\n"
        "self.layers = nn.Sequential(Layer(self.kept), Layer(self.kept))"
    )
    forward = "return self.layers(self.lin(x)).sum()"
    with pytest.raises(TraceError, match=r"memory of self\.kept: .*, or register it as a buffer"):
        traced(tmp_path, source(init, forward, before=before))
    registered = before.replace("self.shared = shared", "self.register_buffer('shared', shared)")
    assert traced(tmp_path, source(init, forward, before=registered)).graph.operations


def test_a_buffer_that_forward_replaces_is_refused(tmp_path: Path) -> None:
    """It was lost before: the planned step left the old one in its place."""
    forward = "self.ema = 0.9 * self.ema + x.mean(0)\nreturn (self.lin(x) - self.ema).sum()"
    with pytest.raises(TraceError, match=r"in place of self\.ema.*self\.ema\.copy_"):
        traced(tmp_path, source(_EMA, forward))
    written = forward.replace("self.ema = 0.9 * self.ema + x.mean(0)", "self.ema.copy_(x.mean(0))")
    assert traced(tmp_path, source(_EMA, written)).graph.mutations


@pytest.mark.limit(
    "collectives in `forward` whose results are as large as the group (`all_gather_tensor`, …)",
    "refused with your line; let the model around planned units call them",
)
def test_a_collective_with_the_size_of_its_group_is_refused(tmp_path: Path) -> None:
    """It was planned for the group of one process, and wrote past its memory in two."""
    forward = (
        "y = self.lin(x)\nc10d = torch.ops._c10d_functional\n"
        "all = c10d.wait_tensor(c10d.all_gather_into_tensor(y.detach(), 2, '0'))\n"
        "return y.sum() * all.mean()"
    )
    with pytest.raises(TraceError, match=r"net.py:\d+: all = .*all_gather_into_tensor has size"):
        traced(tmp_path, source(LINEAR, forward))


@pytest.mark.limit(
    "custom operators that write into their arguments (`mutates_args`)",
    "refused with your line; return what is new, and copy that into place",
)
def test_an_operator_of_the_users_that_writes_is_named(tmp_path: Path) -> None:
    forward = "y = self.lin(x)\ncount(self.seen, y.detach())\nreturn y.sum()"
    init = LINEAR + "\nself.register_buffer('seen', torch.zeros(()))"
    text = source(init, forward, before=_COUNT)
    with pytest.raises(TraceError, match=r"net.py:\d+: remat_test_c.count.default writes into"):
        traced(tmp_path, text)


@pytest.mark.limit("sparse parameters and buffers", "refused where `forward` reads them")
def test_a_sparse_buffer_is_refused_where_it_is_read(tmp_path: Path) -> None:
    """Whisper has one that forward does not read."""
    init = LINEAR + "\nself.register_buffer('heads', torch.eye(8).to_sparse())"
    assert traced(tmp_path, source(init, "return self.lin(x).sum()")).graph.operations
    read = "return (self.lin(x) + self.heads.to_dense()[:4]).sum()"
    attribute = LINEAR + "\nself.heads = torch.eye(8).to_sparse()"
    for made in (init, attribute):
        with pytest.raises(TraceError, match="sparse"):
            traced(tmp_path, source(made, read))


@pytest.mark.limit(
    "a `forward` whose first parameter is not called `self`",
    "refused before anything is traced; rename it",
)
def test_another_name_for_self(tmp_path: Path) -> None:
    text = source(LINEAR, "return this.lin(x)").replace("forward(self", "forward(this")
    with pytest.raises(TraceError, match="first parameter is called 'this': rename it to self"):
        traced(tmp_path, text)


_DRAWS = """
class Noisy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, d):
        return d * torch.rand_like(d)
"""


@pytest.mark.limit(
    "a backward that draws random numbers, of a model that returns several outputs with gradients",
    "refused with your line; draw in `forward`, or return the loss alone",
)
def test_a_backward_that_draws_for_one_of_several_outputs(tmp_path: Path) -> None:
    """Eager draws nothing in a step in which that output gets no gradient."""
    both, loss = "return Noisy.apply(self.lin(x)), x.sin()", "return Noisy.apply(self.lin(x)).sum()"
    inputs = "(torch.randn(4, 8, requires_grad=True),)"
    with pytest.raises(
        TraceError, match=r"net\.py:\d+: .*draws random numbers.*draw them in forward"
    ):
        traced(tmp_path, source(LINEAR, both, inputs, before=_DRAWS))
    assert traced(tmp_path, source(LINEAR, loss, inputs, before=_DRAWS)).graph.operations
