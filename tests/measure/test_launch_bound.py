"""Where the host launches more slowly than the device works, a step takes the host's time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from measure_graphs import Builder

import remat_gen
from remat_gen.api import Generated
from remat_gen.capture.device.cuda import CUDA
from remat_gen.capture.device.kind import Time
from remat_gen.capture.profile import profile
from remat_gen.capture.profile.in_step import Turns
from remat_gen.capture.profile.synthesize import Fill, fills_for
from remat_gen.compile import race
from remat_gen.ir.costs import Cost, Costs
from remat_gen.ir.errors import UsageError
from remat_gen.ir.graph import Graph, Operation
from remat_gen.problem.step_problem import problem_of
from remat_gen.show.summary import summary_lines

GPU = torch.device("cuda")
MODEL = """
import torch
from torch import Tensor, nn

class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).tanh().sin()
        return x.sum()

def build_model() -> nn.Module:
    return Net()

def example_inputs() -> tuple[Tensor]:
    return (torch.randn(64, 32),)
"""
Price = Callable[[Operation], Cost]


@pytest.fixture
def generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Generated]:
    """Plan the model at half of eager's peak, with prices as they are said."""
    path = tmp_path / "net.py"
    path.write_text(MODEL, encoding="utf-8")

    def plan(price: Price, **options: Any) -> Generated:
        def priced(graph: Graph, *_: object) -> Costs:
            return Costs("cpu", {o.name: price(o) for o in graph.operations})

        monkeypatch.setattr(profile, "profile", priced)
        return remat_gen.generate(path, budget="55%", **options)

    return plan


def test_the_larger_sum_counts() -> None:
    build = Builder()
    x = build.tensor("x", (4,))
    y = build.tensor("y", (4,))
    build.operation("aten.relu.default", [x], ["y"], name="small")
    build.tensor("z", (4,))
    build.operation("aten.mm.default", [y, y], ["z"], name="large")

    def times(large_us: float) -> Mapping[str, float]:
        costs = {"small": Cost(1.0, 0, host_us=5.0), "large": Cost(large_us, 0, host_us=6.0)}
        problem = problem_of(build.graph(), Costs("gpu", costs))
        return {operation.name: operation.time_us for operation in problem.operations}

    assert times(large_us=9.0) == {"small": 5.0, "large": 6.0}  # 11 of launches, 10 of work
    assert times(large_us=11.0) == {"small": 1.0, "large": 11.0}


def test_a_plan_is_told_to_be_bound_by_launches(generated: Callable[..., Generated]) -> None:
    made = generated(lambda _: Cost(1.0, 0, host_us=4.0))
    predicted = made.plan.predicted
    operations = len(made.plan.costs)
    assert predicted.eager_time_us == 4.0 * operations
    assert predicted.reruns and predicted.time_us == 4.0 * (operations + predicted.reruns)
    (line,) = (line for line in summary_lines(made) if line.startswith("launches"))
    assert f"{0.004 * operations:.1f} ms for what keeps the device busy for" in line


def test_a_device_that_works_longer_says_nothing(generated: Callable[..., Generated]) -> None:
    made = generated(lambda _: Cost(4.0, 0, host_us=1.0))
    assert made.plan.predicted.eager_time_us == 4.0 * len(made.plan.costs)
    assert not any(line.startswith("launches") for line in summary_lines(made))


def test_re_runs_that_are_long_on_the_host_are_counted(
    generated: Callable[..., Generated],
) -> None:
    """Eager waits for the device by a hair; the re-runs add more to the host."""

    def price(operation: Operation) -> Cost:
        cheap = operation.target in ("aten.tanh.default", "aten.sin.default")
        return Cost(0.1, 0, host_us=9.0) if cheap else Cost(9.0, 0, host_us=1.0)

    made = generated(price)
    predicted, costs = made.plan.predicted, made.plan.measured()
    assert not costs.launch_bound and predicted.eager_time_us == pytest.approx(costs.device_us)
    assert predicted.reruns
    assert predicted.time_us > costs.host_us + 9.0 * predicted.reruns - 1e-6


def test_a_captured_step_takes_the_devices_time(generated: Callable[..., Generated]) -> None:
    """What the host takes long for is launched with all else, and may be run again."""

    def price(operation: Operation) -> Cost:
        long_for_host = operation.target == "aten.sin.default"
        return Cost(1.0, 0, host_us=99.0) if long_for_host else Cost(3.0, 0, host_us=9.0)

    def again(made: Generated) -> set[str]:
        runs = [step for segment in made.plan.schedule for step in segment.steps]
        return {step for step in runs if runs.count(step) > 1 and step.startswith("run ")}

    launched, captured = generated(price), generated(price, captured=True)
    assert launched.plan.measured().launch_bound and not captured.plan.measured().launch_bound
    assert again(captured) and again(captured) != again(launched)
    predicted, costs = captured.plan.predicted, captured.plan.costs
    assert predicted.eager_time_us == pytest.approx(sum(c.time_us for c in costs.values()))
    assert predicted.time_us < costs[next(iter(costs))].host_us * len(costs)
    (line,) = (line for line in summary_lines(captured) if line.startswith("captured"))
    assert "capture_step" in line
    assert captured.plan.asked.captured and captured.plan.asked.command.endswith(
        "--captured -o net_remat.py"
    )


def test_the_costs_of_a_plan_serve_steps_that_are_captured(
    generated: Callable[..., Generated], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = generated(lambda _: Cost(1.0, 0, host_us=4.0))
    second = generated(lambda _: Cost(7.0, 0, host_us=7.0), captured=True)
    assert second.costs_reused and second.plan.costs == first.plan.costs
    assert second.plan.predicted.eager_time_us == 1.0 * len(first.plan.costs)


def test_no_cuda_graph_sends_values_to_the_host(generated: Callable[..., Generated]) -> None:
    with pytest.raises(UsageError, match="--captured and --offload exclude each other"):
        generated(lambda _: Cost(1.0, 0), captured=True, offload=True)


class Events:
    """What the host and the device do, in order: the host takes 7 µs a call, the device 3."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns, self.slept = 0, list[int]()
        monkeypatch.setattr("time.perf_counter_ns", lambda: self.now_ns)
        monkeypatch.setattr(torch.cuda, "_sleep", self.slept.append)
        monkeypatch.setattr(torch.cuda, "Event", lambda **_: self)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
        monkeypatch.setattr(torch.cuda, "device", lambda _: pytest.MonkeyPatch.context())

    def record(self) -> None:
        self.now_ns += 100_000  # is not the call's

    def elapsed_time(self, _: Events) -> float:
        return 0.003

    def call(self) -> None:
        self.now_ns += 7_000


@pytest.mark.parametrize("once_us, cycles", [(10.0, 200_000), (400.0, 1_600_000)])
def test_a_gpu_has_times_of_both(
    once_us: float, cycles: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = Events(monkeypatch)
    times = CUDA.times(events.call, GPU, 3, lambda: None, once_us)
    assert [(round(t.device_us, 6), t.host_us) for t in times] == 3 * [(3.0, 7.0)]
    assert events.slept == 3 * [cycles]


@pytest.mark.parametrize("cache, beyond", [(60 << 20, 240 << 20), (4 << 20, 64 << 20)])
def test_copies_are_more_than_the_l2_cache(
    cache: int, beyond: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = type("Properties", (), {"L2_cache_size": cache})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    assert CUDA.beyond_caches_bytes(GPU) == beyond


class Raced:
    """A kind of device that says how long what it is given takes, of device and host."""

    is_accelerator = True

    def __init__(self, times: Mapping[object, Time]) -> None:
        self.times_of, self.called = times, list[object]()

    def times(
        self, turns: Turns, _device: object, repeats: int, prepare: Callable[[], object], _us: float
    ) -> list[Time]:
        prepare()
        turns()
        return repeats * [self.times_of[self.called[-1]]]


@pytest.mark.parametrize("by_host, expected", [(False, (5.0, 2.0)), (True, (3.0, 8.0))])
def test_parts_are_raced_on_what_binds(
    by_host: bool, expected: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = Raced({"apart": Time(5.0, 3.0), "fused": Time(2.0, 8.0)})
    monkeypatch.setattr(race, "kind_of", lambda _: kind)
    given = [race.Given((), (), None)] * 2
    apart, fused = (partial(kind.called.append, name) for name in ("apart", "fused"))
    assert race.Race(given, apart, fused, fused).times_us(GPU, by_host=by_host) == expected


def test_a_kernel_that_may_assert_gets_one_kind_of_numbers() -> None:
    assert fills_for(GPU) == (Fill.PROBABILITY,)
    assert fills_for(torch.device("cpu")) == tuple(Fill)


def test_on_a_cpu_no_step_is_captured_and_that_is_said(generated: Callable[..., Generated]) -> None:
    made = generated(lambda _: Cost(4.0, 0), captured=True)
    assert "captured    nothing: CUDA graphs are a GPU's" in repr(made)
