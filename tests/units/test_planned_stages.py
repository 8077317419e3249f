"""Stages of a pipeline, each planned for its device: PyTorch's order, its memory, eager's bits."""

from __future__ import annotations

import json
import shutil
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from planned_units import free_port, modelled
from torch import distributed as dist
from torch import multiprocessing as mp
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining import schedules as torch_schedules

import remat_gen
from remat_gen.cli.app import main
from remat_gen.pipelined.device_memory import (
    StageEnds,
    StageNeed,
    held_by_pipeline,
    highest_need,
)
from remat_gen.pipelined.micro_batch_order import Pipeline, PipelineSchedule, make_pipeline
from remat_gen.pipelined.planning_stages import PlannedStages
from remat_gen.pipelined.stages_text import stages_lines
from remat_gen.verification.peak import activation_peak

EXAMPLES = Path(__file__).parents[2] / "examples" / "distributed"
MICRO = 4
STREAM = 4 * 64 * 64 * 4  # bytes of what one stage of the example hands to the next
ASKED = {"GPipe": (2, "4MB"), "1F1B": (2, "4MB"), "Interleaved1F1B": (4, "7MB")}


@pytest.mark.parametrize("devices", [1, 2, 3, 4])
@pytest.mark.parametrize("micro", [4, 8, 12])
@pytest.mark.parametrize("each", [1, 2, 3])
def test_the_order_is_that_of_pytorch(devices: int, micro: int, each: int) -> None:
    kinds = [("Interleaved1F1B", torch_schedules.ScheduleInterleaved1F1B)]
    if each == 1:
        kinds += [
            ("1F1B", torch_schedules.Schedule1F1B),
            ("GPipe", torch_schedules.ScheduleGPipe),
        ]
    for name, kind in kinds:
        rounds = max(1, micro // devices)
        if micro % rounds:
            continue
        theirs: Any = object.__new__(kind)
        theirs._n_microbatches = micro
        theirs._num_stages = theirs.pp_group_size = devices
        theirs.n_local_stages, theirs.microbatches_per_round = each, micro // rounds
        ours = make_pipeline(name, each * devices, micro, devices)
        for device in range(devices):
            if name == "Interleaved1F1B":
                order = theirs._calculate_single_rank_operations(device)
            else:
                order = theirs._get_pipeline_order()[device]
            compute = {torch_schedules.FORWARD: False, torch_schedules.FULL_BACKWARD: True}
            wanted = [
                (a.stage_index, compute[a.computation_type])
                for a in order
                if a is not None and a.computation_type in compute
            ]
            assert ours.order(device) == wanted


@pytest.mark.parametrize(("stages", "micro"), [(1, 1), (2, 4), (4, 4), (4, 9)])
def test_how_many_are_in_flight(stages: int, micro: int) -> None:
    pipes = {kind: Pipeline(kind, stages, stages, micro) for kind in [*PipelineSchedule][:2]}
    for stage in range(stages):
        assert pipes[PipelineSchedule.GPIPE].in_flight(stage) == micro
        assert pipes[PipelineSchedule.ONE_F_ONE_B].in_flight(stage) == min(micro, stages - stage)


def test_a_device_needs_what_its_order_holds() -> None:
    pipeline = make_pipeline("1F1B", 3, 5)
    needs = {stage: StageNeed(100, 10) for stage in range(3)}
    ends = {stage: StageEnds(3, 4) for stage in range(3)}
    assert [highest_need(pipeline, s, {s: needs[s]}, ends) for s in range(3)] == [120, 110, 100]
    # received both ways by 5 micro-batches, a gradient on its way; 4 results that are not in flight
    held = [held_by_pipeline(pipeline, s, {s: ends[s]}) for s in range(3)]
    assert held == [5 * 4, 5 * 7 + 3, 5 * 3 + 3 + 4 * 4]
    # results of 400 bytes are joined at the end, where nothing is in flight: 5 beside 5
    large = {2: StageEnds(3, 400)}
    total = held_by_pipeline(pipeline, 2, large) + highest_need(pipeline, 2, needs, large)
    assert total - (5 * 3 + 3) == 2 * 5 * 400


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("stages")
    shutil.copy(EXAMPLES / "gpt.py", place)
    return place


@pytest.fixture(scope="module")
def planned(folder: Path) -> dict[str, PlannedStages]:
    with mock.patch("remat_gen.capture.profile.profile.profile", modelled):
        return {
            name: remat_gen.generate_stages(
                folder / "gpt.py",
                stages=stages,
                devices=2,
                micro_batches=MICRO,
                schedule=name,
                budget=budget,
                strategy="ogc",
                output=folder / f"{name.lower()}_{{stage}}.py",
            )
            for name, (stages, budget) in ASKED.items()
        }


def test_every_stage_is_a_module_of_its_own(planned: dict[str, PlannedStages]) -> None:
    made = planned["1F1B"].stages
    command = made[1].plan.asked.command
    assert "--model 'build_stage(1, 2)' --inputs 'stage_inputs(1, 2)'" in command
    assert [one.plan.asked.in_flight for one in made] == [2, 1]
    assert any(one.plan.predicted.reruns for one in made)
    for one in made:
        assert one.output is not None and not remat_gen.check(one.output).stale
        report = remat_gen.verify(one.output)
        assert report.ok and report.planned_peak is not None
        assert report.planned_peak.peak_bytes == one.plan.predicted.peak_bytes
    said = stages_lines(planned["1F1B"])
    assert said[0].startswith("device 0: ") and said[-1] == "written: 1f1b_0.py, 1f1b_1.py"


@pytest.mark.alone
def test_devices_stay_within_their_memory(folder: Path, planned: dict[str, PlannedStages]) -> None:
    runs = [
        (schedule, module, ASKED[schedule][0])
        for schedule in ASKED
        for module in ("gpt", f"{schedule.lower()}_{{stage}}")
    ]
    mp.spawn(_run_all, (str(folder), runs, [free_port() for _ in runs]), nprocs=2)
    for rank in range(2):
        found = torch.load(folder / f"{rank}.pt")
        for schedule in ASKED:
            eager, ours = (found[s, m] for s, m, _ in runs if s == schedule)
            pairs = list(zip(eager["gradients"], ours["gradients"], strict=True))
            assert pairs and all(torch.equal(a, b) for a, b in pairs), schedule
            device = planned[schedule].devices[rank]
            assert ours["bytes"] <= device.peak_bytes <= device.limit_bytes, schedule
            assert ours["bytes"] <= eager["bytes"]
            # what may be on its way is counted as if it were: all sends of an interleaved step
            sends = {"GPipe": MICRO, "1F1B": 1, "Interleaved1F1B": 4 * MICRO}[schedule]
            assert device.peak_bytes - ours["bytes"] <= (1 + sends) * STREAM, schedule
    eager, ours = (found["1F1B", module] for module in ("gpt", "1f1b_{stage}"))
    assert ours["bytes"] < eager["bytes"]


def _run_all(rank: int, folder: str, runs: list[tuple[str, str, int]], ports: list[int]) -> None:
    torch.set_num_threads(1)
    sys.path.insert(0, folder)
    found = {run[:2]: _run(rank, *run, port) for run, port in zip(runs, ports, strict=True)}
    torch.save(found, Path(folder) / f"{rank}.pt")


def _run(rank: int, schedule: str, name: str, count: int, port: int) -> dict[str, Any]:
    """Run steps of a pipeline; return the bytes of a step and of what stays, and the gradients."""
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    kind = torch_schedules.get_schedule_class(schedule)
    parts, stages = [], []
    for number in range(rank, count, 2):
        torch.manual_seed(0)
        parts.append(import_module(name.format(stage=number)).build_stage(number, count).train())
        stages.append(PipelineStage(parts[-1], number, count, torch.device("cpu")))
    several = issubclass(kind, torch_schedules.PipelineScheduleMulti)
    pipe: Any = kind(stages if several else stages[0], MICRO, loss_fn=_same)  # type: ignore[arg-type]
    torch.manual_seed(5)
    ids, targets = torch.randint(256, (2, 4 * MICRO, 64))

    def step() -> None:
        pipe.step(
            *((ids,) if rank == 0 else ()),
            **({"target": targets, "targets": targets} if rank else {}),
            return_outputs=False,
        )
        dist.barrier()
        time.sleep(0.05)  # until gloo's threads have let go of what is left

    peak = activation_peak(step, torch.device("cpu"))
    parameters = [p for part in parts for p in part.parameters()]
    gradients = [p.grad for p in parameters if p.grad is not None]
    dist.destroy_process_group()
    stays = peak.before_bytes - sum(g.nbytes for g in gradients)
    return {"bytes": peak.peak_bytes + stays, "gradients": gradients}


def _same(loss: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return loss


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"budget": "60%"}, "whatever its stage needs: give a size"),
        ({"schedule": "ZBVZeroBubble"}, "in two calls; a planned backward makes both in one"),
        ({"schedule": "1f1b"}, "is none of GPipe, 1F1B, Interleaved1F1B"),
        ({"micro_batches": 1}, "at least as many micro-batches as stages: 2"),
        ({"devices": 1}, "1F1B has a stage for each device; Interleaved1F1B several"),
        ({"stages": 3, "devices": 2, "micro_batches": 4}, "each device must have as many"),
        ({"stages": 0}, "--stages 0: give at least 1"),
        (
            {"schedule": "Interleaved1F1B", "devices": 2, "stages": 4, "micro_batches": 5},
            "5 micro-batches do not make 2 equal rounds",
        ),
        ({"budget": "200KB"}, "is less than what the pipeline itself holds: 256 KiB"),
        ({"budget": "1MB", "strategy": "rotor"}, r"build_stage\(0, 2\), of 1F1B: no schedule"),
        ({"output": "x_remat.py"}, r"say where its number stands, as in x_remat_\{stage\}.py"),
        ({"inputs": "inputs"}, "has no inputs"),
    ],
)
def test_refusals(folder: Path, options: dict[str, Any], words: str) -> None:
    asked = {"stages": 2, "micro_batches": 4, "budget": "4MB"} | options
    with pytest.raises(remat_gen.RematError, match=words):
        remat_gen.generate_stages(folder / "gpt.py", **asked)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("WIDTH, requires_grad=True)", "WIDTH)", "make it with requires_grad=True"),
        (
            "randn(BATCH, CONTEXT, WIDTH, req",
            "randn(BATCH, CONTEXT + 1, WIDTH, req",
            r"stage 0 returns float32\[4, 64, 64\] on cpu, "
            r"and stage_inputs\(1, 2\) makes float32\[4, 65,",
        ),
        (
            "(tokens if stage == 0 else stream,), {",
            "(), {'x': tokens} if stage == 0 else {'x': stream, ",
            r"stage_inputs\(1, 2\) makes nothing by position, as it is handed on: return a tuple",
        ),
        (
            "(tokens if stage == 0 else stream,), {",
            "((tokens,) if stage == 0 else (stream, tokens)), {} and {",
            r"int64\[4, 64\] on cpu; what is not the stage's before is given by keyword, as",
        ),
        (
            "x = self.embed(x)",
            "x = self.embed(x).mT.contiguous().mT",
            r"strides .*; let the stage return its contiguous\(\)",
        ),
        (
            "x = self.embed(x)",
            "return self.embed(x), self.embed(x).mean()",
            r"stage 0 hands on one number beside other tensors, .*: let it hand on .*unsqueeze",
        ),
        (
            "x = self.embed(x)",
            "raise ValueError('no')",
            r"gpt.py:\d+: build_stage\(0, 2\) on stage_inputs\(0, 2\) failed: ValueError: no",
        ),
    ],
)
def test_stages_that_do_not_fit_together(tmp_path: Path, old: str, new: str, words: str) -> None:
    text = (EXAMPLES / "gpt.py").read_text()
    assert old in text
    (tmp_path / "gpt.py").write_text(text.replace(old, new))
    with pytest.raises(remat_gen.RematError, match=words):
        remat_gen.generate_stages(tmp_path / "gpt.py", stages=2, micro_batches=4, budget="4MB")


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shared = ["--stages", "2", "--micro-batches", "4", "--target", "h200"]
    given = ["stages", str(folder / "gpt.py"), *shared, "--device-memory", "8.1GB"]
    assert main([*given, "--quiet", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [d["in_flight"] for d in said["devices"]] == [2, 1]
    assert [d["pipeline_bytes"] for d in said["devices"]] == [
        MICRO * STREAM,
        (MICRO + 1) * STREAM + (MICRO - 1) * 4,
    ]
    assert all(d["peak_bytes"] <= d["limit_bytes"] for d in said["devices"])
    assert main([*given, "--fresh"]) == 0
    told = capsys.readouterr()
    lines, progress = told.out.splitlines(), told.err.splitlines()
    for stage in (0, 1):
        assert f"remat-gen: stage {stage}: trace" in progress
    assert not any("loss: outside" in line for line in lines)
    assert lines[0] == "1F1B, 2 stages on 2 devices, 4 micro-batches"
    assert all(len(line) <= 80 for line in lines)
