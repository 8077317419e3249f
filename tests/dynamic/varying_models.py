"""Sources of small models whose batch may vary, and of some whose batch may not."""

from __future__ import annotations

import textwrap

import torch

# Dynamo of torch 2.11 loses what `int(a / b)` of lengths is: such a plan is for the example's alone
KEEPS_QUOTIENTS = torch.__version__ >= "2.12"
_HEAD = """\
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


"""
_TAIL = """

def build_model() -> nn.Module:
    return Net()


def example_inputs():
    return {inputs}
"""


def model(init: str, forward: str, inputs: str, *, parameters: str = "x", before: str = "") -> str:
    """Return a model file around the bodies of `__init__` and `forward`."""
    init, forward = (textwrap.dedent(body).strip() for body in (init, forward))
    return (
        f"{_HEAD}{textwrap.dedent(before)}\nclass Net(nn.Module):\n"
        f"    def __init__(self) -> None:\n        super().__init__()\n"
        f"{textwrap.indent(init, ' ' * 8)}\n\n"
        f"    def forward(self, {parameters}):\n{textwrap.indent(forward, ' ' * 8)}\n"
        f"{_TAIL.format(inputs=inputs)}"
    )


_ATTENTION = """
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)
        self.drop = nn.Dropout(0.2)

    def forward(self, x, memory=None):
        b, t, c = x.shape
        h = self.norm(x)
        q, k, v = self.qkv(h).view(b, t, 3, 2, 8).permute(2, 0, 3, 1, 4)
        if memory is not None:
            k = v = memory.view(b, -1, 2, 8).transpose(1, 2)
        scores = q @ k.transpose(-2, -1) / math.sqrt(8)
        future = torch.ones(t, k.shape[2], dtype=torch.bool, device=x.device).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
        probs = F.dropout(scores.softmax(-1), 0.1, self.training)
        return x + self.drop(self.out((probs @ v).transpose(1, 2).reshape(b, t, c)))
"""

GPT = model(
    """
    self.wte = nn.Embedding(40, 16)
    self.wpe = nn.Embedding(12, 16)
    self.layers = nn.ModuleList(Layer() for _ in range(3))
    self.head = nn.Linear(16, 40, bias=False)
    self.head.weight = self.wte.weight
    """,
    """
    x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
    for layer in self.layers:
        x = layer(x)
    logits = self.head(x)
    return F.cross_entropy(logits.view(-1, 40), targets.view(-1)), logits
    """,
    "(torch.randint(40, (6, 12)), torch.randint(40, (6, 12)))",
    parameters="ids, targets",
    before=_ATTENTION,
)

TRANSLATOR = model(
    """
    self.tokens = nn.Embedding(40, 16)
    self.encoders = nn.ModuleList(Layer() for _ in range(2))
    self.decoders = nn.ModuleList(Layer() for _ in range(2))
    self.head = nn.Linear(16, 40)
    """,
    """
    memory = self.tokens(source)
    for layer in self.encoders:
        memory = layer(memory)
    x = self.tokens(target[:, :-1])
    for layer in self.decoders:
        x = layer(x, memory)
    return F.cross_entropy(self.head(x).flatten(0, 1), target[:, 1:].flatten())
    """,
    "{'source': torch.randint(40, (6, 9)), 'target': torch.randint(40, (6, 8))}",
    parameters="source, target",
    before=_ATTENTION,
)

RESNET = model(
    """
    self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
    self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(3))
    self.convs = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(3))
    self.head = nn.Linear(8, 5)
    """,
    """
    x = self.stem(x)
    for norm, conv in zip(self.norms, self.convs):
        y = F.relu(norm(x), inplace=True)
        x = x + conv(y)
    return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))
    """,
    "(torch.randn(20, 3, 8, 8),)",
)

UNET = model(
    """
    self.first = nn.Conv2d(2, 8, 3, padding=1)
    self.norm = nn.GroupNorm(2, 8)
    self.down = nn.Conv2d(8, 16, 3, padding=1)
    self.grow = nn.ConvTranspose2d(16, 8, 2, stride=2)
    self.last = nn.Conv2d(16, 3, 3, padding=1)
    """,
    """
    skip = F.silu(self.norm(self.first(x)))
    low = F.silu(self.down(F.max_pool2d(skip, 2)))
    high = self.grow(low) + F.interpolate(low[:, :8], scale_factor=2.0, mode="bilinear")
    return self.last(torch.cat((skip, high), dim=1))
    """,
    "(torch.randn(5, 2, 8, 8),)",
)

SIZES = model(
    """
    self.up = nn.Linear(8, 12)
    self.down = nn.Linear(12, 8)
    """,
    """
    b, t, c = x.shape
    h = self.up(x.view(b * t, c)).view(b, t, 12)
    mask = torch.ones(b, t, t, dtype=torch.bool).tril()
    h = torch.bmm(mask.float(), h) * (torch.arange(b * t).view(b, t, 1) % 3)
    h = h / math.sqrt(b) + 1.0 / b + torch.tensor(b) + torch.full((), b)
    h = h * b**-0.5 + b**0.25 * math.log2(b + 1)
    h = self.down(F.gelu(h)).flatten() + torch.rand(b * t * c)
    h = h.view(b, t, c) + scale
    half = h.chunk(2, dim=1)[0]
    return {"sum": h.sum(0), "rows": h[torch.arange(b), 1], "half": half, "batch": 2 * b}
    """,
    "{'x': torch.randn(7, 4, 8), 'scale': 0.5}",
    parameters="x, scale",
)

NESTED = model(
    """
    self.lin = nn.Linear(8, 8)
    self.out = nn.Linear(8, 3)
    """,
    """
    first, second = batch["x"]
    h = torch.stack((self.lin(first), self.lin(second)), dim=1).tanh()
    return F.cross_entropy(self.out(h.sum(1)), batch["y"]), h.transpose(0, 1), first
    """,
    "{'batch': {'x': [torch.randn(5, 8), torch.randn(5, 8, requires_grad=True)], "
    "'y': torch.randint(3, (5,))}}",
    parameters="batch",
)

OPEN_ENDED = model(
    "self.lin = nn.Linear(8, 8)\nself.one = nn.Linear(8, 4)\nself.two = nn.Linear(8, 2)",
    "h = F.gelu(self.lin(F.gelu(self.lin(x))))\nreturn self.one(h), self.two(h)",
    "(torch.randn(6, 8, requires_grad=True),)",
)

WINDOWS = model(
    """
    self.qkv = nn.Linear(8, 8)
    self.out = nn.Linear(8, 8)
    """,
    """
    b, h, w, c = x.shape
    windows = self.qkv(x).view(b, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 2, 4, 5)
    mixed = windows.reshape(-1, 4, c).softmax(1)
    rows = int(mixed.shape[0] / (h * w / 2 / 2))  # as Swin's window_reverse
    y = self.out(mixed.view(rows, h // 2, w // 2, 2, 2, -1).permute(0, 1, 3, 2, 4, 5))
    y = y.reshape(rows, h, w, -1)
    return y.sum(), y[: math.ceil(b / 2)] * math.floor(b / 3)
    """,
    "(torch.randn(7, 4, 4, 8),)",
)

TURNED = model(
    """
    self.lin = nn.Linear(8, 64)
    self.bias = nn.Parameter(torch.randn(64, 1))
    """,
    """
    y = self.lin(x).transpose(1, 2).tanh() + self.bias
    return y, y.sum(1).transpose(0, 1)
    """,
    "(torch.randn(6, 16, 8),)",
)

# As batches of a language model are cut: rows lie farther apart than they are long.
# Of a single one that cannot be seen.
SHIFTED = model(
    "self.emb, self.lin = nn.Embedding(32, 8), nn.Linear(8, 8)",
    """
    x = F.gelu(self.lin(self.emb(ids) + noise[..., None]))
    return F.cross_entropy(F.linear(x, self.emb.weight).flatten(0, 1), targets.reshape(-1)), x
    """,
    "cut(torch.arange(150).view(6, 25) % 32)",
    parameters="ids, targets, noise",
    before="""
    def cut(ids):
        return ids[:, :-1], ids[:, 1:], torch.randn(6, 48)[:, ::2].requires_grad_()
    """,
)


# DINO's table of positions: among lengths, fakes lay the gradient out as no kernel does.
RESIZED = model(
    "self.table, self.lin = nn.Parameter(torch.randn(1, 16, 12)), nn.Linear(12, 12)",
    """
    table = self.table.reshape(1, 4, 4, 12).permute(0, 3, 1, 2)
    table = F.interpolate(table, size=(3, 3), mode="bicubic")
    return self.lin(x + table.permute(0, 2, 3, 1).view(1, -1, 12)).square().mean()
    """,
    "(torch.randn(6, 9, 12),)",
)

# Glow: its levels differ in where a gradient is cut, and that line alone has the batch in it.
FLOW = model(
    """
    self.levels = nn.ModuleList(
        nn.ModuleList(nn.ModuleList([Scale(c), Mix(c), Couple(c)]) for _ in range(2))
        for c in (12, 24)
    )
    """,
    """
    likelihood = 0
    for level in self.levels:
        b, c, h, w = x.shape
        x = x.view(b, c, h // 2, 2, w // 2, 2).permute(0, 1, 3, 5, 2, 4)
        x = x.contiguous().view(b, 4 * c, h // 2, w // 2)
        for step in level:
            total = 0
            for part in step:
                x, more = part(x)
                total = total + more
            likelihood = likelihood + total
        x, z = x.chunk(2, 1)
        likelihood = likelihood - (0.5 * (1 + z**2)).flatten(1).sum(1)
    return -(likelihood - (0.5 * (1 + x**2)).flatten(1).sum(1)).mean()
    """,
    "(torch.rand(8, 3, 16, 16),)",
    before="""
    class Scale(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.move = nn.Parameter(torch.zeros(1, c, 1, 1))
            self.size = nn.Parameter(torch.zeros(1, c, 1, 1))

        def forward(self, x):
            return (x + self.move) * self.size.exp(), self.size.sum()


    class Mix(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.register_buffer("mask", torch.ones(c, c).tril(-1))
            self.lower, self.upper = nn.Parameter(torch.rand(c, c)), nn.Parameter(torch.rand(c, c))
            self.size = nn.Parameter(torch.zeros(c))

        def forward(self, x):
            upper = self.upper * self.mask.T + torch.diag(self.size.exp())
            w = (self.lower * self.mask + torch.eye(len(self.mask))) @ upper
            return F.conv2d(x, w[:, :, None, None]), x.shape[2] * x.shape[3] * self.size.sum()


    class Couple(nn.Module):
        def __init__(self, c):
            super().__init__()
            grow = nn.Conv2d(c // 2, 32, 3, padding=1)
            self.net = nn.Sequential(grow, nn.Conv2d(32, c, 3, padding=1))
            self.size = nn.Parameter(torch.zeros(1, c, 1, 1))

        def forward(self, x):
            a, b = x.chunk(2, 1)
            s, t = (self.net(a) * torch.exp(self.size * 3)).chunk(2, 1)
            s = torch.sigmoid(s + 2)
            return torch.cat([a, (b + t) * s], 1), torch.log(s).flatten(1).sum(1)
    """,
)

MODELS = {
    "gpt": GPT,
    "translator": TRANSLATOR,
    "resnet": RESNET,
    "unet": UNET,
    "sizes": SIZES,
    "nested": NESTED,
    "open-ended": OPEN_ENDED,
    **({"windows": WINDOWS} if KEEPS_QUOTIENTS else {}),
    "turned": TURNED,
    "flow": FLOW,
    "resized": RESIZED,
}


def one_line(init: str, forward: str, inputs: str = "(torch.randn(6, 8),)") -> str:
    """Return a model of a linear layer and one statement more."""
    return model(f"self.lin = nn.Linear(8, 8)\n{init}", forward, inputs)
