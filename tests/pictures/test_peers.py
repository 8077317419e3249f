"""What people use, as schedules: torch's own partitioner on our graph decides as on torch's."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from torch._functorch import config
from torch._functorch._aot_autograd.descriptors import (
    BufferAOTInput,
    ParamAOTInput,
    PlainAOTOutput,
)
from torch._functorch.partitioners import min_cut_rematerialization_partition

from remat_gen.capture.as_eager.draws import compares_53_bits
from remat_gen.capture.fx.storages import is_getitem, is_view
from remat_gen.capture.load.load import Loaded, load
from remat_gen.capture.trace.joint import trace_joint
from remat_gen.capture.trace.trace import Traced, trace
from remat_gen.ir.costs import Cost, Costs
from remat_gen.ir.graph import Graph
from remat_gen.problem.step_problem import problem_of
from remat_gen.solver.contest.subject import Subject, subject_of
from remat_gen.solver.solve import Solver
from remat_gen.trade_off.baselines import in_one_backward, layered_peers
from remat_gen.trade_off.torch_baselines import RATIOS, Partitioner, compiled_peers

SMALL = Path(__file__).parents[1] / "cli" / "models" / "small.py"
OURS_ONLY = {"aten.clone.default", "aten.detach.default"}  # how outputs leave our trace


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load(SMALL, None, None, "cpu")


@pytest.fixture(scope="module")
def traced(loaded: Loaded) -> Traced:
    return trace(loaded.model, loaded.args, loaded.kwargs, loaded.path)


@pytest.fixture(scope="module")
def subject(traced: Traced) -> Subject:
    costs = {operation.name: Cost(1.0, 0) for operation in traced.graph.operations}
    return subject_of(problem_of(traced.graph, Costs("cpu", costs)))


def torchs_backward(loaded: Loaded, ratio: float) -> Counter[str]:
    """Return the operators of the backward that torch partitions from its own joint graph."""
    module = trace_joint(loaded.model, loaded.args, loaded.kwargs, frozenset({0})).graph_module
    placeholders = list(module.graph.find_nodes(op="placeholder"))
    kinds = ParamAOTInput | BufferAOTInput
    static = [i for i, node in enumerate(placeholders) if isinstance(node.meta["desc"], kinds)]
    (output,) = module.graph.find_nodes(op="output")
    forward = sum(isinstance(desc, PlainAOTOutput) for desc in output.meta["desc"])
    with config.patch(activation_memory_budget=ratio, cse=False):
        _, backward = min_cut_rematerialization_partition(
            module, None, num_fwd_outputs=forward, static_lifetime_input_indices=static
        )
    nodes = [n for n in backward.graph.nodes if n.op == "call_function"]
    return Counter(str(n.target) for n in nodes if not is_view(n) and not is_getitem(n))


def our_backward(graph: Graph, ratio: float) -> Counter[str]:
    runs = Partitioner(graph).backward_runs(ratio)
    assert runs is not None
    return Counter(graph.operations[p].target for p in runs)


@pytest.mark.parametrize("ratio", RATIOS)
def test_the_partition_is_torchs_own(loaded: Loaded, traced: Traced, ratio: float) -> None:
    theirs, ours = torchs_backward(loaded, ratio), our_backward(traced.graph, ratio)
    for name in OURS_ONLY:
        theirs.pop(name, None)
        ours.pop(name, None)
    assert ours == theirs


def test_less_budget_runs_more_again(traced: Traced, subject: Subject) -> None:
    peers = list(compiled_peers(traced.graph, subject))
    counts = [len(peer.replay.reruns) for peer in peers]
    assert counts == sorted(counts) and counts[-1] > counts[0]
    assert [peer.ratio for peer in peers] == sorted((p.ratio for p in peers), reverse=True)


def test_one_backward_holds_all_gradients(traced: Traced, subject: Subject) -> None:
    """With nothing run again its peak is at least eager's, whose blocks let gradients go."""
    problem = subject.problem
    backward = list(range(problem.forward_count, len(problem.operations)))
    whole = in_one_backward(subject, backward)
    eager = subject.judge(subject.plain())[1]
    assert whole and whole.time_us == eager.time_us and not whole.reruns
    assert whole.peak_bytes >= eager.peak_bytes
    assert in_one_backward(subject, backward[1:]) == whole  # what is left out runs first


def test_checkpoints_are_those_of_the_strategy(subject: Subject) -> None:
    eager, every, second = layered_peers(subject)
    budget = eager.replay.peak_bytes
    assert every.replay == Solver(subject.problem, "per-layer").solve(budget).replay
    assert not eager.replay.reruns
    assert 0 < len(second.replay.reruns) < len(every.replay.reruns)


def test_masks_that_are_drawn_as_integers(tmp_path: Path) -> None:
    """Whether torch compares 53 bits is asked once, and not of fake tensors."""
    path = tmp_path / "dropped.py"
    path.write_text(
        "import torch\nfrom torch import nn\n\n\ndef build_model():\n"
        "    return nn.Sequential(nn.Linear(8, 256), nn.Dropout(0.1), nn.Linear(256, 1))\n\n\n"
        "def example_inputs():\n    return (torch.randn(512, 8),)\n"
    )
    loaded = load(path, None, None, "cpu")
    graph = trace(loaded.model, loaded.args, loaded.kwargs, path).graph
    compares_53_bits.cache_clear()
    assert Partitioner(graph).backward_runs(0.5)
