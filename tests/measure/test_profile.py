"""Costs of operations: workspace is exact, the user's things stay untouched."""

from __future__ import annotations

import pytest
import torch
from measure_graphs import Builder

from remat_gen.capture.device.kind import Time
from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.lower.signature import signature
from remat_gen.capture.profile.profile import profile
from remat_gen.ir.costs import Cost, Costs
from remat_gen.ir.errors import ProfileError, TraceError, UsageError
from remat_gen.ir.graph import Literal, Operation

CPU = torch.device("cpu")


def costs(build: Builder, examples: dict[str, torch.Tensor] | None = None) -> Costs:
    return profile(build.graph(), CPU, examples or {})


def cost(build: Builder, operation: Operation) -> Cost:
    return costs(build).operations[operation.name]


@pytest.fixture
def build() -> Builder:
    return Builder()


def test_an_operation_without_workspace(build: Builder) -> None:
    x = build.tensor("x", (256, 256))
    build.tensor("y", (256, 256))
    relu = build.operation("aten.relu.default", [x], ["y"])

    measured = cost(build, relu)

    assert measured.workspace_bytes == 0
    assert not measured.modelled
    assert 1 < measured.time_us < 1e5
    assert float(f"{measured.time_us:.3g}") == measured.time_us


def test_memory_inside_an_operation_is_workspace(build: Builder) -> None:
    """`native_dropout` makes a float mask beside the bool one that it returns."""
    x = build.tensor("x", (64, 64))
    build.tensor("y", (64, 64))
    build.tensor("mask", (64, 64), "bool")
    dropout = build.operation("aten.native_dropout.default", [x, 0.5, True], ["y", "mask"])
    assert cost(build, dropout).workspace_bytes == 64 * 64 * 4


def test_a_result_that_nobody_uses_is_workspace(build: Builder) -> None:
    x = build.tensor("x", (8, 1024))
    build.tensor("values", (8, 1024))
    build.tensor("indices", (8, 1024), "int64")
    both = build.operation("aten.sort.default", [x], ["values", "indices"], name="both")
    one = build.operation("aten.sort.default", [x], ["values", None], name="one")

    measured = costs(build).operations

    used = measured["one"].workspace_bytes - measured["both"].workspace_bytes
    assert used == 8 * 1024 * 8
    assert signature(build.graph(), both) != signature(build.graph(), one)


def test_an_output_that_aliases_an_input_counts_nothing(build: Builder) -> None:
    x = build.tensor("x", (128,))
    build.tensor("y", (128,), storage="x")
    in_place = build.operation("aten.exp_.default", [x], ["y"])
    assert cost(build, in_place).workspace_bytes == 0


def test_equal_work_is_measured_once(build: Builder) -> None:
    calls: list[tuple[str, int, int]] = []
    for name in "abcd":
        build.tensor(name, (32, 32))
    a, b, c = (build.tensor(name, (32, 32)) for name in "abc")
    build.operation("aten.mm.default", [a, b], ["b"], name="first")
    build.operation("aten.mm.default", [b, c], ["c"], name="second")
    build.operation("aten.tanh.default", [c], ["d"], name="third")

    measured = profile(build.graph(), CPU, {}, lambda *call: calls.append(call))

    targets = ["aten.mm.default", "aten.tanh.default"] * 2  # each at two moments
    assert calls == [(target, done, 4) for done, target in enumerate(targets)]
    assert measured.operations["first"] is measured.operations["second"]
    assert measured.operations["third"] != measured.operations["first"]


def test_signatures_tell_apart_what_costs_differently(build: Builder) -> None:
    build.tensor("y", (4, 8))
    variants = [
        build.operation("aten.sum.dim_IntList", [build.tensor("x", (4, 8)), (1,)], ["y"]),
        build.operation("aten.sum.dim_IntList", [build.tensor("x", (4, 8)), (0,)], ["y"]),
        build.operation("aten.sum.dim_IntList", [build.tensor("w", (8, 4)), (0,)], ["y"]),
        build.operation(
            "aten.sum.dim_IntList", [build.tensor("t", (4, 8), stride=(1, 4)), (0,)], ["y"]
        ),
        build.operation("aten.sum.dim_IntList", [build.tensor("i", (4, 8), "int64"), (0,)], ["y"]),
        build.operation(
            "aten.sum.dim_IntList",
            [build.tensor("i", (4, 8), "int64"), (0,)],
            ["y"],
            dtype=Literal("dtype", "float32"),
        ),
    ]
    assert len({signature(build.graph(), v) for v in variants}) == len(variants)


def test_random_operations_leave_the_global_stream(build: Builder) -> None:
    x = build.tensor("x", (64,))
    build.tensor("y", (64,))
    build.operation("aten.rand_like.default", [x], ["y"])
    build.operation("aten.bernoulli.default", [x], ["y"], name="wants probabilities")
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)

    measured = costs(build).operations

    assert torch.equal(torch.rand(3), expected)
    assert not measured["wants probabilities"].modelled


def test_the_users_tensors_are_not_written(build: Builder) -> None:
    ids = build.tensor("ids", (16,), "int64")
    build.tensor("y", (16,), "int64", storage="ids")
    build.operation("aten.add_.Scalar", [ids, 1], ["y"])
    users = torch.arange(16)
    costs(build, {"ids": users})
    assert torch.equal(users, torch.arange(16))


def test_the_users_integers_are_used(build: Builder) -> None:
    """Index 5 does not exist in a table of 4 rows: only the example's own values show it."""
    table, ids = build.tensor("table", (4, 8)), build.tensor("ids", (2,), "int64")
    build.tensor("y", (2, 8))
    build.operation("aten.embedding.default", [table, ids], ["y"], name="embedding")
    assert not costs(build).operations["embedding"].modelled
    refused = costs(build, {"ids": torch.tensor([0, 5])})
    assert refused.operations["embedding"].modelled


def test_what_an_embedding_bag_takes_depends_on_where_its_bags_begin(build: Builder) -> None:
    """Of empty bags, as zeros say, the gradient of a maximum has no rows to gather.

    Those of two embeddings are alike, and are made once.
    """
    table = build.tensor("table", (50, 64))
    build.tensor("ids", (512, 40), "int64")
    flat = build.tensor("flat", (512 * 40,), "int64", storage="ids")
    starts, d_e = build.tensor("starts", (512,), "int64"), build.tensor("d_e", (512, 64))
    build.tensor("e", (512, 64)), build.tensor("d_table", (50, 64))
    parts = [build.tensor(name, (512,), "int64") for name in ("bag", "size")]
    parts.append(build.tensor("rows", (512, 64), "int64"))
    build.tensor("others", (512,), "int64")
    build.operation("aten.arange.start_step", [0, 512 * 40, 40], ["others"])
    build.operation("aten.arange.start_step", [0, 512 * 40, 40], ["starts"])
    outputs = ["e", "bag", "size", "rows"]
    build.operation("aten._embedding_bag.default", [table, flat, starts, False, 2], outputs)
    args = [d_e, flat, starts, *parts, 50, False, 2, False, None]
    backward = build.operation("aten._embedding_bag_backward.default", args, ["d_table"])
    users = torch.arange(512 * 40).remainder(50).view(512, 40)
    workspace = costs(build, {"ids": users}).operations[backward.name].workspace_bytes
    assert workspace > 512 * 64 * 4


def test_integers_that_another_operation_refuses_are_zeros_there(build: Builder) -> None:
    x, table = build.tensor("x", (9,)), build.tensor("table", (4, 8))
    order = build.tensor("order", (9,), "int64")
    build.tensor("y", (9, 8))
    build.operation("aten.argsort.default", [x], ["order"])
    build.operation("aten.embedding.default", [table, order], ["y"], name="embedding")
    assert not costs(build).operations["embedding"].modelled


def test_a_result_that_lies_otherwise_than_traced_is_refused(build: Builder) -> None:
    """What reads it, a view or the draws of a dropout, goes by the layout of the trace."""
    x = build.tensor("x", (8, 4), stride=(1, 8))
    build.tensor("y", (8, 4))
    sine = build.operation("aten.sin.default", [x], ["y"])
    with pytest.raises(TraceError, match=r"aten\.sin\.default lays .* strides \(1, 8\).*\(4, 1\)"):
        cost(build, sine)


def test_a_result_that_lies_as_traced(build: Builder) -> None:
    x = build.tensor("x", (8, 4), stride=(1, 8))
    build.tensor("y", (8, 4), stride=(1, 8))
    assert cost(build, build.operation("aten.sin.default", [x], ["y"])).time_us > 0


def test_what_cannot_run_is_modelled(build: Builder) -> None:
    a, b = build.tensor("a", (64, 32)), build.tensor("b", (33, 64))
    build.tensor("y", (64, 64))
    broken = build.operation("aten.cat.default", [(a, b), 1], ["y"])

    measured = cost(build, broken)

    assert measured.modelled
    assert measured.time_us > 0
    assert measured.workspace_bytes == 0


def test_gradients_are_off(build: Builder) -> None:
    seen = []
    x = build.tensor("x", (4,))
    build.tensor("y", (4,))
    build.operation("aten.relu.default", [x], ["y"])
    profile(build.graph(), CPU, {}, lambda *_: seen.append(torch.is_grad_enabled()))
    assert seen == [False, False]  # each operation at two moments
    assert torch.is_grad_enabled()


def test_the_cpu_rounds_nothing(build: Builder) -> None:
    measured = costs(build)
    assert (measured.device, measured.alignment_bytes) == ("cpu", 1)


def test_a_disturbance_at_one_moment_is_not_measured(
    build: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = build.tensor("x", (4,))
    build.tensor("y", (4,))
    build.operation("aten.relu.default", [x], ["y"], name="relu")
    moments = iter((Time(9_000.0), Time(3.0)))
    for moment in ("time_warm", "time_again"):
        monkeypatch.setattr(f"remat_gen.capture.profile.profile.{moment}", lambda *_: next(moments))
    assert costs(build).operations["relu"].time_us == 3.0


def test_a_kernel_that_asserts_is_named(build: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed assertion on a GPU every call fails: nothing else can be tried."""

    def failing(*_: object) -> object:
        raise torch.AcceleratorError("CUDA error: device-side assert triggered\nCompile with ...")

    x = build.tensor("x", (8, 8))
    build.tensor("y", (8, 8))
    relu = build.operation("aten.relu.default", [x], ["y"])
    monkeypatch.setattr("remat_gen.capture.profile.profile.resolve", lambda _: failing)
    assert cost(build, relu).modelled  # the device still answers
    monkeypatch.setattr(type(kind_of(CPU)), "synchronise", failing)
    with pytest.raises(
        ProfileError, match=r"^aten\.relu\.default .*: CUDA error: [^\n]*triggered$"
    ):
        costs(build)


@pytest.mark.parametrize(("backend", "uncached"), [("cudaMallocAsync", ""), ("native", "1")])
def test_allocators_that_count_nothing_are_refused(
    backend: str, uncached: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: backend)
    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", uncached)
    with pytest.raises(UsageError, match="allocator"):
        kind_of("cuda").refuse_uncounted()
    kind_of(CPU).refuse_uncounted()
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "native")
    monkeypatch.delenv("PYTORCH_NO_CUDA_MEMORY_CACHING")
    kind_of("cuda").refuse_uncounted()
