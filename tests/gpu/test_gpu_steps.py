"""From end to end on a GPU: trace, measure, plan, run, compare. Skipped where there is none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from gpu_models import CONVOLUTION_LAYERS, LAYERS, MODELS
from torch.nn.attention import SDPBackend, sdpa_kernel

import remat_gen
from remat_gen.capture.device.absent import AbsentDevice
from remat_gen.capture.load.load import Loaded, load, load_fake
from remat_gen.capture.profile.calls import bind, resolve
from remat_gen.capture.profile.synthesize import Synthesizer
from remat_gen.capture.trace.trace import Traced, trace_loaded
from remat_gen.ir.graph import Tensor as Described
from remat_gen.ir.plan import read_plan
from remat_gen.review.verifying import verify_file
from remat_gen.verification.step import training_step

try:
    from simulated_gpu.peaks import peak_in_blocks
    from simulated_gpu.simulated_norms import install as with_cudnn_norms
except ModuleNotFoundError:  # a real one counts what is left over in its blocks as well
    peak_in_blocks = with_cudnn_norms = None

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
BLOCK_BYTES = 1 << 20  # the allocator leaves up to as much of a large block unused (kSmallSize)


@pytest.fixture(params=list(MODELS))
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a model's file."""
    path = tmp_path / "net.py"
    path.write_text(MODELS[request.param], encoding="utf-8")
    return path


def skip_without_kernels(name: str) -> None:
    """Skip a model whose kernels only a real GPU has."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key("aten::_fused_rms_norm", "CUDA")
    if "RMSNorm" in name and not has:
        pytest.skip("the simulated GPU has no kernel of RMSNorm")


def traced(text: str, folder: Path) -> Traced:
    path = folder / "net.py"
    path.write_text(text, encoding="utf-8")
    return trace_loaded(load(path, device="cuda"))


@pytest.mark.parametrize("budget", ["100%", "60%"])
def test_a_plan_keeps_its_promises(model: Path, budget: str) -> None:
    """Gradients on GPUs are equal up to what eager differs from itself, as `verify` judges."""
    made = remat_gen.generate(model, device="cuda", budget=budget, strategy="ogc")
    assert made.output is not None and made.plan.modelled is None
    assert made.plan.alignment_bytes == 512
    report = verify_file(made.output)
    assert report.ok, report.rows()
    assert report.planned_peak and report.planned_peak.peak_bytes <= made.plan.asked.budget_bytes
    if peak_in_blocks is not None:
        planned = load(made.output, device="cuda")
        found = peak_in_blocks(lambda: training_step(planned.model, planned.args, planned.kwargs))
        assert found == made.plan.predicted.peak_bytes
    if budget == "60%":
        _assert_the_allocator_sees_it(model, made.output, made.plan.asked.budget_bytes)


def _assert_the_allocator_sees_it(original: Path, planned: Path, budget_bytes: int) -> None:
    eager, ours = (_highest_bytes(load(path, device="cuda")) for path in (original, planned))
    large = 2 * sum(s > BLOCK_BYTES for s in _sizes(planned))
    assert ours <= budget_bytes + large * BLOCK_BYTES
    assert ours < eager


def _sizes(generated: Path) -> list[int]:
    plan = read_plan(generated.with_suffix(".plan.json"))
    return [nbytes for block in plan.blocks for nbytes in block.retained.values()]


def _highest_bytes(loaded: Loaded) -> int:
    """Return what `torch.cuda.max_memory_allocated` says of the second step, above the rest."""

    def step() -> None:
        training_step(loaded.model, loaded.args, loaded.kwargs)

    step()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def test_results_are_where_the_graph_says(model: Path) -> None:
    loaded = load(model, device="cuda")
    found = trace_loaded(loaded)
    synthesizer = Synthesizer(found.graph, found.examples)
    for operation in found.graph.operations:
        args, kwargs = bind(operation, synthesizer.inputs(operation))
        with torch.no_grad():
            made = resolve(operation.target)(*args, **kwargs)
        results = [made] if operation.single else list(made)
        for name, result in zip(operation.outputs, results, strict=True):
            if name and isinstance(result, torch.Tensor):
                tensor = found.graph.tensors[name]
                assert str(result.device) == tensor.device, f"{operation.target}: {name}"
                assert result.shape == tensor.shape and str(result.dtype)[6:] == tensor.dtype
                assert strides(result) == strides(tensor), f"{operation.target}: {name}"


def strides(tensor: torch.Tensor | Described) -> list[int]:
    """Return the strides that say where elements are: those of longer dimensions than one."""
    of = tensor.stride() if isinstance(tensor, torch.Tensor) else tensor.stride
    empty = 0 in tensor.shape
    return [] if empty else [s for n, s in zip(tensor.shape, of, strict=True) if n > 1]


def test_a_run_again_draws_the_same(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(MODELS["convolutions"], encoding="utf-8")
    made = remat_gen.generate(path, device="cuda", budget="100%", recompute=["drop*"])
    assert made.output is not None and made.plan.predicted.reruns >= CONVOLUTION_LAYERS
    assert "rerun_random(" in made.text and "torch.cuda.get_rng_state()" in made.text
    report = verify_file(made.output)
    assert report.ok, report.rows()


@pytest.mark.parametrize("name", ["attention, dropout", "attention, float32"])
def test_attention_keeps_its_seed_and_sums(name: str, tmp_path: Path) -> None:
    graph = traced(MODELS[name], tmp_path).graph
    forward = [
        o for o in graph.operations if "attention" in o.target and "backward" not in o.target
    ]
    backward = [o for o in graph.operations if "attention_backward" in o.target]
    assert len(forward) == len(backward) == LAYERS
    for operation in forward:
        assert operation.state is not None
        read = {s for b in backward for s in graph.reads(b)}
        assert len(read & set(graph.writes(operation))) >= 3  # result, log-sum-exps, seed


def test_the_kernel_that_eager_takes_is_pinned(tmp_path: Path) -> None:
    """It is chosen when the model is planned: a step asks nobody, and runs what was measured."""
    heads = torch.randn(2, 8, 32, 32, dtype=torch.bfloat16, device="cuda")
    backend = SDPBackend(torch._fused_sdp_choice(heads, heads, heads, is_causal=True))
    if backend is SDPBackend.MATH:
        pytest.skip("eager has no kernel for it here")
    path = tmp_path / "net.py"
    text = MODELS["attention"].replace("range(4)", "range(1)")
    path.write_text(text.replace("(4, 256", "(2, 32"), encoding="utf-8")
    made = remat_gen.generate(path, device="cuda", budget="70%", effort="quick")
    kernel = f"aten._scaled_dot_product_{backend.name.partition('_')[0].lower()}_attention"
    called = set(re.findall(r"aten\._scaled_dot_product_\w+(?=\.default)", made.text))
    assert called == {kernel, f"{kernel}_backward"}


def test_dropout_is_torchs_own(tmp_path: Path) -> None:
    graph = traced(MODELS["convolutions"], tmp_path).graph
    targets = [o.target for o in graph.operations]
    assert targets.count("aten.native_dropout.default") == CONVOLUTION_LAYERS
    assert not any(target.startswith("remat.dropout") for target in targets)


@pytest.mark.parametrize("name", ["attention, RMSNorm", "convolutions"])
def test_what_stands_for_a_gpu_is_traced_as_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without_kernels(name)
    if with_cudnn_norms is not None:
        with_cudnn_norms(monkeypatch)
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        here = traced(MODELS[name], tmp_path).graph  # on Hopper eager prefers cuDNN's attention
    elsewhere = trace_loaded(load_fake(tmp_path / "net.py", None, None, AbsentDevice("cuda"))).graph
    assert [o.target for o in elsewhere.operations] == [o.target for o in here.operations]
    for storage, other in zip(elsewhere.storages.values(), here.storages.values(), strict=True):
        assert storage.nbytes == other.nbytes or storage.name.endswith("_reserve")


@pytest.mark.parametrize("name", ["attention, dropout", "attention, RMSNorm", "convolutions"])
def test_a_modelled_plan_runs_on_the_gpu(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without_kernels(name)
    monkeypatch.setenv("SIMULATED_CUDNN_ATTENTION", "1")  # as what is planned for has
    if with_cudnn_norms is not None:
        with_cudnn_norms(monkeypatch)
    path = tmp_path / "net.py"
    path.write_text(MODELS[name], encoding="utf-8")
    made = remat_gen.generate(path, target="h200", budget="70%", effort="quick")
    assert made.output is not None
    report = verify_file(made.output)
    # The budget may be exceeded by the workspace of operations, which nobody has measured.
    wrong = [row for row in report.rows() if row.ok is False]
    assert all("budget" in (row.what, row.detail.partition(":")[0]) for row in wrong), wrong


def test_planning_leaves_the_generators_alone(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(MODELS["convolutions"], encoding="utf-8")
    torch.cuda.manual_seed(5)
    before = torch.cuda.get_rng_state()
    remat_gen.generate(path, device="cuda", budget="80%", effort="quick")
    assert torch.equal(torch.cuda.get_rng_state(), before)
