"""The layers that random models are made of: `[8 n, 16]` in, `[8 n, 16]` out.

A leaf is a line for `__init__` and lines for `forward`; `{m}` is a name of its own, `{x}` what it
reads, `{y}` what it makes.
"""

from __future__ import annotations

LAYERS = {
    "linear": ("self.{m} = nn.Linear(16, 16)", "{y} = self.{m}({x})"),
    "wide": (
        "self.{m} = nn.Linear(16, 64, bias=False)",
        "{y} = F.gelu(self.{m}({x})) @ self.{m}.weight",
    ),
    "layernorm": ("self.{m} = nn.LayerNorm(16)", "{y} = self.{m}({x})"),
    "batchnorm": ("self.{m} = nn.BatchNorm1d(16)", "{y} = self.{m}({x})"),
    "groupnorm": ("self.{m} = nn.GroupNorm(4, 16)", "{y} = self.{m}({x})"),
    "gelu": ("", "{y} = F.gelu({x})"),
    "silu": ("self.{m} = nn.Linear(16, 16)", "{y} = F.silu(self.{m}({x}))"),
    "elu": ("self.{m} = nn.Linear(16, 16)", "{y} = F.elu(self.{m}({x}))"),
    "leaky": ("self.{m} = nn.Linear(16, 16)", "{y} = F.leaky_relu(self.{m}({x}))"),
    "softplus": ("self.{m} = nn.Linear(16, 16)", "{y} = F.softplus(self.{m}({x})) - 1"),
    "logits": ("self.{m} = nn.Linear(16, 16)", "{y} = self.{m}({x}).log_softmax(dim=-1)"),
    "attention": (
        "self.{m} = nn.Linear(16, 48)",
        "q, k, v = self.{m}({x}).view(-1, 4, 48).split(16, dim=2)\n"
        "{y} = ((q @ k.transpose(1, 2)).softmax(dim=-1) @ v).reshape(-1, 16)",
    ),
    "conv": (
        "self.{m} = nn.Conv1d(4, 4, 3, padding=1)",
        "{y} = self.{m}({x}.view(-1, 4, 16)).flatten(0, 1)",
    ),
    "pool": ("", "{y} = F.max_pool1d({x}[None], 3, 1, 1)[0]"),
    "shared": ("", "{y} = self.shared({x}).tanh()"),
    "weight norm": (
        "self.{m} = torch.nn.utils.parametrizations.weight_norm(nn.Linear(16, 16))",
        "{y} = self.{m}({x})",
    ),
}

RANDOM = {
    "dropout": ("self.{m} = nn.Dropout(0.3)", "{y} = self.{m}({x})"),
    "noise": ("", "{y} = {x} + 0.1 * torch.rand_like({x})"),
    "bernoulli": ("", "{y} = {x} * torch.bernoulli(torch.full_like({x}, 0.7))"),
    "attention with dropout": (
        "",
        "q = {x}.view(-1, 1, 4, 16)\n"
        "{y} = F.scaled_dot_product_attention(q, q, q, dropout_p=0.2).reshape(-1, 16)",
    ),
}

IN_PLACE = {
    "relu_": ("self.{m} = nn.Linear(16, 16)", "{y} = self.{m}({x}).relu_()"),
    "part": ("", "{y} = {x} + 1\n{y}[:4].mul_(0.5)"),
    "assigned": ("", "{y} = {x} * 1.5\n{y}[:, ::2] = {x}[:, 1::2].sin()"),
    "through a view": ("", "{y} = {x}.clone()\n{y}.view(-1)[3:9].zero_()"),
    "both": ("", "{y} = {x}.sin()\n{y}.add_({x}).div_(2)"),
}

VIEWS = {
    "transposed": ("", "{y} = {x}.view(2, -1, 16).transpose(0, 1).reshape(-1, 16)"),
    "not contiguous": ("", "{y} = {x}.t().sin().t()"),
    "a view": ("", "{y} = {x}.view(-1, 4, 16).transpose(1, 2).transpose(1, 2).flatten(0, 1)"),
    "expanded": ("", "{y} = {x} + {x}[:, :1].expand(-1, 16)"),
    "swapped": ("", "{y} = torch.cat([{x}[:, 8:], {x}[:, :8].flip(1)], dim=1)"),
    "unbound": ("", "{y} = torch.cat({x}.view(4, -1, 16).unbind(0)[::-1])"),
    "a column": ("", "{y} = {x} * {x}[:, 3].sigmoid()[:, None]"),
    "a diagonal": ("", "{y} = {x} + {x}[:8, :8].diagonal().mean()"),
}

STATE = {
    "counter": ("", "self.calls += 1\n{y} = {x} * 0.5"),
    "average": (
        'self.register_buffer("{m}", torch.zeros(16))',
        "self.{m}.mul_(0.9).add_({x}.detach().mean(0), alpha=0.1)\n{y} = {x} - self.{m}",
    ),
    "scale": ('self.register_buffer("{m}", torch.linspace(0, 1, 16))', "{y} = {x} * self.{m}"),
    "frozen": ("self.{m} = nn.Linear(16, 16).requires_grad_(False)", "{y} = self.{m}({x})"),
    "frozen norm": ("self.{m} = nn.LayerNorm(16).requires_grad_(False)", "{y} = self.{m}({x})"),
}

DTYPES = {
    "double": ("self.{m} = nn.Linear(16, 16).double()", "{y} = self.{m}({x}.double()).float()"),
    "bfloat16": (
        "self.{m} = nn.Linear(16, 16).bfloat16()",
        "{y} = self.{m}({x}.bfloat16()).float()",
    ),
    "autocast": (
        "self.{m} = nn.Linear(16, 16)",
        'with torch.autocast("cpu", torch.bfloat16):\n    {y} = F.gelu(self.{m}({x})).float()',
    ),
    "autocast to float16": (
        "self.{m} = nn.Linear(16, 16)",
        'with torch.autocast("cpu", torch.float16):\n    {y} = self.{m}({x}).float()',
    ),
    "complex": ("", "{y} = torch.fft.irfft(torch.fft.rfft({x}, dim=1) * 0.5, n=16, dim=1)"),
}

MADE = {
    "constant": ("", "{y} = {x} * torch.tensor([0.5, 2.0] * 8)"),
    "positions": (
        "self.{m} = nn.Embedding(8, 16)",
        "{y} = {x} + self.{m}(torch.arange({x}.shape[0]) % 8)",
    ),
    "mask": (
        "",
        "a = {x}.view(-1, 4, 16)\nmask = torch.ones(4, 4).tril().bool()\n"
        '{y} = ((a @ a.mT).masked_fill(~mask, -float("inf")).softmax(-1) @ a).view(-1, 16)',
    ),
    "one hot": ("", "{y} = {x} + F.one_hot({x}.argmax(1), 16)"),
    "where": ("", "{y} = torch.where({x} > 0, {x}, 0.1 * {x})"),
    "sorted": ("", "{y} = {x}.sort(dim=1).values"),
    "summed up": ("", "{y} = {x}.cumsum(1) / 16"),
}

GRADIENTS = {
    "detached": ("", "{y} = {x} + {x}.detach().mean()"),
    "without gradient": (
        "",
        "with torch.no_grad():\n    s = {x}.abs().amax()\n{y} = {x} / (s + 1)",
    ),
    "a Function": ("", "{y} = Halved.apply({x}).cos()"),
}

LEAVES = LAYERS | RANDOM | IN_PLACE | VIEWS | STATE | DTYPES | MADE | GRADIENTS
