"""What forward asks of autograd: Functions and operators of its own, no_grad, detach, complex."""

from __future__ import annotations

import pytest
import torch
from pairs import Pair, make_pair_of
from sources import model_source
from steps import assert_right

from remat_gen.ir.steps import runs_in

FUNCTION = """
class Clamped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, low: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.low = low
        return x.clamp(min=low)

    @staticmethod
    def backward(ctx, d: Tensor):
        (x,) = ctx.saved_tensors
        return d * torch.where(x > ctx.low, 1.0, 0.25), None


class Pair_(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor):
        y = x.exp()
        ctx.save_for_backward(y)
        index = x.argmax(-1)
        ctx.mark_non_differentiable(index)
        return y, index

    @staticmethod
    def backward(ctx, d: Tensor, _):
        (y,) = ctx.saved_tensors
        return d * y * 0.5
"""

ROUND = """
class Round(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.round()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, d):
        (x,) = ctx.saved_tensors
        return d * (x.abs() < 0.9)
"""

REVERSIBLE = """
class Reversible(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b, f, g, *parameters):
        with torch.no_grad():
            y = a + f(b)
            z = b + g(y)
        ctx.f, ctx.g = f, g
        ctx.save_for_backward(y, z)
        return y, z

    @staticmethod
    def backward(ctx, d_y, d_z):
        y, z = ctx.saved_tensors
        with torch.enable_grad():
            y_ = y.detach().requires_grad_()
            g = ctx.g(y_)
            d, *d_g = torch.autograd.grad(g, [y_, *ctx.g.parameters()], d_z)
            b = (z - g).detach().requires_grad_()
            d_y = d_y + d
            f = ctx.f(b)
            d, *d_f = torch.autograd.grad(f, [b, *ctx.f.parameters()], d_y)
        return d_y, d_z + d, None, None, *d_f, *d_g
"""

OPERATOR = """
@torch.library.custom_op("remat_semantics_{n}::cubed", mutates_args=())
def cubed(x: Tensor, scale: float) -> Tensor:
    return x**3 * scale


@cubed.register_fake
def _(x, scale):
    return torch.empty_like(x)


def _setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.scale = inputs[1]


def _backward(ctx, d):
    (x,) = ctx.saved_tensors
    return d * x * x * ctx.scale, None


cubed.register_autograd(_backward, setup_context=_setup)
"""

CASES = {
    "a reversible block": model_source(
        "a, b = self.body(x).chunk(2, 1)\n"
        "for f, g in zip(self.f, self.g):\n"
        "    a, b = Reversible.apply(a, b, f, g, *f.parameters(), *g.parameters())\n"
        "return self.head(torch.cat((a, b), 1))",
        prelude=REVERSIBLE,
        init="self.f, self.g = ("
        "nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(2))"
        " for _ in range(2))",
    ),
    "a Function": model_source(
        "return self.head(Clamped.apply(self.body(x), 0.1))", prelude=FUNCTION
    ),
    "a Function in each layer": model_source(
        "for layer in self.layers:\n    x = Clamped.apply(layer(x), -0.5)\nreturn self.head(x)",
        prelude=FUNCTION,
    ),
    "a Function with two results": model_source(
        "h, index = Pair_.apply(self.body(x))\nreturn self.head(h) + index[:, None], index",
        prelude=FUNCTION,
    ),
    "a Function under vmap": model_source(
        "return self.head(torch.vmap(lambda row: Round.apply(row))(self.body(x)))", prelude=ROUND
    ),
    "a hook that reads late": model_source(
        "for i, layer in enumerate(self.layers):\n"
        "    x = layer(x)\n"
        "    x.register_hook(lambda g: g * self.scales[i])\n"
        "return self.head(x)",
        init="self.scales = [0.5, 3.0]",
    ),
    "an operator": model_source(
        "return self.head(torch.ops.remat_semantics_a.cubed(self.body(x), 0.5))",
        prelude=OPERATOR.format(n="a"),
    ),
    "an operator in each layer": model_source(
        "for layer in self.layers:\n    x = cubed(layer(x), 0.5)\nreturn self.head(x)",
        prelude=OPERATOR.format(n="b"),
    ),
    "no_grad": model_source(
        "with torch.no_grad():\n    scale = self.body(x).abs().amax()\n"
        "return self.head(self.body(x) / (scale + 1))"
    ),
    "a target without gradient": model_source(
        "with torch.no_grad():\n    target = self.layers[0](x)\n"
        "return F.mse_loss(self.body(x), target)"
    ),
    "gradients on again inside no_grad": model_source(
        "with torch.no_grad():\n    y = self.layers[0](x)\n"
        "    with torch.enable_grad():\n        z = self.layers[1](x)\n"
        "return self.head(y + z)"
    ),
    "a straight-through estimator": model_source(
        "h = self.body(x)\nreturn self.head(h + (h.round() - h).detach())"
    ),
    "a quantised codebook": model_source(
        "h = self.body(x)\nindex = torch.cdist(h, self.codes).argmin(-1)\n"
        "z = self.codes[index]\n"
        "loss = F.mse_loss(h, z.detach()) + F.mse_loss(z, h.detach())\n"
        "return self.head(h + (z - h).detach()).mean() + loss, index",
        init="self.codes = nn.Parameter(torch.randn(5, 8))",
    ),
    "masks and positions made on the fly": model_source(
        "h = self.body(x) + self.positions(torch.arange(x.shape[0], device=x.device))\n"
        "mask = torch.full((6, 6), float('-inf')).triu(1)\n"
        "return self.head((h @ h.t() + mask).softmax(-1) @ h)",
        init="self.positions = nn.Embedding(6, 8)",
    ),
    "linspace, eye and zeros": model_source(
        "h = self.body(x) * torch.linspace(0, 1, 8) + torch.zeros(8)\n"
        "return self.head(torch.eye(6) @ h)"
    ),
    "complex": model_source(
        "h = torch.fft.rfft(self.body(x), dim=1)\n"
        "return self.head(torch.fft.irfft(h * self.filter, n=8, dim=1))",
        init="self.filter = nn.Parameter(torch.randn(5, dtype=torch.complex64))",
    ),
    "rotary positions as complex numbers": model_source(
        "h = torch.view_as_complex(self.body(x).view(6, 4, 2))\n"
        "return self.head(torch.view_as_real(h * self.turn).flatten(1))",
        init="self.register_buffer('turn', torch.polar(torch.ones(6, 4), torch.rand(6, 4)))",
    ),
    "a complex output": model_source("return torch.fft.fft(self.head(self.body(x)))"),
    "conjugated": model_source(
        "h = torch.fft.fft(self.body(x))\nreturn self.head((h * h.conj()).real)"
    ),
    "weight_norm": model_source(
        "return self.head(self.norm(self.body(x)))",
        init="self.norm = torch.nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))",
    ),
    "spectral_norm": model_source(
        "return self.head(self.norm(self.body(x)))",
        init="self.norm = torch.nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))",
    ),
    "weight_norm in a hook": model_source(
        "return self.head(self.norm(self.body(x)))",
        init="self.norm = torch.nn.utils.weight_norm(nn.Linear(8, 8))",
    ),
    "spectral_norm in a hook": model_source(
        "return self.head(self.norm(self.body(x)))",
        init="self.norm = torch.nn.utils.spectral_norm(nn.Linear(8, 8))",
    ),
    "pruned": model_source(
        "return self.head(self.norm(self.body(x)))",
        init="from torch.nn.utils import prune\n"
        "self.norm = prune.l1_unstructured(nn.Linear(8, 8), 'weight', 0.3)",
    ),
    "orthogonal": model_source(
        "return self.head(self.norm(self.body(x)))",
        init="self.norm = torch.nn.utils.parametrizations.orthogonal(nn.Linear(8, 8))",
    ),
    "a parametrization of the user's": model_source(
        "return self.head(self.body(x))",
        init="torch.nn.utils.parametrize.register_parametrization(\n"
        "    self.head, 'weight', Symmetric())",
        prelude="class Symmetric(nn.Module):\n    def forward(self, w: Tensor) -> Tensor:\n"
        "        return w.tanh() + w.mean(0)",
    ),
    "an index into a parameter, written to": model_source(
        "h = self.body(x).clone()\nh[2:4] = self.rows\nh[:, 0] += 1\nreturn self.head(h)",
        init="self.rows = nn.Parameter(torch.randn(2, 8))",
    ),
    "a scatter and a gather": model_source(
        "h = self.body(x)\ni = h.argsort(1)\n"
        "return self.head(torch.zeros_like(h).scatter(1, i, h.gather(1, i) * 2))"
    ),
    "functional.grad's friends: a vmap": model_source("return torch.vmap(self.head)(self.body(x))"),
    "checkpointed by the user": model_source(
        "h = torch.utils.checkpoint.checkpoint(self.layers[0], x, use_reentrant=False)\n"
        "return self.head(self.layers[1](h))",
        prelude="import torch.utils.checkpoint",
        init="self.layers[0].drop = nn.Identity()",
        inputs="(torch.randn(6, 8, requires_grad=True),)",
    ),
}


@pytest.mark.parametrize("source", CASES.values(), ids=CASES)
def test_step_is_eagers(source: str) -> None:
    assert_right(make_pair_of(source, "1GB", "per-layer"))


@pytest.fixture(scope="module")
def with_function() -> Pair:
    return make_pair_of(CASES["a Function"], "1GB", "per-layer")


def test_a_functions_own_backward_is_in_the_file(with_function: Pair) -> None:
    """Its gradient (0.25 below the limit) is not clamp's, which would be 0."""
    assert "0.25" in with_function.text[with_function.text.index("what they keep") :]


def test_what_a_functions_backward_computes_first_is_not_done_in_forward() -> None:
    """It needs no gradient, and yet eager does it in backward."""
    source = model_source(
        "return self.head(Again.apply(self.body(x)))",
        prelude="class Again(torch.autograd.Function):\n"
        "    @staticmethod\n    def forward(ctx, x):\n"
        "        ctx.save_for_backward(x)\n        return x.erf()\n\n"
        "    @staticmethod\n    def backward(ctx, d):\n"
        "        return d * ctx.saved_tensors[0].cosh()",
    )
    pair = make_pair_of(source, "1GB", "per-layer")
    assert_right(pair)
    runs = {
        name: segment.backward
        for segment in pair.plan.schedule
        for name in runs_in(segment.steps)
        if "cosh" in name
    }
    assert runs and all(runs.values())


def test_an_operator_is_called_by_its_name() -> None:
    text = make_pair_of(CASES["an operator"], "1GB", "per-layer").text
    assert "torch.ops.remat_semantics_a.cubed.default(" in text


def test_no_gradient_flows_through_no_grad() -> None:
    pair = make_pair_of(CASES["a target without gradient"], "1GB", "per-layer")
    _, planned = pair.models()
    torch.manual_seed(0)
    loss = planned(*pair.inputs()[0])
    loss.backward()
    assert planned.head.weight.grad is None
