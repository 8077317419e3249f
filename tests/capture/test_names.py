"""Names come from the user's program, and inserting a layer renames nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from tracing import BLOCK, LINEAR, ONE_INPUT, line_of, names, operation, source, traced

from remat_gen.capture.fx.metadata import clean_path, plain_name
from remat_gen.capture.lower.naming import Namer, identifier
from remat_gen.ir.graph import Phase, Ref


def test_a_variable_names_the_result_of_its_line(tmp_path: Path) -> None:
    graph = traced(tmp_path, source(LINEAR, "scores = self.lin(x).tanh()\nreturn scores")).graph
    assert operation(graph, "scores").target == "aten.tanh.default"


def test_a_module_names_what_no_variable_does(tmp_path: Path) -> None:
    graph = traced(tmp_path, source(LINEAR, "return F.gelu(self.lin(x)).sum()")).graph
    assert names(graph)[:3] == ["lin", "gelu", "sum"]
    assert operation(graph, "lin").module == "lin"


def test_gradients_are_named_after_what_they_belong_to(tmp_path: Path) -> None:
    graph = traced(tmp_path, source(LINEAR, "y = self.lin(x)\nreturn y.tanh().sum()")).graph
    hints = [o.hint for o in graph.operations if o.phase is Phase.BACKWARD]
    assert "d_y" in hints
    assert {"d_lin_weight", "d_lin_bias"} <= set(hints)


def test_an_operation_is_called_after_a_result_that_is_asked_for(tmp_path: Path) -> None:
    """The first convolution's input needs no gradient."""
    images = "(torch.randn(2, 3, 8, 8),)"
    stem = source("self.stem = nn.Conv2d(3, 4, 3)", "return self.stem(x).sum()", images)
    operations = traced(tmp_path, stem).graph.operations
    (backward,) = (o for o in operations if "convolution_b" in o.target)
    assert backward.name == "stem.d_stem_weight"
    assert backward.outputs == (None, "stem.d_stem_weight", "stem.d_stem_bias")


SECOND = """
class Updater(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.instance = net

    def forward(self):
        return [m.bias for m in self.instance.modules() if isinstance(m, nn.Linear)]
"""


def test_a_module_that_another_one_holds_too_is_named_as_its_parameters(tmp_path: Path) -> None:
    """Forward comes by the other path first: the layers were the updater's, and no pin's."""
    init = "self.h = nn.Sequential(nn.Linear(8, 8), nn.Tanh())\nself.updater = Updater(self.h)"
    text = source(init, "self.updater()\nreturn self.h(x).sum()", before=SECOND)
    found = traced(tmp_path, text)
    assert found.strict
    assert operation(found.graph, "h.0.linear").module == "h.0"


def test_a_module_that_two_layers_share_is_each_ones_own(tmp_path: Path) -> None:
    init = "self.h = nn.ModuleList(Block() for _ in range(3))\nself.h[2].norm = self.h[0].norm"
    text = source(init, "for m in self.h:\n    x = m(x)\nreturn x.sum()", before=BLOCK)
    graph = traced(tmp_path, text).graph
    ran = {o.module for o in graph.operations if o.module.endswith("norm")}
    assert ran == {"h.0.norm", "h.1.norm", "h.2.norm"}


SQUARE = ONE_INPUT.replace("4", "8")
TWO = "self.p, self.q = nn.Linear(8, 8), nn.Linear(8, 8)"
HEAD = "a = self.p(x).tanh()\nb = self.q(x).exp()\n"


@pytest.mark.parametrize("product", ["a * b", "a @ b", "(a[None] @ b[None])", "b * a"])
def test_one_factor_times_the_gradient_is_the_gradient_of_the_other(
    tmp_path: Path, product: str
) -> None:
    """Their shapes are equal, and autograd computes that of the second factor first."""
    graph = traced(tmp_path, source(TWO, f"{HEAD}return ({product}).cos().sum()", SQUARE)).graph
    for one, other in ("ab", "ba"):
        reads = graph.reads(operation(graph, f"d_{one}"))
        assert other in reads
        assert one not in reads


def test_gradients_of_a_quotient(tmp_path: Path) -> None:
    graph = traced(tmp_path, source(TWO, f"{HEAD}return (a / b).cos().sum()")).graph
    assert operation(graph, "d_a").target == "aten.div.Tensor"
    assert operation(graph, "d_b").target == "aten.mul.Tensor"


def test_gradients_of_what_is_picked_from(tmp_path: Path) -> None:
    picked = "torch.where(x > 0, a, b)"
    graph = traced(tmp_path, source(TWO, f"{HEAD}return {picked}.cos().sum()")).graph
    for name, place in (("d_a", 1), ("d_b", 2)):
        argument = operation(graph, name).args[place]
        assert isinstance(argument, Ref)
        assert argument.name.startswith("d_")


def test_a_square_has_one_factor(tmp_path: Path) -> None:
    graph = traced(tmp_path, source(TWO, f"{HEAD}return (a * a + b).cos().sum()")).graph
    assert "a" in graph.reads(operation(graph, "d_a"))


@pytest.mark.parametrize(
    "result", ["a.pow(3)", "(a * b).rsqrt()", "a / b", "F.gelu(a * b)", "a.logsumexp(1, True) * b"]
)
def test_what_depends_on_no_gradient_is_none(tmp_path: Path, result: str) -> None:
    graph = traced(tmp_path, source(TWO, f"{HEAD}return ({result}).sum()")).graph
    carrying = {str(output.tangent) for output in graph.outputs}
    for o in graph.operations:
        if o.phase is Phase.BACKWARD:
            carries = not carrying.isdisjoint(graph.reads(o))
            assert o.hint.startswith("d_") == carries, o.name
            carrying.update(graph.writes(o) if carries else ())


def test_second_use_in_a_module_is_told_by_what_it_reads(tmp_path: Path) -> None:
    graph = traced(tmp_path, source(LINEAR, "return self.lin(self.lin(x)).sum()")).graph
    assert names(graph)[:2] == ["lin", "lin_addmm"]


def test_what_is_written_back_is_told_by_where_it_goes(tmp_path: Path) -> None:
    """Also where it was repeated, and goes back by a copy: an InstanceNorm's statistics."""
    init = (
        "self.norm = nn.InstanceNorm1d(4, affine=True, track_running_stats=True)\n"
        'self.register_buffer("steps", torch.zeros(()))'
    )
    forward = "self.steps += 1\nreturn self.norm(x).tanh().sum()"
    graph = traced(tmp_path, source(init, forward, "(torch.randn(8, 4, 8),)")).graph
    statistics = ("norm.norm_running_mean", "norm.norm_running_var")
    assert {f"{name}_new" for name in (*statistics, "steps")} <= {*names(graph)}
    repeated = (*statistics, "norm.norm_weight", "norm.norm_bias")
    assert {f"{name}_repeated" for name in repeated} <= {*names(graph)}


def test_an_operation_of_an_input_is_no_new_value_of_it(tmp_path: Path) -> None:
    graph = traced(tmp_path, source(LINEAR, "return self.lin((x + 1).tanh()).sum()")).graph
    assert names(graph)[0] == "add"


def test_an_inserted_layer_renames_nothing_else(tmp_path: Path) -> None:
    layers = "self.first = nn.Linear(8, 8)\nself.h = nn.ModuleList([nn.Linear(8, 8)] * {n})"
    forward = "x = self.first(x)\nfor layer in self.h:\n    x = layer(x).tanh()\nreturn x.sum()"
    layers = layers.replace("[nn.Linear(8, 8)] * {n}", "nn.Linear(8, 8) for _ in range({n})")
    one = set(names(traced(tmp_path, source(layers.format(n=2), forward)).graph))
    more = set(names(traced(tmp_path, source(layers.format(n=3), forward)).graph))
    assert one - more == set()


@pytest.mark.parametrize("key", ["a b", "c'd", "class", "é{{x}}", "a]b[", "1a", "a:b", "__x"])
def test_odd_module_keys_become_identifiers(tmp_path: Path, key: str) -> None:
    init = f"self.d = nn.ModuleDict({{{key!r}: nn.Linear(8, 8)}})"
    graph = traced(tmp_path, source(init, "return self.d[" + repr(key) + "](x).sum()")).graph
    assert all(o.hint.isidentifier() and o.hint.isascii() for o in graph.operations)
    assert {i.path for i in graph.inputs} >= {f"d.{key}.weight", f"d.{key}.bias"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("ln_1", "ln_1"), ("a b", "a_b"), ("1a", "v_1a"), ("é", "value"), ("", "value"), ("_x", "x")],
)
def test_identifier(text: str, wanted: str) -> None:
    assert identifier(text) == wanted


def test_a_namer_hands_out_no_name_twice() -> None:
    namer = Namer()
    made_by = ("drop", "x_sum", "add")
    names = [namer.unique("h", "x", made_by) for _ in range(5)]
    assert names == ["h.x", "h.x_drop", "h.x_add", "h.x_drop_add", "h.x_drop_add_turn_2"]
    assert namer.unique("h.ln", "ln") == "h.ln"


def test_operations_carry_the_users_line(tmp_path: Path) -> None:
    text = source(LINEAR, "y = self.lin(x)\nz = y.exp()\nreturn z.sum()")
    graph = traced(tmp_path, text).graph
    exp = operation(graph, "z").source
    assert (exp.file, exp.line, exp.text) == ("net.py", line_of(text, "y.exp()"), "z = y.exp()")


def test_backward_carries_the_line_of_the_forward_it_differentiates(tmp_path: Path) -> None:
    text = source(LINEAR, "y = self.lin(x)\nz = y.tanh()\nreturn z.sum()")
    graph = traced(tmp_path, text).graph
    (backward,) = (o for o in graph.operations if o.target == "aten.tanh_backward.default")
    assert backward.source.line == line_of(text, "y.tanh()")


def test_modules_behind_a_getattr_keep_their_paths(tmp_path: Path) -> None:
    """As peft's wrappers are: Dynamo reaches their modules through `__dict__['_modules']`."""
    wrapper = (
        "class Wrapper(nn.Module):\n"
        "    def __init__(self, inner):\n"
        "        super().__init__()\n"
        "        self.inner = inner\n\n"
        "    def __getattr__(self, name):\n"
        "        try:\n"
        "            return super().__getattr__(name)\n"
        "        except AttributeError:\n"
        "            return getattr(self.inner, name)\n\n"
        "    def forward(self, x):\n"
        "        return self.inner(x)\n"
    )
    init = "self.outer = Wrapper(Wrapper(nn.Linear(8, 8)))"
    graph = traced(tmp_path, source(init, "return self.outer(x).sum()", before=wrapper)).graph
    assert {o.module for o in graph.operations} <= {"", "outer", "outer.inner", "outer.inner.inner"}
    assert "outer.inner.inner" in {o.module for o in graph.operations}


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ("_softmax", "softmax"),
        ("native_layer_norm", "layer_norm"),
        ("_native_batch_norm_legit_functional", "batch_norm"),
        ("max_pool2d_with_indices", "max_pool2d"),
        ("max_pool2d_with_indices_backward", "max_pool2d_backward"),
        ("native_dropout", "dropout"),
        ("_native_batch_norm_legit", "batch_norm"),
        ("_native_batch_norm_legit_no_training", "eval_batch_norm"),
        ("_to_copy", "cast"),
    ],
)
def test_an_operator_is_called_by_what_it_does(schema: str, name: str) -> None:
    assert plain_name(schema) == name


def test_what_torch_makes_of_attention_is_called_after_its_parameters(tmp_path: Path) -> None:
    """A copy of the projection is one, and so are its gradients, looked at in parts."""
    init = "self.attn = nn.MultiheadAttention(8, 2, dropout=0.1)"
    text = source(init, "return self.attn(x, x, x)[0].sum()", "(torch.randn(4, 3, 8),)")
    graph = traced(tmp_path, text).graph
    found = [o.name.removeprefix("attn.") for o in graph.operations]
    assert "in_proj_copy" in found
    assert {"d_in_proj_copy", "d_in_proj_copy_select_backward", "d_in_proj"} <= {*found}
    assert max(map(len, found)) <= 40


@pytest.mark.parametrize(
    "told",
    [
        "L['self'].h[0].up",
        "L['self']._modules['h']['0'].up",
        "L['args'][0].h[0].up",
        "getattr(getattr(L['self'].h, '0'), 'up')",
    ],
)
def test_modules_by_whatever_dynamo_calls_them(told: str) -> None:
    """Under `torch.func` it asks for them: the path was no path, and its end no number."""
    assert clean_path(told) == "h.0.up"
