"""Tensors without values on the CPU that stand for a GPU's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from tracing import source

from remat_gen.capture.as_eager.attention import attention
from remat_gen.capture.device.absent import AbsentDevice
from remat_gen.capture.load.load import load_fake
from remat_gen.capture.load.without_values import without_values
from remat_gen.capture.trace.trace import Traced, trace_loaded
from remat_gen.ir.costs import Cost, Costs
from remat_gen.ir.errors import TraceError
from remat_gen.ir.graph import Graph, Kind, Literal
from remat_gen.problem.step_problem import problem_of

INIT = "self.lin = nn.Linear(16, 16)\nself.drop = nn.Dropout(0.25)"
FORWARD = (
    "mask = torch.ones(x.shape, device=x.device)\n"
    "return self.drop(self.lin(x) * mask).square().sum()"
)


GPU, HOPPER = AbsentDevice("cuda"), AbsentDevice("cuda", (9, 0))
BLACKWELL, ADA = AbsentDevice("cuda", (10, 0)), AbsentDevice("cuda", (8, 9))


def on_gpu(folder: Path, text: str, device: AbsentDevice = GPU) -> Traced:
    path = folder / "net.py"
    path.write_text(text, encoding="utf-8")
    return trace_loaded(load_fake(path, None, None, device))


def test_everything_is_said_to_be_on_the_gpu(tmp_path: Path) -> None:
    traced = on_gpu(tmp_path, source(INIT, FORWARD, "(torch.randn(4, 16),)"))
    graph = traced.graph
    states = {o.state for o in graph.operations if o.state}
    assert len(states) == 1
    for name, tensor in graph.tensors.items():
        assert tensor.device == ("cpu" if name in states else "cuda:0"), name
    for state in states:  # a seed and an offset, kept on the CPU
        assert graph.storages[state].nbytes == 16 and graph.tensors[state].shape == (16,)
    devices = {v.text for o in graph.operations for _, v in o.kwargs if isinstance(v, Literal)}
    assert "cpu" not in devices and "cuda:0" in devices
    assert {leaf.value.device.type for leaf in traced.call.leaves} == {"cuda"}


def test_dropout_is_the_kernel_of_gpus(tmp_path: Path) -> None:
    graph = on_gpu(tmp_path, source(INIT, FORWARD, "(torch.randn(4, 16),)")).graph
    targets = [o.target for o in graph.operations]
    assert "aten.native_dropout.default" in targets
    assert not any("dropout_mask" in target for target in targets)


HEADS = "(torch.randn(2, 4, 24, {size}, dtype=torch.{dtype}, requires_grad=True),)"


def kernels(folder: Path, call: str, inputs: str, device: AbsentDevice = GPU) -> list[str]:
    text = source("self.unused = nn.Linear(1, 1)", f"return {call}.float().sum()", inputs)
    return attention_of(on_gpu(folder, text, device).graph)


def attention_of(graph: Graph) -> list[str]:
    return [
        o.target.removeprefix("aten._scaled_dot_product_").removesuffix(".default")
        for o in graph.operations
        if "attention" in o.target
    ]


@pytest.mark.parametrize(
    ("call", "dtype", "size", "kernel"),
    [
        ("(x, x, x, is_causal=True)", "bfloat16", 16, "flash"),
        ("(x, x, x)", "float16", 20, "flash"),  # padded to 24
        ("(x, x[:, :2], x[:, :2], enable_gqa=True)", "bfloat16", 16, "flash"),
        ("(x, x, x)", "float32", 16, "efficient"),
        ("(x, x, x, torch.ones(24, 24, dtype=torch.bool).tril())", "bfloat16", 16, "efficient"),
        ("(x, x, x)", "bfloat16", 264, "efficient"),
        ("(x[:, :, :8], x, x)", "bfloat16", 16, "flash"),
        ("(x[:, :, :8], x, x, is_causal=True)", "bfloat16", 16, "efficient"),
    ],
)
def test_which_kernel_runs_attention(
    call: str, dtype: str, size: int, kernel: str, tmp_path: Path
) -> None:
    inputs = HEADS.format(dtype=dtype, size=size)
    found = kernels(tmp_path, f"F.scaled_dot_product_attention{call}", inputs)
    assert found == [f"{kernel}_attention", f"{kernel}_attention_backward"]


CAUSAL = "(x, x, x, is_causal=True)"


@pytest.mark.parametrize(
    ("call", "dtype", "size", "device", "kernel"),
    [
        (CAUSAL, "bfloat16", 16, HOPPER, "cudnn"),
        (CAUSAL, "float16", 16, BLACKWELL, "cudnn"),
        (CAUSAL, "bfloat16", 16, AbsentDevice("cuda", (8, 0)), "flash"),
        (CAUSAL, "bfloat16", 16, AbsentDevice("cuda", (12, 0)), "flash"),
        (CAUSAL, "float32", 16, HOPPER, "efficient"),
        ("(x, x, x, torch.ones(24, 24, dtype=torch.bool).tril())", "bfloat16", 16, HOPPER, "cudnn"),
        ("(x, x[:, :2], x[:, :2], enable_gqa=True)", "bfloat16", 16, HOPPER, "cudnn"),
        ("(x[:, :, :8], x, x, is_causal=True)", "bfloat16", 16, HOPPER, "cudnn"),
        (CAUSAL, "bfloat16", 20, HOPPER, "flash"),  # no multiple of 8
        (CAUSAL, "bfloat16", 256, HOPPER, "cudnn"),
        (CAUSAL, "bfloat16", 256, BLACKWELL, "flash"),  # larger than 128
        ("(x, x[:, :, :1], x[:, :, :1])", "bfloat16", 16, HOPPER, "flash"),
        ("(x[:, :, :1], x, x, dropout_p=0.1)", "bfloat16", 16, HOPPER, "flash"),
        ("(x[:, :, :1], x, x)", "bfloat16", 16, HOPPER, "cudnn"),
        (CAUSAL, "bfloat16", 224, HOPPER, "cudnn"),
        (CAUSAL, "bfloat16", 224, ADA, "efficient"),  # no shared memory for its gradient
        ("(x, x, x, dropout_p=0.1)", "bfloat16", 232, ADA, "efficient"),
        (CAUSAL, "bfloat16", 232, ADA, "flash"),
    ],
)
def test_which_kernel_a_gpu_prefers(
    call: str, dtype: str, size: int, device: AbsentDevice, kernel: str, tmp_path: Path
) -> None:
    inputs = HEADS.format(dtype=dtype, size=size)
    found = kernels(tmp_path, f"F.scaled_dot_product_attention{call}", inputs, device)
    assert found == [f"{kernel}_attention", f"{kernel}_attention_backward"]


@pytest.mark.parametrize(
    ("switched_off", "kernel"),
    [
        ("torch.backends.cuda.enable_cudnn_sdp", "flash"),
        ("torch.backends.cuda.enable_flash_sdp", "cudnn"),
        ("torch.use_deterministic_algorithms", "flash"),
    ],
)
def test_what_is_switched_off_is_not_taken(
    switched_off: str, kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = "deterministic" in switched_off
    before = {"cudnn": torch.backends.cuda.cudnn_sdp_enabled(), "flash": True}
    call = f"F.scaled_dot_product_attention{CAUSAL}"
    text = source("self.unused = nn.Linear(1, 1)", f"return {call}.float().sum()", HEADS)
    text = text.format(dtype="bfloat16", size=16) + f"\n\n{switched_off}({asked})\n"
    try:
        found = attention_of(on_gpu(tmp_path, text, HOPPER).graph)
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before["cudnn"])
        torch.backends.cuda.enable_flash_sdp(before["flash"])
        torch.use_deterministic_algorithms(False)
    assert found == [f"{kernel}_attention", f"{kernel}_attention_backward"]


def test_a_kernel_is_asked_for_in_forward(tmp_path: Path) -> None:
    forward = (
        "backends = torch.nn.attention.SDPBackend\n"
        "with torch.nn.attention.sdpa_kernel([backends.EFFICIENT_ATTENTION, backends.MATH]):\n"
        f"    return F.scaled_dot_product_attention{CAUSAL}.float().sum()"
    )
    inputs = HEADS.format(dtype="bfloat16", size=16)
    text = source("self.unused = nn.Linear(1, 1)", forward, inputs)
    found = attention_of(on_gpu(tmp_path, text, HOPPER).graph)
    assert found == ["efficient_attention", "efficient_attention_backward"]


def test_the_seed_of_cudnns_attention_is_on_the_gpu(tmp_path: Path) -> None:
    call = "F.scaled_dot_product_attention(x, x, x, dropout_p=0.1)"
    text = source(
        "self.unused = nn.Linear(1, 1)",
        f"return {call}.float().sum()",
        HEADS.format(dtype="bfloat16", size=16),
    )
    graph = on_gpu(tmp_path, text, HOPPER).graph
    (forward,) = (o for o in graph.operations if o.target.endswith("cudnn_attention.default"))
    assert forward.state is not None
    out, sums, seed, offset = (graph.tensors[o] for o in forward.outputs if o)
    assert (seed.device, offset.device, seed.dtype) == ("cuda:0", "cuda:0", "int64")
    assert sums.shape == (2, 4, 24, 1) and sums.dtype == "float32"
    assert out.stride == graph.tensors["x"].stride  # laid out as the queries are


@pytest.mark.parametrize(
    ("call", "dtype", "size"),
    [
        ("(x, x, x)", "float64", 16),
        ("(x, x, x)", "float32", 15),
        ("(x, x[:1], x[:1])", "bfloat16", 16),  # keys for the whole batch
        ("(x.mT, x.mT, x.mT)", "bfloat16", 24),  # heads in columns, as in many U-Nets
        ("(x.mT, x.mT, x.mT)", "float32", 24),
        ("(x, x, x, x.new_zeros(24, 1).expand(24, 24))", "float32", 16),
    ],
)
def test_plain_arithmetic_where_no_kernel_is(
    call: str, dtype: str, size: int, tmp_path: Path
) -> None:
    inputs = HEADS.format(dtype=dtype, size=size)
    assert kernels(tmp_path, f"F.scaled_dot_product_attention{call}", inputs) == []


def test_who_shares_heads_of_keys(tmp_path: Path) -> None:
    """The memory-efficient kernel does from torch 2.14 on, as `F`'s own description says."""
    call = "F.scaled_dot_product_attention(x, x[:, :2], x[:, :2], enable_gqa=True)"
    does = "Memory-efficient attention also supports" in str(F.scaled_dot_product_attention.__doc__)
    found = kernels(tmp_path, call, HEADS.format(dtype="float32", size=16))
    assert found == ["efficient_attention", "efficient_attention_backward"] * does


def test_plain_arithmetic_is_attention() -> None:
    """The kernels of GPUs do not run here; what stands for the rest does."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 3, 9, 5, dtype=torch.float64) for _ in range(3))
    mask = torch.ones(9, 9, dtype=torch.bool).tril()
    found = attention(query, key, value, mask, scale=0.3, device=GPU)
    wanted = F.scaled_dot_product_attention(query, key, value, mask, scale=0.3)
    # the two sum up in another order: rounding of float64
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def test_random_attention_keeps_its_generator_state(tmp_path: Path) -> None:
    text = source(
        "self.unused = nn.Linear(1, 1)",
        "return F.scaled_dot_product_attention(x, x, x, dropout_p=0.1).float().sum()",
        HEADS.format(dtype="bfloat16", size=16),
    )
    graph = on_gpu(tmp_path, text).graph
    (flash,) = (o for o in graph.operations if o.target.endswith("flash_attention.default"))
    assert flash.state is not None
    backward = next(o for o in graph.operations if "attention_backward" in o.target)
    read = [graph.storages[name] for name in graph.reads(backward)]
    assert sum(s.nbytes == 16 and s.kind is Kind.ACTIVATION for s in read) == 1  # the seed


def test_fakes_change_their_dtype_and_stay_tied() -> None:
    with without_values():
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.BatchNorm1d(4))
        model[1].weight = model[0].weight
        before = model[0].weight
        model = model.to(torch.bfloat16)
        assert model[0].weight is model[1].weight is before
        assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
        assert model[2].running_mean.dtype is torch.bfloat16
        assert all(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize(
    "init",
    [
        "self.drop = nn.Dropout(torch.linspace(0, 0.5, 3)[1].item())\nself.factor = 2.0",
        "self.drop = nn.Dropout(0.25)\nself.factor = torch.tensor([1.0, 2.0] * 8)",
    ],
    ids=["a number is read", "a constant"],
)
def test_what_needs_values_is_built_with_them(init: str, tmp_path: Path) -> None:
    """It is planned like any other: the values are taken away, but those that are traced."""
    forward = "return self.drop(self.lin(x) * self.factor).square().sum()"
    text = source(f"self.lin = nn.Linear(16, 16)\n{init}", forward, "(torch.randn(4, 16),)")
    path = tmp_path / "net.py"
    path.write_text(text, encoding="utf-8")
    loaded = load_fake(path, None, None, AbsentDevice("cuda"))
    assert all(isinstance(p, FakeTensor) for p in loaded.model.parameters())
    graph = trace_loaded(loaded).graph
    (dropout,) = (o for o in graph.operations if o.target == "aten.native_dropout.default")
    assert 0.25 in dropout.args
    numbers = [o.args[0] for o in graph.operations if o.target == "remat.constant"]
    assert set(numbers) == ({(1.0, 2.0) * 8} if "tensor([" in init else set())


def test_what_a_step_has_on_the_host_takes_no_memory_of_the_gpu(tmp_path: Path) -> None:
    """The efficient kernel's seed and offset, and the generator's state."""
    text = source(
        "self.lin = nn.Linear(16, 16)",
        "x = self.lin(x)\nreturn F.scaled_dot_product_attention(x, x, x, dropout_p=0.1).sum()",
        "(torch.randn(2, 4, 24, 16),)",
    )
    graph = on_gpu(tmp_path, text).graph
    costs = {o.name: Cost(1.0, 0) for o in graph.operations}
    problem = problem_of(graph, Costs("cuda", costs, alignment_bytes=512))
    on = {t.storage: t.device for t in graph.tensors.values()}
    host = [value for value in problem.values if on[value.name] == "cpu"]
    assert len(host) == 3 and all(graph.storages[value.name].nbytes for value in host)
    assert {value.nbytes for value in host} == {0}
    assert all(value.nbytes >= 512 for value in problem.values if value not in host)


@pytest.mark.limit(
    "`nn.LSTM`, `nn.GRU`, `nn.RNN` for a GPU that is not there (`--target`)",
    "refused with the module's name; plan on that GPU, or the rest in a module of its own",
)
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_of_a_target_are_refused(kind: str, tmp_path: Path) -> None:
    text = source(
        f"self.rnn = nn.{kind}(16, 16)", "return self.rnn(x)[0].sum()", "(torch.randn(4, 16),)"
    )
    with pytest.raises(TraceError, match=rf"^rnn is an nn\.{kind}, which cuDNN runs"):
        on_gpu(tmp_path, text)
