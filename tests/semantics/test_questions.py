"""A forward that asks how it is run is planned as a plain step answers it, and says what it was."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from pairs import Pair, make_pair_of
from sources import install_library, model_source
from steps import assert_right

from remat_gen.ir.errors import TraceError

QUESTIONS = (
    "torch.compiler.is_compiling()",
    "torch.compiler.is_dynamo_compiling()",
    "torch.compiler.is_exporting()",
    "torch._dynamo.is_compiling()",
)


@pytest.mark.limit(
    "`torch.compiler.is_compiling()` in `forward`",
    "no, as in a plain step, where the model's own code asks; yes where what then runs cannot be "
    "traced",
)
@pytest.mark.parametrize("question", QUESTIONS)
def test_the_branch_is_eagers(question: str) -> None:
    """Dynamo says yes: the plan was of the other branch, silently."""
    forward = f"x = self.body(x)\nif {question}:\n    x = x * 2\nreturn self.head(x.sin())"
    assert_right(make_pair_of(model_source(forward), "1GB", "per-layer"))


@pytest.mark.parametrize("question", QUESTIONS)
def test_one_that_the_file_has_imported_by_itself(question: str) -> None:
    """Nobody saw it asked there, and the plan was of the other branch, silently."""
    forward = "x = self.body(x)\nif ask():\n    x = x * 2\nreturn self.head(x.sin())"
    source = model_source(forward)
    module, _, name = question.removesuffix("()").rpartition(".")
    imported = f"from {module} import {name} as ask"
    source = source.replace("import torch\n", f"import torch\n{imported}\n", 1)
    assert_right(make_pair_of(source, "1GB", "per-layer"))


def test_dynamo_knows_the_questions_afterwards(tmp_path: Path) -> None:
    """It notes once in a process which functions they are: not those that stood in their place."""
    forward = f"x = self.body(x)\nif {QUESTIONS[0]}:\n    x = x * 2\nreturn self.head(x)"
    (tmp_path / "net.py").write_text(model_source(forward))
    script = f"""
import torch, remat_gen
remat_gen.generate("net.py", budget="1GB", output="net_remat.py")
for name in {QUESTIONS[:2]}:
    compiled = torch.compile(eval(f"lambda x: x + {{name}}"), backend="eager", fullgraph=True)
    assert compiled(torch.zeros(())) == 1, name
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)


LIBRARY = """\
import torch


def mask(x):
    return None if torch.compiler.is_compiling() else torch.ones(x.shape[-1])


def solved(x):
    return x.sin() if not torch.compiler.is_exporting() else x.cos()
"""


def test_a_library_whose_compiled_branch_fails_is_traced_as_in_a_plain_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LongT5 makes no mask where it is compiled, and then reads its shape."""
    forward = (
        "import asking_library\nx = self.body(x)\nmask = asking_library.mask(x)\n"
        "return self.head(x.sin() * mask.view(mask.shape))"
    )
    _assert_right_with_the_library(forward, tmp_path, monkeypatch)


def test_what_a_library_does_for_an_export_alone_is_not_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Qwen3-Next goes through a loop in place of a kernel, which rounds otherwise."""
    forward = "import asking_library\nreturn self.head(asking_library.solved(self.body(x)))"
    _assert_right_with_the_library(forward, tmp_path, monkeypatch)


def _assert_right_with_the_library(
    forward: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_library("asking_library", LIBRARY, tmp_path, monkeypatch)
    assert_right(make_pair_of(model_source(forward), "1GB", "per-layer"))


_ASKS = """\
import torch.distributed as dist
x = self.body(x).to(torch.get_default_dtype()).float()
x = x * 2 if torch.is_anomaly_enabled() else x.sin()
x = x * 3 if torch.are_deterministic_algorithms_enabled() else x.cos()
x = x * 5 if dist.is_available() and dist.is_initialized() else x
x = x * 11 if dist.group.WORLD is not None else x
x = x * 7 if torch.cuda.is_bf16_supported() and not torch.cuda.is_available() else x
with torch.no_grad():  # what is answered here is not what is so around forward
    kept = torch.is_grad_enabled()
return self.head(x * 7 if kept else x).square().mean()"""


@pytest.fixture(scope="module")
def asking() -> Pair:
    return make_pair_of(model_source(_ASKS), "1GB", "per-layer")


@contextmanager
def _setting(function: Callable[[Any], object], value: object, before: object) -> Iterator[None]:
    function(value)
    yield
    function(before)


CHANGES: dict[str, tuple[Callable[[], AbstractContextManager[object]], str]] = {
    "autograd looks for anomalies": (
        lambda: torch.autograd.detect_anomaly(check_nan=False),
        r"torch:is_anomaly_enabled\(\) is True, planned for False",
    ),
    "another type of numbers": (
        lambda: _setting(torch.set_default_dtype, torch.float64, torch.float32),
        r"torch:get_default_dtype\(\) is torch\.float64, planned for torch\.float32",
    ),
    "deterministic algorithms": (
        lambda: _setting(torch.use_deterministic_algorithms, True, False),
        r"torch:are_deterministic_algorithms_enabled\(\) is True, planned for False",
    ),
    "an argument is left at its default": (
        lambda: mock.patch("torch.cuda.is_bf16_supported", lambda: True),
        r"torch\.cuda:is_bf16_supported\(\) is True, planned for False",
    ),
    "a group of processes": (
        lambda: mock.patch("torch.distributed.distributed_c10d.is_initialized", lambda: True),
        r"torch\.distributed\.distributed_c10d:is_initialized\(\) is True, planned for False",
    ),
    "a group of processes, by a property of a class": (
        lambda: _setting(partial(setattr, dist.group, "WORLD"), object(), None),
        r"torch\.distributed\.distributed_c10d:group\.WORLD is object object, planned for None",
    ),
}


def test_a_step_of_such_a_process_is_right(asking: Pair) -> None:
    """torch traces backward in the mode that looks for anomalies, and said so to forward."""
    assert_right(asking)


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("behind", [False, True], ids=["first", "later"])
@pytest.mark.parametrize("name", CHANGES)
def test_what_the_process_answers_is_named(asking: Pair, name: str, *, behind: bool) -> None:
    model, (args, kwargs) = asking.models()[1], asking.inputs()
    change, says = CHANGES[name]
    if behind:
        model(*args, **kwargs).backward()
    with change(), pytest.raises(ValueError, match=says):
        model(*args, **kwargs)


@pytest.mark.limit(
    "`nn.SyncBatchNorm` where a process group is initialised, attention within `context_parallel`",
    "a named error: a plan has the statistics and keys of one process alone",
)
def test_layers_that_ask_for_other_processes_are_refused_among_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They were planned as for one process, silently: its own mean, its own part of the keys."""
    forward = "x = self.norm(self.body(x))\nreturn F.scaled_dot_product_attention(x, x, x)"
    pair = make_pair_of(model_source(forward, init="self.norm = nn.SyncBatchNorm(8)"), "1GB")
    _, planned = pair.models()
    args, _ = pair.inputs()
    planned(*args)
    with monkeypatch.context() as patch:
        patch.setattr(dist.distributed_c10d, "is_initialized", lambda: True)
        with pytest.raises(ValueError, match=r"is_initialized\(\) is True, planned for False"):
            planned(*args)
    attention = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(torch.nn.functional, attention.__name__, lambda *a: attention(*a))
    with pytest.raises(ValueError, match=r"scaled_dot_product_attention is function <lambda>"):
        planned(*args)


ASKS = """
space = {"__name__": "torch.nn.modules.shared", "torch": torch}
exec("def shares(group):\\n    return torch.distributed.get_world_size(group)", space)
shares = space["shares"]
"""


def test_a_layer_of_torchs_asks_for_the_size_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where planning has a group of one process, too."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        forward = "return self.head(self.body(x)) * shares(torch.distributed.group.WORLD)"
        _, planned = make_pair_of(model_source(forward, prelude=ASKS), "1GB").models()
        args = (torch.randn(6, 8),)
        planned(*args)
        monkeypatch.setattr(dist.distributed_c10d, "get_world_size", lambda: 2)
        with pytest.raises(ValueError, match=r"get_world_size\(\) is 2, planned for 1"):
            planned(*args)
    finally:
        dist.destroy_process_group()


def test_a_collective_that_writes_is_named() -> None:
    """It was said not to repeat itself, as a time or a random number does not."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        forward = "y = self.head(self.body(x))\ntorch.distributed.all_reduce(y.detach())\nreturn y"
        with pytest.raises(TraceError, match=r"all_reduce\(y.*: a collective that writes into its"):
            make_pair_of(model_source(forward), "1GB")
    finally:
        dist.destroy_process_group()
