"""What a planned model is given, or becomes, that it was not planned for: named before the step."""

from __future__ import annotations

import copy
from collections import OrderedDict, UserDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pairs import Pair, make_pair_of
from sources import model_source
from steps import assert_right
from torch import nn

from remat_gen.ir.errors import TraceError

Use = Callable[[Any], object]

_GATED = model_source(
    "return self.head(self.body(x) * self.gate).square().mean()",
    init="        self.register_buffer('gate', torch.full((8,), 0.5))",
)
_NAMED = model_source(
    "x = self.body(torch.cat(list(parts.values())))\nreturn self.head(x).square().mean()",
    arguments="self, parts",
    inputs="({'a': torch.randn(2, 8), 'b': torch.randn(2, 8)},)",
)
_LISTED = model_source(
    "x = torch.cat(parts) * (2 if isinstance(parts, list) else 3)\n"
    "return self.head(self.body(x)).square().mean()",
    arguments="self, parts",
    inputs="([torch.randn(2, 8), torch.randn(2, 8)],)",
)
_UNREAD = model_source(
    "return self.head(self.body(x)).square().mean()",
    arguments="self, x, index, name='', *rest, **options",
    inputs="(torch.randn(6, 8), 0)",
)
_ASKS = "return self.head(self.body(x) * (2 if x is y else y)).square().mean()"
_TWO = "(torch.randn(4, 8), torch.randn(4, 8))"


@pytest.fixture(scope="module")
def gated() -> Pair:
    return make_pair_of(_GATED)


def _named(pair: Pair, change: Callable[[Any], object], says: str, *, behind: bool) -> None:
    """Change a planned model before its first step, or behind it: the next step says what."""
    model = pair.models()[1]
    args, kwargs = pair.inputs()
    if behind:
        model(*args, **kwargs).backward()
    change(model)
    with pytest.raises(ValueError, match=says):
        model(*args, **kwargs)


def _assert_alike(pair: Pair, *args: Any, **kwargs: Any) -> None:
    """Call both models otherwise than planned: their losses and gradients are the same."""
    found = []
    for model in pair.models():
        torch.manual_seed(3)
        loss = model(*args, **kwargs)
        loss.backward()
        found.append([loss.detach(), *(p.grad for p in model.parameters())])
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


def _list_is_named(source: str) -> None:
    """Give a model that is planned for a tuple a list."""
    pair = make_pair_of(source)
    (given,), _ = pair.inputs()
    with pytest.raises(ValueError, match=r"pair is \[float32.*planned for \(float32"):
        pair.models()[1]([*given])


CHANGES: dict[str, tuple[Callable[[Any], object], str]] = {
    "a buffer that requires grad": (
        lambda m: m.gate.requires_grad_(),
        r"gate: buffer float32\[8\] requires grad",
    ),
    "a buffer that is a parameter now": (
        lambda m: (delattr(m, "gate"), setattr(m, "gate", nn.Parameter(torch.ones(8)))),
        r"the model is model\(gate: float32\[8\]\), planned for model\(gate: buffer float32\[8\]\)",
    ),
    "a buffer that something else is trained by": (
        lambda m: setattr(m, "gate", torch.ones(8, requires_grad=True) * 2),
        "requires grad",
    ),
    "a layer of the same name from elsewhere": (
        lambda m: setattr(m, "head", type("Linear", (nn.Linear,), {})(8, 4)),
        r"head is Linear\(.*\) not of torch\.nn, planned for Linear\(",
    ),
}


@pytest.mark.parametrize("behind", [False, True], ids=["at first", "later"])
@pytest.mark.parametrize("case", CHANGES)
def test_a_change_is_named(gated: Pair, case: str, behind: bool) -> None:
    _named(gated, *CHANGES[case], behind=behind)


def test_a_model_without_tensors_of_its_own_has_a_row() -> None:
    source = model_source(
        "x = self.body(x)\nx = x if self.mask is None else x * self.mask\n"
        "return self.head(x).square().mean()",
        init="        self.register_buffer('mask', None)",
    )
    says = r"the model is model\(mask: buffer float32\[8\]\), planned for model\."
    _named(make_pair_of(source), lambda m: setattr(m, "mask", torch.ones(8)), says, behind=True)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.layers.add_module("more", nn.Linear(8, 8)),
        lambda m: m.add_module("more", nn.Linear(8, 8)),
        lambda m: m.add_module("head", m._modules.pop("head")),
    ],
    ids=["one more inside", "one more", "another order"],
)
@pytest.mark.parametrize("asks", ["self.children()", "self.parameters()", "self.state_dict()"])
def test_children_that_forward_asks_for_are_compared(change: Use, asks: str) -> None:
    source = model_source(
        f"x = self.head(self.body(x))\nreturn x.square().mean() * len(list({asks}))",
        init="        self.drop = nn.Dropout(0.5)",
    )
    _named(make_pair_of(source), change, "_modules is dict|layers is ModuleList", behind=True)


@pytest.fixture(scope="module")
def asking() -> Pair:
    source = model_source(
        "x = self.asks(self.act(self.norm(self.body(x))))\nreturn self.head(x).square().mean()",
        prelude="class Asks(nn.Module):\n    def forward(self, x: Tensor) -> Tensor:\n"
        "        return F.dropout(x, 0.5, self.training)",
        init="        self.act, self.asks = nn.GELU(), Asks()\n"
        "        self.norm = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))",
    )
    return make_pair_of(source)


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ("layers.0", r"layers\.0\.drop\.training is False, planned for True"),
        ("norm", r"norm.*\.training is False, planned for True"),
        ("asks", r"asks\.training is False, planned for True"),
    ],
)
@pytest.mark.parametrize("behind", [False, True], ids=["at first", "later"])
def test_a_mode_that_forward_asks_for_is_compared(
    asking: Pair, part: str, says: str, behind: bool
) -> None:
    _named(asking, lambda m: m.get_submodule(part).eval(), says, behind=behind)


def test_a_mode_that_is_read_past_the_module_is_compared() -> None:
    source = model_source("return self.head(self.body(x)).mean() * vars(self.head)['training']")
    says = r"head\.training is False, planned for True"
    _named(make_pair_of(source), lambda m: m.head.eval(), says, behind=True)


@pytest.mark.parametrize("again", ["", "\nself.drop.train()"], ids=["left", "put back"])
def test_a_mode_that_forward_itself_switches(again: str) -> None:
    source = model_source(
        f"self.drop.eval()\nx = self.drop(self.body(x)){again}\nreturn self.head(x).mean()",
        init="        self.drop = nn.Dropout(0.5)",
    )
    assert_right(make_pair_of(source))


def test_a_mode_that_nobody_asks_for_is_not(asking: Pair) -> None:
    losses = []
    for model in asking.models():
        for part in ("head", "act", "layers.0.up"):
            model.get_submodule(part).eval()
        args, _ = asking.inputs()
        torch.manual_seed(3)
        losses.append(model(*args))
    assert torch.equal(*losses)


def _in_place_of_a_table(model: Any) -> nn.Module:
    model.head._parameters = {
        name: nn.Parameter(2 * p.detach()) for name, p in model.head._parameters.items()
    }
    return model  # type: ignore[no-any-return]


def _another_ones(model: Any) -> nn.Module:
    torch.manual_seed(5)
    model.__dict__.update(type(model)().__dict__)
    return model  # type: ignore[no-any-return]


def _clone(model: Any) -> nn.Module:
    """Clone a model for an inner step as learn2learn does."""
    other = model.__new__(type(model))
    other.__dict__ = {**model.__dict__}
    for table in ("_parameters", "_buffers", "_modules"):
        other.__dict__[table] = other.__dict__[table].copy()
    for name, p in other._parameters.items():
        other._parameters[name] = 2 * p
    for name, child in other._modules.items():
        other._modules[name] = _clone(child)
    return other  # type: ignore[no-any-return]


@pytest.mark.parametrize("become", [_in_place_of_a_table, _another_ones, _clone])
def test_other_tables_are_those_that_run(gated: Pair, become: Use) -> None:
    """What an earlier step has seen is not gone by where a model's tables are others."""
    found = []
    for model in gated.models():
        args, kwargs = gated.inputs()
        model(*args, **kwargs).backward()
        model.zero_grad()
        torch.manual_seed(3)
        other: Any = become(model)
        loss = other(*args, **kwargs)
        loss.backward()
        found.append([loss.detach(), *(p.grad for p in model.parameters())])
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


def test_a_shallow_copy_is_looked_at_itself(gated: Pair) -> None:
    model = gated.models()[1]
    args, kwargs = gated.inputs()
    model(*args, **kwargs).backward()
    other = copy.copy(model)
    other._modules = {**model._modules, "head": nn.Linear(8, 4, bias=False)}
    with pytest.raises(ValueError, match=r"head is Linear\(weight: float32\[4, 8\]\)"):
        other(*args, **kwargs)


@pytest.mark.parametrize(
    ("source", "other", "says"),
    [
        (_NAMED, lambda d: {"b": d["b"], "a": d["a"]}, r"parts is \{'b': .*planned for \{'a': "),
        (_LISTED, tuple, r"parts is \(float32.*planned for \[float32"),
    ],
    ids=["order of a dict", "tuple for a list"],
)
def test_another_container_is_named(source: str, other: Any, says: str) -> None:
    pair = make_pair_of(source)
    assert_right(pair)
    (given,), _ = pair.inputs()
    with pytest.raises(ValueError, match=says):
        pair.models()[1](other(given))


_BY_KEY = model_source(
    "x, (y, z) = parts['a'], pair\n"
    "x = self.body(x + parts['b']) * (1 if parts.get('mask') is None else 2)\n"
    "return self.head(x * y + z).square().mean() * size[0]",
    arguments="self, parts, pair, size=(2, 3)",
    inputs="({'a': torch.randn(4, 8), 'b': torch.randn(4, 8), 'file': 'a.png'},"
    " (torch.randn(4, 8), torch.randn(4, 8)))",
)
CONTAINERS: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "order of keys": lambda d, p: (dict(reversed(d.items())), p),
    "OrderedDict": lambda d, p: (OrderedDict(d), p),
    "no dict": lambda d, p: (UserDict(d), p),  # as a tokenizer's
    "list for a tuple": lambda d, p: (d, [*p]),
    "more than is read": lambda d, p: ({**d, "index": 3}, p),
    "another value that is not read": lambda d, p: ({**d, "file": "b.png"}, p),
    "without what is not read": lambda d, p: ({"a": d["a"], "b": d["b"]}, p),
}


@pytest.fixture(scope="module")
def by_key() -> Pair:
    return make_pair_of(_BY_KEY)


@pytest.mark.parametrize("case", CONTAINERS)
def test_containers_may_be_others_where_forward_does_not_ask(by_key: Pair, case: str) -> None:
    """A loader makes lists of tuples, and has more in its dicts than a model reads."""
    args, _ = by_key.inputs()
    _assert_alike(by_key, *CONTAINERS[case](*args))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (lambda d, p: ({**d, "mask": 1}, p), r"parts is \{.*'mask': 1\}, planned for \{'a': "),
        (lambda d, p: ({"a": d["a"]}, p), r"parts is \{'a': [^}']*\}, planned for \{'a': "),
        (lambda d, p: (None, p), r"parts is None, planned for \{'a': "),
        (lambda d, p: (d, torch.stack(p)), r"pair is float32\[2, 4, 8\].*planned for \[float32"),
        (lambda d, p: (d, (*p, p[0])), r"pair is \[.*, .*, .*\], planned for \[float32"),
        (lambda d, p: (d, p, [2, 3]), r"size is \[2, 3\], planned for \(2, 3\)"),
    ],
    ids=["asked for and not there", "gone", "None", "a tensor", "one more", "a default"],
)
def test_what_forward_asks_of_containers_is_compared(by_key: Pair, given: Any, says: str) -> None:
    args, _ = by_key.inputs()
    with pytest.raises(ValueError, match=says):
        by_key.models()[1](*given(*args))


@pytest.mark.parametrize(
    "asks",
    [
        "len(parts)",
        "isinstance(parts, dict) + 1",
        "len([*parts])",
        "len({**parts})",
        "sum(1 for _ in parts.items())",
        "2 - (tuple(parts) == ('a', 'b'))",
        "(2 if 'c' in str(parts) else 1)",
        "getattr(parts, 'scale', 1)",  # as a library's dict may have one
        "len(torch.utils._pytree.tree_leaves(parts))",
    ],
)
def test_a_forward_that_asks_for_all_of_a_dict_gets_that_alone(asks: str) -> None:
    source = model_source(
        f"x = self.body(parts['a'] + parts['b']) * {asks}\nreturn self.head(x).square().mean()",
        arguments="self, parts",
        inputs="({'a': torch.randn(2, 8), 'b': torch.randn(2, 8)},)",
    )
    pair = make_pair_of(source)
    (parts,), _ = pair.inputs()
    with pytest.raises(ValueError, match=r"parts is \{'a'.*'c': 3\}, planned for \{'a': "):
        pair.models()[1]({**parts, "c": 3})
    with pytest.raises(ValueError, match=r"parts is OrderedDict|parts is UserDict|parts is \{'a"):
        pair.models()[1](UserDict(parts))


def test_a_named_tuple_is_read_by_its_names() -> None:
    source = model_source(
        "x, y = pair\nreturn self.head(self.body(x) * y).square().mean()",
        prelude="class Both(NamedTuple):\n    one: Tensor\n    other: Tensor",
        arguments="self, pair",
        inputs="(Both(torch.randn(4, 8), torch.randn(4, 8)),)",
    )
    pair = make_pair_of(source)
    assert_right(pair)
    (given,), _ = pair.inputs()
    with pytest.raises(ValueError, match=r"pair is \[float32.*planned for Both\(float32"):
        pair.models()[1]([*given])


@pytest.mark.parametrize(
    "forward",
    [
        "x, y = pair if isinstance(pair, tuple) else pair[::-1]",
        "f, g = self.layers if isinstance(pair, tuple) else self.layers[::-1]\n"
        "x, y = f(pair[0]), g(pair[1])",
        "x, y = pair[0].sin(), pair[0].cos()\nx, y = (x, y) if isinstance(pair, tuple) else (y, x)",
    ],
    ids=["inputs", "weights", "what is computed"],
)
def test_other_tensors_of_the_same_layout_are_told_apart(forward: str) -> None:
    source = model_source(
        f"{forward}\nreturn self.head(self.body(x) - y).square().mean()",
        arguments="self, pair",
        inputs="((torch.randn(4, 8), torch.randn(4, 8)),)",
    )
    _list_is_named(source)


def test_a_container_that_is_returned_is_the_callers() -> None:
    source = model_source(
        "return self.head(self.body(pair[0] * pair[1])).square().mean(), pair",
        arguments="self, pair",
        inputs="((torch.randn(4, 8), torch.randn(4, 8)),)",
    )
    _list_is_named(source)


def test_what_forward_never_reads_may_be_anything() -> None:
    """The number of a batch is another in each step."""
    pair = make_pair_of(_UNREAD)
    assert_right(pair)
    (x, _), _ = pair.inputs()
    _assert_alike(pair, x, 1, "a", None, note=2)


@pytest.mark.parametrize("reads", ["locals()", "(lambda: index)()", "[index for _ in ()]", "f(x)"])
def test_what_forward_may_read_is_compared(reads: str) -> None:
    source = model_source(
        f"f = lambda x: x + index\n_ = {reads}\nreturn self.head(self.body(x)).square().mean()",
        arguments="self, x, index",
        inputs="(torch.randn(6, 8), 0)",
    )
    pair = make_pair_of(source)
    with pytest.raises(ValueError, match="index is 1, planned for 0"):
        pair.models()[1](pair.inputs()[0][0], 1)


def test_one_tensor_for_two_is_named_where_forward_asks() -> None:
    pair = make_pair_of(model_source(_ASKS, arguments="self, x, y", inputs=_TWO))
    assert_right(pair)
    (x, _), _ = pair.inputs()
    with pytest.raises(ValueError, match="y is the same as x, planned for one that is not"):
        pair.models()[1](x, x)


def test_one_tensor_for_two_runs_where_forward_does_not_ask() -> None:
    forward = "return self.head(self.body(x) * y).square().mean()"
    pair = make_pair_of(model_source(forward, arguments="self, x, y", inputs=_TWO))
    (x, _), _ = pair.inputs()
    _assert_alike(pair, x, x)


@pytest.mark.limit(
    "one tensor given for two arguments in the example, where `forward` does something else then "
    "(`query is key`, as in `nn.MultiheadAttention`)",
    "refused with their names; let `forward` take it once",
)
def test_an_example_of_one_tensor_is_refused_where_forward_asks() -> None:
    source = model_source(_ASKS, arguments="self, x, y", inputs="(torch.randn(4, 8),) * 2")
    with pytest.raises(TraceError, match=r"gives one tensor as x and y.*take that once"):
        make_pair_of(source)


def test_memory_that_is_written_is_one_inputs_alone() -> None:
    forward = "h = self.body(x * 2)\ny.add_(h.detach())\nreturn self.head(h + y).square().mean()"
    pair = make_pair_of(model_source(forward, arguments="self, x, y", inputs=_TWO))
    (x, _), _ = pair.inputs()
    with pytest.raises(ValueError, match="y is the same as x"):
        pair.models()[1](x, x.view(4, 8))
    pair.models()[1](*torch.cat((x, x)).chunk(2))  # apart in one memory


@pytest.mark.limit(
    "a class with a `__call__` of its own",
    "refused: it would run around the planned `forward`, and in it",
)
def test_a_call_of_its_own_is_refused() -> None:
    call = "def __call__(self, x):\n        return super().__call__(x * 2)\n\n    def forward("
    source = model_source("return self.head(self.body(x)).mean()")
    head, _, tail = source.rpartition("def forward(")
    with pytest.raises(TraceError, match=r"Model has a __call__ of its own.*into forward"):
        make_pair_of(head + call + tail)


@pytest.mark.limit(
    "a class whose `named_parameters()` (or `parameters()`, `buffers()`, …) leaves some out",
    "refused: what is compared goes by it; call that by another name",
)
def test_what_a_class_does_not_tell_of_is_refused() -> None:
    hides = (
        "def named_parameters(self, *args, **kwargs):\n"
        "        named = super().named_parameters(*args, **kwargs)\n"
        "        return (pair for pair in named if 'head' not in pair[0])\n\n    def forward("
    )
    source = model_source("return self.head(self.body(x)).mean()")
    head, _, tail = source.rpartition("def forward(")
    with pytest.raises(TraceError, match=r"Model has a named_parameters\(\) of its own"):
        make_pair_of(head + hides + tail)


def test_a_decorator_that_takes_other_arguments() -> None:
    """The planned forward had the inner function's parameters, and read the outer one's."""
    prelude = (
        "def doubled(forward):\n    def wrapper(self, *args, **options):\n"
        "        return forward(self, *args, **options) * 2\n    return wrapper"
    )
    source = model_source("return self.head(self.body(x)).mean()", prelude=prelude)
    head, _, tail = source.rpartition("def forward(")
    pair = make_pair_of(f"{head}@doubled\n    def forward({tail}")
    original, planned = pair.models()
    args, _ = pair.inputs()
    for model in (original, planned):
        torch.manual_seed(3)
        model(*args).backward()
    pairs = zip(original.parameters(), planned.parameters(), strict=True)
    assert all(torch.equal(p.grad, q.grad) for p, q in pairs)
    assert torch.equal(original.eval()(*args), planned.eval()(*args))


@pytest.mark.limit(
    "a dict or list among its arguments that `forward` changes",
    "refused with its name; let it change a copy",
)
@pytest.mark.parametrize("change", ["parts.pop('b')", "parts['c'] = 1", "parts.clear()"])
def test_a_forward_that_changes_its_argument_is_refused(change: str) -> None:
    source = model_source(
        f"x = self.body(parts['a'] + parts['b'])\n{change}\nreturn self.head(x).square().mean()",
        arguments="self, parts",
        inputs="({'a': torch.randn(2, 8), 'b': torch.randn(2, 8)},)",
    )
    with pytest.raises(TraceError, match=r"changes its argument parts, a dict.*parts\.copy\(\)"):
        make_pair_of(source)
