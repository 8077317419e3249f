"""A planned model trains on a GPU as its original does: streams, scalers, optimizers, errors."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from on_gpu_steps import step, waited_for
from small_nets import NETS
from torch import nn

import remat_gen
from remat_gen.capture.load.load import Loaded, load

pytestmark = pytest.mark.cuda
Make = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
OPTIMIZERS: dict[str, Make] = {
    "AdamW fused": lambda p: torch.optim.AdamW(p, fused=True),
    "AdamW foreach": lambda p: torch.optim.AdamW(p, foreach=True),
    "SGD": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a model's file and the generated one: masks are drawn again in its backward."""
    path = tmp_path_factory.mktemp("training") / "net.py"
    path.write_text(NETS["dropout"], encoding="utf-8")
    made = remat_gen.generate(path, device="cuda", budget="100%", recompute=["*"])
    assert made.output is not None and "rerun_random(" in made.text
    return path, made.output


@pytest.fixture
def both(files: tuple[Path, Path]) -> tuple[Loaded, Loaded]:
    """Return original and planned model, of equal weights and inputs."""
    original, planned = (load(path, device="cuda") for path in files)
    planned.model.load_state_dict(original.model.state_dict())
    return original, planned


def trained(loaded: Loaded, args: tuple[object, ...], optimizer: str, scaled: bool) -> list[object]:
    """Return losses, weights and generators' states of three steps."""
    torch.manual_seed(7)
    stepper = OPTIMIZERS[optimizer](list(loaded.model.parameters()))
    scaler = torch.amp.GradScaler("cuda", enabled=scaled, init_scale=2.0**10)
    seen: list[object] = []
    for _ in range(3):
        stepper.zero_grad()
        loss = loaded.model(*args)
        scaler.scale(loss).backward()
        scaler.step(stepper)
        scaler.update()
        seen += [loss.detach().cpu(), torch.cuda.get_rng_state(), torch.get_rng_state()]
    return [*seen, *(p.detach().cpu() for p in loaded.model.parameters())]


@pytest.mark.parametrize(
    ("optimizer", "scaled"),
    [("AdamW fused", False), ("AdamW foreach", True), ("SGD", True)],
)
def test_training_is_eagers(both: tuple[Loaded, Loaded], optimizer: str, scaled: bool) -> None:
    eager, ours = (trained(loaded, both[0].args, optimizer, scaled) for loaded in both)
    assert len(eager) == len(ours) == 9 + 8
    for mine, theirs in zip(ours, eager, strict=True):
        assert torch.equal(mine, theirs)


def test_a_step_goes_on_after_running_out_of_memory(both: tuple[Loaded, Loaded]) -> None:
    original, planned = both
    total = torch.cuda.get_device_properties(0).total_memory
    for loaded in both:
        loaded.model.zero_grad()
    held = torch.cuda.memory_allocated()
    grads = threading.Event()

    def run_out(*_: object) -> None:
        grads.set()
        torch.empty(total, dtype=torch.uint8, device="cuda")

    hook = list(planned.model.parameters())[3].register_hook(run_out)  # in autograd's thread
    with pytest.raises(torch.OutOfMemoryError):
        planned.model(*original.args).backward()
    hook.remove()
    assert grads.is_set()
    planned.model.zero_grad()
    for _ in range(100):  # autograd's thread lets go of the failed backward behind the error
        gc.collect()
        if torch.cuda.memory_allocated() <= held:
            break
        time.sleep(0.05)
    assert torch.cuda.memory_allocated() <= held, "what the failed step held is free"
    found = []
    for loaded in both:
        torch.manual_seed(3)
        loaded.model(*original.args).backward()
        found.append([p.grad for p in loaded.model.parameters()])
    for mine, theirs in zip(*found, strict=True):
        assert mine is not None and theirs is not None and torch.equal(mine, theirs)


def test_the_host_waits_for_nothing_in_a_step(both: tuple[Loaded, Loaded]) -> None:
    assert waited_for(both[1]) == []


def test_masks_are_drawn_again_in_the_devices_thread(both: tuple[Loaded, Loaded]) -> None:
    """What was drawn there leaves the generator as eager does, and nothing is kept."""
    torch.manual_seed(5)
    before = torch.cuda.get_rng_state()
    step(both[1])
    held = torch.cuda.memory_allocated()
    for _ in range(3):
        step(both[1])
    assert torch.cuda.memory_allocated() == held
    ours = torch.cuda.get_rng_state()
    torch.cuda.set_rng_state(before)
    for _ in range(4):
        step(both[0])
    assert torch.equal(ours, torch.cuda.get_rng_state())
