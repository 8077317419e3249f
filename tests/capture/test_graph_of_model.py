"""What the graph of a traced model holds: views, ties, buffers, random state, constants, inputs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tracing import LINEAR, names, operation, source, traced

from remat_gen.ir.graph import Kind, Phase, Ref, Trait


def test_views_are_found_by_their_storage_and_are_no_operations(tmp_path: Path) -> None:
    text = source(LINEAR, "y = self.lin(x)\nreturn y.view(2, 16).t().unsqueeze(0).exp().sum()")
    graph = traced(tmp_path, text).graph
    targets = {o.target for o in graph.operations}
    assert not targets & {"aten.view.default", "aten.t.default", "aten.unsqueeze.default"}
    (linear,) = (o for o in graph.operations if o.target == "aten.addmm.default")
    (made,) = graph.writes(linear)
    views = {v.target for v in graph.views if graph.tensors[v.tensor].storage == made}
    assert views == {"aten.view.default", "aten.t.default", "aten.unsqueeze.default"}


def test_a_reshape_that_copies_is_an_operation(tmp_path: Path) -> None:
    text = source(LINEAR, "return self.lin(x).t().reshape(2, 16).exp().sum()")
    graph = traced(tmp_path, text).graph
    assert "aten.clone.default" in {o.target for o in graph.operations}


def test_transposing_back_is_the_same_tensor(tmp_path: Path) -> None:
    text = source(LINEAR, "return self.lin(x).t().t().exp().sum()")
    graph = traced(tmp_path, text).graph
    (exp,) = (o for o in graph.operations if o.target == "aten.exp.default")
    assert exp.args == (Ref("lin"),)


def test_parts_of_a_split_share_one_storage(tmp_path: Path) -> None:
    text = source(LINEAR, "a, b = self.lin(x).split(4, dim=1)\nreturn (a * b).sum()")
    graph = traced(tmp_path, text).graph
    assert sorted(v.index for v in graph.views if v.target == "aten.split.Tensor") == [0, 1]


def test_tied_weights_have_one_gradient(tmp_path: Path) -> None:
    init = LINEAR + "\nself.head = nn.Linear(8, 8)\nself.head.weight = self.lin.weight"
    graph = traced(tmp_path, source(init, "return self.head(self.lin(x)).sum()")).graph
    paths = {i.tensor: i.path for i in graph.inputs}
    tied = [paths[g.of] for g in graph.gradients if g.tensor and paths[g.of].endswith("weight")]
    assert tied == ["lin.weight"]


def test_frozen_and_unused_parameters(tmp_path: Path) -> None:
    init = LINEAR + "\nself.lin.bias.requires_grad_(False)\nself.unused = nn.Linear(8, 8)"
    graph = traced(tmp_path, source(init, "return self.lin(x).sum()")).graph
    inputs = {i.path: i for i in graph.inputs}
    assert not inputs["lin.bias"].requires_grad
    gradients = {g.of: g.tensor for g in graph.gradients}
    assert inputs["lin.bias"].tensor not in gradients
    assert gradients[inputs["unused.weight"].tensor] is None


def test_a_buffer_that_forward_writes_is_a_mutation(tmp_path: Path) -> None:
    init = LINEAR + '\nself.register_buffer("calls", torch.zeros(()))'
    graph = traced(tmp_path, source(init, "self.calls += 1\nreturn self.lin(x).sum()")).graph
    (mutation,) = graph.mutations
    (buffer,) = (i for i in graph.inputs if i.kind is Kind.BUFFER)
    assert (buffer.path, mutation.target) == ("calls", buffer.tensor)


def test_batchnorm_updates_its_statistics_and_its_backward_reads_none(tmp_path: Path) -> None:
    graph = traced(tmp_path, source("self.bn = nn.BatchNorm1d(8)", "return self.bn(x).sum()")).graph
    paths = {i.tensor: i.path for i in graph.inputs}
    written = {paths[m.target] for m in graph.mutations}
    assert written == {"bn.running_mean", "bn.running_var", "bn.num_batches_tracked"}
    (backward,) = (o for o in graph.operations if "batch_norm_backward" in o.target)
    assert not {"bn.running_mean", "bn.running_var"} & {
        paths.get(name) for name in graph.reads(backward)
    }


def test_a_random_operation_has_its_generators_state(tmp_path: Path) -> None:
    graph = traced(tmp_path, source(LINEAR, "return F.dropout(self.lin(x), 0.5).sum()")).graph
    (drop,) = (o for o in graph.operations if Trait.RANDOM in o.traits)
    assert drop.state is not None
    state = operation(graph, drop.state)
    assert state.target == "remat.rng_state"
    assert graph.storage_of(drop.state).nbytes == torch.get_rng_state().nbytes
    assert names(graph).index(drop.state) < names(graph).index(drop.name)


def test_a_random_result_that_nobody_reads_still_moves_the_stream(tmp_path: Path) -> None:
    graph = traced(tmp_path, source(LINEAR, "torch.rand(3)\nreturn self.lin(x).sum()")).graph
    assert [o.target for o in graph.operations if Trait.RANDOM in o.traits] == ["aten.rand.default"]


def test_a_small_constant_is_built_from_its_numbers(tmp_path: Path) -> None:
    text = source(LINEAR, "return (self.lin(x) * torch.tensor([1.0, 2.0] * 4)).sum()")
    graph = traced(tmp_path, text).graph
    (constant,) = (o for o in graph.operations if o.target == "remat.constant")
    assert constant.args == ((1.0, 2.0) * 4,)


def test_a_custom_functions_backward_is_backward(tmp_path: Path) -> None:
    before = """
class Triple(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 3 * x * gradient
"""
    text = source(LINEAR, "return Triple.apply(self.lin(x)).sum()", before=before)
    graph = traced(tmp_path, text).graph
    tangents = {o.tangent for o in graph.outputs}
    for o in graph.operations:
        if tangents.intersection(graph.reads(o)):
            assert o.phase is Phase.BACKWARD


INPUTS = {
    "nested": (
        "(((torch.randn(4, 8), {'k': torch.randn(8)}), 2.0),)",
        "b",
        "(a, d), n = b\nreturn (self.lin(a) * d['k'] * n).sum()",
        {"b[0][0]", "b[0][1]['k']"},
    ),
    "keywords": (
        "((torch.randn(4, 8),), {'scale': torch.randn(8), 'mode': 'it\\'s'})",
        "x, *, scale, mode='sum', mask=None",
        'assert mode == "it\'s"\nreturn (self.lin(x) * scale).sum()',
        {"x", "scale"},
    ),
    "stars": (
        "((torch.randn(4, 8), torch.randn(8)), {'s': torch.randn(8)})",
        "x, *rest, **named",
        "return (self.lin(x) * rest[0] + named['s']).sum()",
        {"x", "rest[0]", "named['s']"},
    ),
    "twice": (
        "(lambda t: (t, t))(torch.randn(4, 8))",
        "x, y",
        "return (self.lin(x) * y).sum()",
        {"x", "y"},
    ),
}


@pytest.mark.parametrize("case", INPUTS)
def test_inputs_are_named_by_their_way_from_the_arguments(tmp_path: Path, case: str) -> None:
    inputs, parameters, forward, paths = INPUTS[case]
    graph = traced(tmp_path, source(LINEAR, forward, inputs, parameters)).graph
    assert {i.path for i in graph.inputs if i.kind is Kind.INPUT} == paths


def test_outputs_of_any_shape(tmp_path: Path) -> None:
    forward = (
        "y = self.lin(x)\nreturn {'a': y, 'b': [y.relu(), (None, 3, 's', 2.5)], 1: y.detach()}"
    )
    graph = traced(tmp_path, source(LINEAR, forward)).graph
    assert [o.constant for o in graph.outputs if o.tensor is None] == [None, 3, "s", 2.5]
    assert [o.tangent is not None for o in graph.outputs if o.tensor] == [True, True, False]


@pytest.mark.parametrize(
    "forward",
    [
        "y = self.lin(x)\ntorch._dynamo.graph_break()\nreturn y.sum()",
        "y = self.lin(x)\nprint(y.shape)\nreturn y.sum()",
    ],
)
def test_where_dynamo_refuses_the_module_itself_is_traced(tmp_path: Path, forward: str) -> None:
    found = traced(tmp_path, source(LINEAR, forward))
    assert not found.strict
    assert {i.path for i in found.graph.inputs} == {"lin.weight", "lin.bias", "x"}


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_recurrent_networks(tmp_path: Path, kind: str) -> None:
    text = source(f"self.r = nn.{kind}(8, 4, 2)", "return self.r(x)[0].sum()")
    found = traced(tmp_path, text.replace("randn(4, 8)", "randn(3, 2, 8)"))
    assert found.strict
