"""Looks at values that no plan can go by, and those of which it knows enough."""

from __future__ import annotations

from pathlib import Path

import pytest
from tracing import LINEAR, line_of, source, traced

from remat_gen.capture.load.load import load
from remat_gen.capture.lower.value_checks import conditions_of
from remat_gen.capture.trace.trace import trace_loaded
from remat_gen.ir.errors import TraceError
from remat_gen.ir.graph import CHECK

ALIKE = "y = self.lin(x)\n"
WRITTEN = "what runs depends on the text of a tensor's number"
# forward, the line that is named, what the message says
REFUSED = {
    "a number that is reckoned with": (
        "s = y.max().item()\nif s > 0:\n    y = y / s\nreturn y.sum()",
        "s = y.max",
        "keep it a tensor",
    ),
    "a number that is a size": ("return y[: x.argmax().item()].sum()", "return y[", "keep it"),
    "a number that is rounded": (
        "if int(y.abs().max()) > 3:\n    y = -y\nreturn y.sum()",
        "if int(",
        "keep it a tensor",
    ),
    "a number that numbers go up to": (
        "n = x.abs().max().ceil().item()\nreturn y.sum() + torch.arange(0, n, dtype=y.dtype).sum()",
        "return y",
        "keep it a tensor; or give --fix",
    ),
    "numbers in a list": ("return y.sum() * len(set(x[0].tolist()))", "return y.sum", "keep"),
    "a coin beside an input": (
        "if torch.rand(2)[0].item() < 0.5:\n    y = -y\nreturn y.sum()",
        "if torch.rand",
        "set it to 0; else draw before forward",
    ),
    "a sign in a number's text": (
        "return y.sum() if '-' not in f'{x.abs().mean():.3f}' else y.mean()",
        "return y",
        WRITTEN,
    ),
    "how the text of a number begins": (
        "s = f'{x.abs().mean().item():.1f}'\nreturn y.sum() if s.startswith('-') else y.mean()",
        "s = f",
        WRITTEN,
    ),
    "texts in order": (
        "s = sorted([f'{x.mean()}', 'nan'])\nreturn y.sum() if s[0] == 'nan' else y.mean()",
        "s = sorted",
        WRITTEN,
    ),
    "a tensor's str": (
        "return y.sum() if 'nan' not in str(x) else y.mean()",
        "return y",
        WRITTEN,
    ),
    "a parameter's repr": (
        "return y.sum() if 'nan' not in repr(self.lin.weight) else y.mean()",
        "return y",
        WRITTEN,
    ),
    "the text of what a mask selects": (
        "return y.sum() if 'nan' not in f'{x[x > 0]}' else y.mean()",
        "return y",
        WRITTEN,
    ),
    "a number that is a key": (
        "return {0: y.sum()}.get(x.argmax().item(), y.mean())",
        "return {",
        "keep it a tensor; or give --fix x",
    ),
    "what a mask selects, in a function": (
        "return F.relu(y[x[:, 0] > 0]).sum()",
        "return F",
        "aten.nonzero returns depends on the values of a tensor: use torch.where, a mask, or a "
        "fixed size; or give --fix x",
    ),
    "what a mask selects, in a list": (
        "return torch.cat([y, y[x[:, 0] > 0]]).sum()",
        "return torch",
        "or give --fix x",
    ),
    "what a mask selects, multiplied": (
        "return (2 * y[x[:, 0] > 0]).sum()",
        "return (2",
        "or give --fix x",
    ),
    "what a mask selects, compared": (
        "if (x[x > 0] == 0).any():\n    return y.mean()\nreturn y.sum()",
        "if (x",
        "depends on the value of a tensor",
    ),
    "an example that is refused": (
        "if x.abs().max() < 99:\n    raise ValueError('too small')\nreturn y.sum()",
        "raise",
        "too small",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_the_line(tmp_path: Path, case: str) -> None:
    forward, place, says = REFUSED[case]
    text = source(LINEAR, ALIKE + forward)
    with pytest.raises(TraceError) as caught:
        traced(tmp_path, text)
    assert str(caught.value).startswith(f"net.py:{line_of(text, place)}: ")
    assert says in str(caught.value)


NO_COIN = {
    "layerdrop": "if torch.rand([]) < self.rate:\n    return y.sum()",
    "by its number": "if torch.rand(1).item() < self.rate:\n    return y.sum()",
    "all are kept": "if torch.rand(1)[0] >= 1.0:\n    return y.sum()",
    "a tensor's rate": "if torch.rand(()) < torch.tensor(self.rate):\n    return y.sum()",
    "widened": "if torch.rand(()).double() > 1:\n    return y.sum()",
}
COINS = {
    "a rate": "if torch.rand([]) < self.rate + 0.1:\n    return y.sum()",
    "0 is drawn": "if torch.rand([]) <= self.rate:\n    return y.sum()",
    "rounded up to 1": "if torch.rand([]).half() < 1.0:\n    return y.sum()",
    "written into": "p = torch.rand([])\np.sub_(1)\nif p < self.rate:\n    return y.sum()",
    "of another kind": "if torch.randn([]) < self.rate:\n    return y.sum()",
}


@pytest.mark.parametrize("case", NO_COIN)
def test_a_draw_that_decides_nothing(tmp_path: Path, case: str) -> None:
    """It is drawn all the same: the generator goes on as in eager."""
    text = source(
        LINEAR + "\nself.rate = 0.0", f"y = self.lin(x)\n{NO_COIN[case]}\nreturn y.mean()"
    )
    graph = traced(tmp_path, text).graph
    assert sum("aten.rand." in o.target for o in graph.operations) == 1
    assert "aten.mean.default" in {o.target for o in graph.operations}


@pytest.mark.parametrize("case", COINS)
def test_a_draw_that_decides(tmp_path: Path, case: str) -> None:
    text = source(LINEAR + "\nself.rate = 0.0", f"y = self.lin(x)\n{COINS[case]}\nreturn y.mean()")
    with pytest.raises(TraceError, match="depends on a random number"):
        traced(tmp_path, text)


TEXTS = {
    "printed": "print(x, x.mean(), f'{x.mean():.3f}')\nreturn y.sum()",
    "in a message": "if x.isnan().any():\n    raise ValueError(f'{x}, {x.max()}')\nreturn y.sum()",
    "of a constant": "return y.sum() if '2' in str(torch.arange(3)) else y.mean()",
}


@pytest.mark.parametrize("case", TEXTS)
def test_a_text_that_decides_nothing(tmp_path: Path, case: str) -> None:
    targets = [
        o.target for o in traced(tmp_path, source(LINEAR, ALIKE + TEXTS[case])).graph.operations
    ]
    assert "aten.sum.default" in targets and "aten.mean.default" not in targets


@pytest.mark.limit(
    "`if` on whether the text of a number is a certain other one's (`f'{x:.1f}' == '0.5'`)",
    "goes on as the example does, and nothing tells of it; compare the number itself",
)
def test_a_certain_text(tmp_path: Path) -> None:
    forward = "return y.mean() if f'{x.abs().mean() + 9:.1f}' == '0.5' else y.sum()"
    graph = traced(tmp_path, source(LINEAR, ALIKE + forward)).graph
    assert "aten.mean.default" not in [o.target for o in graph.operations]


def test_how_much_a_mask_selects_may_be_compared(tmp_path: Path) -> None:
    forward = (
        "on = x > 0\nif x[on].size() != (x[on].numel(),):\n    raise ValueError(f'{x[on]}')\n"
        "if x[on].numel() != on.sum():\n    raise ValueError(f'{on.sum()}')\n"
        "return self.lin(x).sum()"
    )
    graph = traced(tmp_path, source(LINEAR, forward)).graph
    assert [o.args[1] for o in graph.operations if o.target == CHECK] == [True, False]


def test_a_number_is_no_key(tmp_path: Path) -> None:
    """As text it is not the example's: an expert that was picked by name would be the wrong one."""
    init = "self.experts = nn.ModuleDict({str(i): nn.Linear(8, 8) for i in range(4)})"
    for number in ("str(x.argmax().item() % 4)", "f'{x.argmax().clamp(0, 3)}'"):
        with pytest.raises(TraceError):
            traced(tmp_path, source(init, f"return self.experts[{number}](x).sum()"))


FIRST = (
    "self.lin = nn.Linear(8, 8)\nself.register_buffer('mean', torch.zeros(8))\n"
    "self.register_buffer('ready', torch.tensor(False))"
)


def test_a_first_step_that_is_like_no_other(tmp_path: Path) -> None:
    """A codebook that the first step fills: refused, and planned once the model has run."""
    forward = (
        "if not self.ready:\n    self.mean.copy_(x.mean(0))\n    self.ready.fill_(True)\n"
        "return self.lin(x - self.mean).sum()"
    )
    text = source(FIRST, forward)
    with pytest.raises(TraceError, match=r"^net\.py:\d+: .*self\.ready, which forward itself") as e:
        traced(tmp_path, text)
    assert "run the model once in build_model()" in str(e.value)
    once = "    net = Net().train()\n    with torch.no_grad():\n        net(torch.randn(4, 8))\n"
    found = traced(tmp_path, text.replace("    return Net()", f"{once}    return net"))
    assert found.values == ("ready",)
    assert conditions_of(found.graph) == ()


def test_looks_in_a_loop_are_told_apart(tmp_path: Path) -> None:
    """One line, three layers, three conditions: each with its own value."""
    forward = (
        "for i in range(3):\n    if (x > 2 * i - 1).all():\n        x = x * 2\n"
        "return self.lin(x).sum()"
    )
    graph = traced(tmp_path, source(LINEAR, forward, "(torch.ones(4, 8) / 2,)")).graph
    planned = [o.args[1] for o in graph.operations if o.target == CHECK]
    assert planned == [True, False, False]
    assert len(conditions_of(graph)) == 1


def test_a_condition_varies_with_the_batch(tmp_path: Path) -> None:
    forward = "if (x > 99).any():\n    x = -x\nreturn self.lin(x).sum()"
    path = tmp_path / "net.py"
    path.write_text(source(LINEAR, forward), encoding="utf-8")
    found = trace_loaded(load(path, None, None, "cpu"), None)
    assert [length.minimum for length in found.graph.lengths] == [1]
    assert [o.target for o in found.graph.operations].count(CHECK) == 1


def test_one_hot_is_no_look_where_a_cache_is_filled(tmp_path: Path) -> None:
    """Forward runs for real for the cache, and one_hot looks for its largest value there."""
    init = "self.lin = nn.Linear(8, 4)\nself.tables = {}"
    forward = (
        "if x.shape[1] not in self.tables:\n"
        "    self.tables[x.shape[1]] = torch.arange(4.0)\n"
        "rows = F.one_hot((x[:, 0] > 0).long(), 4)\n"
        "return (self.lin(x) * rows + self.tables[x.shape[1]]).sum()"
    )
    assert traced(tmp_path, source(init, forward)).graph.operations
    guessed = forward.replace(".long(), 4)", ".long())").replace("* rows", "* rows.sum()")
    with pytest.raises(TraceError, match="keep it a tensor"):
        traced(tmp_path, source(init, guessed))
