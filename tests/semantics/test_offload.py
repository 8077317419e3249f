"""Modules whose values go to the host: equal to eager, as predicted, in the right order."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import remat_gen
from remat_gen.capture.load.load import import_file, read_source
from remat_gen.explain.explanation import Fate, explain_file
from remat_gen.ir.byte_text import size
from remat_gen.picture.timeline_bands import bands_of, total_bytes
from remat_gen.picture.timeline_owners import Part, residence_of
from remat_gen.review.difference_text import as_text
from remat_gen.review.retrace import retrace_file
from remat_gen.verification.peak import model_peak

MODEL = Path(__file__).parent / "models" / "offloaded.py"
TARGET = """
[slow_cpu]
name = "a CPU that computes slowly"
device = "cpu"
memory_bytes = 1_000_000_000
alignment_bytes = 1
launch_us = 1.0
bytes_per_s = 1e10
host_bytes_per_s = 4e9
source = "made up"

[slow_cpu.flops_per_s]
float32 = 1e9
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("offload")
    (found / "stack.py").write_text(MODEL.read_text(encoding="utf-8"), encoding="utf-8")
    (found / "slow.toml").write_text(TARGET, encoding="utf-8")
    return found


@pytest.fixture(scope="module")
def made(folder: Path) -> Any:
    target = str(folder / "slow.toml")
    return remat_gen.generate(folder / "stack.py", budget="45%", target=target, offload=True)


@pytest.fixture
def models(made: Any) -> tuple[nn.Module, nn.Module]:
    """Return eager's model and the planned one, with the same weights."""
    planned = import_file(made.output, read_source(made.output)).build_model()
    eager = import_file(MODEL, read_source(MODEL)).build_model()
    eager.load_state_dict(planned.state_dict())
    return eager.train(), planned.train()


def _left(model: nn.Module, steps: int, seed: int = 5) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    losses = []
    for _ in range(steps):
        loss = model(torch.randn(512, 32))
        loss.backward()
        losses.append(loss.detach())
    return [*losses, *(p.grad for p in model.parameters()), torch.get_rng_state()]


def _equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_values_travel(made: Any) -> None:
    steps = list(made.plan.steps())
    assert any(step.startswith("send ") for step in steps)
    assert any(step.startswith("fetch ") for step in steps)
    assert made.plan.offload.bytes_per_s == 4e9
    assert made.plan.asked.command.endswith("--offload -o stack_remat.py")


def test_steps_equal_eager_to_the_bit(models: tuple[nn.Module, nn.Module]) -> None:
    eager, planned = models
    assert _equal(_left(eager, 3), _left(planned, 3))


def test_the_peak_is_the_predicted_one(made: Any, models: tuple[nn.Module, nn.Module]) -> None:
    """Copies on the host are Python's memory: torch counts them as no tensor's."""
    x, predicted = torch.randn(512, 32), made.plan.predicted
    measured = model_peak(models[1], (x,), {}, torch.device("cpu")).peak_bytes
    assert abs(measured - predicted.peak_bytes) <= 64 * 1024
    assert predicted.peak_bytes < 0.46 * predicted.eager_peak_bytes


def test_two_steps_in_flight(models: tuple[nn.Module, nn.Module]) -> None:
    def both(model: nn.Module) -> list[torch.Tensor]:
        torch.manual_seed(9)
        first, second = model(torch.randn(512, 32)), model(torch.randn(512, 32))
        first.backward()
        second.backward()
        return [p.grad for p in model.parameters()]

    assert _equal(both(models[0]), both(models[1]))


def test_backward_on_another_thread(models: tuple[nn.Module, nn.Module]) -> None:
    eager, planned = models
    for model in models:
        torch.manual_seed(2)
        loss = model(torch.randn(512, 32))
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()
    grads = ([p.grad for p in model.parameters()] for model in (eager, planned))
    assert _equal(*grads)


def test_a_smaller_batch_runs(models: tuple[nn.Module, nn.Module]) -> None:
    for model in models:
        torch.manual_seed(4)
        model(torch.randn(100, 32)).backward()
    grads = [[p.grad for p in model.parameters()] for model in models]
    assert _equal(*grads)


def test_a_second_backward_is_refused(models: tuple[nn.Module, nn.Module]) -> None:
    loss = models[1](torch.randn(512, 32))
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_nothing_is_left_on_the_host(made: Any) -> None:
    """Each copy is let go of with the value that was fetched of it."""
    sent = re.findall(r"(\w+_host) = to_host\(", made.text)
    assert sent
    for name in sent:
        assert re.search(rf"del [^#]*\b{name}\b", made.text), name


def test_events_come_in_the_order_that_engines_need(made: Any) -> None:
    """Nothing is freed while it is sent, or read before it is back: every step waits for it."""
    module = import_file(made.output, read_source(made.output))
    going: dict[int, str] = {}
    order: list[str] = []
    to_host, from_host = module.to_host, module.from_host

    class Watched(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            for leaf in torch.utils._pytree.tree_leaves((args, kwargs)):
                if isinstance(leaf, torch.Tensor):
                    assert going.get(leaf.untyped_storage().data_ptr()) != "back"
            return func(*args, **(kwargs or {}))

    def sent(x: torch.Tensor) -> Any:
        copy = to_host(x)
        copy.at = x.untyped_storage().data_ptr()
        going[copy.at] = "out"
        order.append("out")
        return copy

    def fetched(copy: Any) -> torch.Tensor:
        assert copy.at is None, "its copy out was waited for when its memory went"
        x = from_host(copy)
        copy.at = x.untyped_storage().data_ptr()
        going[copy.at] = "back"
        order.append("back")
        return x

    def waited(copy: Any) -> None:
        del going[copy.at]
        copy.at = None

    module.to_host, module.from_host, module.wait_for = sent, fetched, waited
    model = module.build_model().train()
    with Watched():
        model(torch.randn(512, 32)).backward()
    assert not going
    assert order == sorted(order, reverse=True)
    assert order.count("out") == order.count("back") > 0


def test_the_same_plan_gives_the_same_file(made: Any) -> None:
    assert remat_gen.check(made.output).causes == ()


def test_without_it_nothing_of_it_is_there(folder: Path, made: Any) -> None:
    target = str(folder / "slow.toml")
    plain = remat_gen.generate(
        folder / "stack.py", budget="45%", target=target, output=folder / "plain_remat.py"
    )
    assert "host" not in plain.text.replace("slow_cpu", "")
    assert made.plan.predicted.time_us < plain.plan.predicted.time_us
    assert "offload" not in (folder / "plain_remat.plan.json").read_text(encoding="utf-8")


def test_a_target_that_does_not_say_how_quick_copies_are(folder: Path) -> None:
    mute = folder / "mute.toml"
    mute.write_text(TARGET.replace("host_bytes_per_s = 4e9\n", ""), encoding="utf-8")
    with pytest.raises(remat_gen.RematError, match="has no host_bytes_per_s"):
        remat_gen.generate(folder / "stack.py", budget="45%", target=str(mute), offload=True)


def test_compiled_parts_and_the_host_exclude_each_other(folder: Path) -> None:
    with pytest.raises(remat_gen.RematError, match="exclude each other"):
        remat_gen.generate(folder / "stack.py", budget="45%", offload=True, compile=True)


def test_the_summary_says_what_travels(made: Any) -> None:
    predicted = made.plan.predicted
    assert predicted.sent_values > 0
    assert f"{predicted.sent_values} values" in repr(made)
    assert "go to the host at 4 GB/s each way" in repr(made)
    sent = re.escape(size(predicted.sent_bytes))
    assert re.search(rf"# +to the host +{sent} +{predicted.sent_values} values\n", made.text)


def test_the_difference_names_what_is_sent(folder: Path, made: Any) -> None:
    found = remat_gen.diff(folder / "plain_remat.py", made.output)
    sent = [name for block in found.blocks for name in block.sent]
    assert len(sent) * 4 >= made.plan.predicted.sent_values  # blocks alike are named once
    assert not any(block.unsent for block in found.blocks)
    assert "newly sent to the host" in as_text(found)
    back = remat_gen.diff(made.output, folder / "plain_remat.py")
    assert any(block.unsent for block in back.blocks)


def test_explain_tells_what_else_could_be_done(made: Any) -> None:
    sent = next(step.split(" ")[1] for step in made.plan.steps() if step.startswith("send "))
    explained = explain_file(made.output, sent)
    (value,) = [value for value in explained.values if value.name == sent]
    assert value.fate is Fate.OFFLOADED
    assert value.other is not None
    assert value.other.alone.time_us >= made.plan.predicted.time_us * (1 - 1e-9) or (
        not value.other.fits
    )
    assert len(value.lives_us) == 2


def test_the_picture_adds_up_to_the_replay(made: Any) -> None:
    retraced = retrace_file(made.output)
    residence = residence_of(retraced.problem, retraced.schedule)
    bands = bands_of(retraced.traced.graph, residence)
    assert total_bytes(bands) == [moment.nbytes for moment in retraced.replay.timeline]
    assert residence.time_us == pytest.approx(retraced.replay.time_us, rel=1e-9)
    assert any(band.part is Part.FETCHED and any(band.nbytes) for band in bands)
