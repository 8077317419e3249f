"""The stages of a first run on a GPU, in the order in which their answers matter."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
EXAMPLES = ROOT / "examples"
SMALL_NET = HERE / "small_net.py"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run writes, and whether it is the rehearsal."""

    out: Path
    small: bool

    @property
    def work(self) -> Path:
        """Return the folder of models and generated modules."""
        return self.out / "work"

    @property
    def site(self) -> Path:
        """Return the folder that wheels are installed into."""
        return self.out / "site"

    @property
    def effort(self) -> str:
        """Return how long schedules are searched: a rehearsal takes what is found at once."""
        return "quick" if self.small else "normal"

    def example(self, name: str) -> str:
        """Return the file of an example: the small model in a rehearsal."""
        return str(SMALL_NET if self.small else EXAMPLES / f"{name}.py")


Commands = Callable[[Place], list[list[str]]]


@dataclass(frozen=True, slots=True)
class Stage:
    """Commands that are run one after another, each at most `limit_s` seconds long."""

    name: str
    about: str
    limit_s: int
    commands: Commands
    variables: Mapping[str, str] = field(default_factory=dict)


def environment(place: Place) -> dict[str, str]:
    """Return the environment of all stages: wheels of the run before what the machine has."""
    found = [str(place.site)] if place.site.exists() else []
    path = os.pathsep.join([*found, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


def _python(*words: str) -> list[str]:
    return [sys.executable, *words]


def _own(script: str, *words: str) -> Commands:
    """Return a command of a script beside this one, told when it is the rehearsal."""
    return lambda place: [_python(str(HERE / script), *words, *["--small"] * place.small)]


def _import(place: Place) -> list[list[str]]:
    told = (
        "{torch.__version__} on {torch.cuda.get_device_name()}, remat-gen {remat_gen.__version__}"
    )
    return [_python("-c", f"import torch, remat_gen.api; print(f'torch {told}')")]


def _on_files(script: str, *names: str) -> Commands:
    """Return a command of a script beside this one, on examples."""

    def commands(place: Place) -> list[list[str]]:
        files = dict.fromkeys(place.example(name) for name in names)
        return [_python(str(HERE / script), *files)]

    return commands


def _beside(place: Place) -> list[list[str]]:
    files = dict.fromkeys(place.example(name) for name in ("unet", "resnet"))
    return [_python(str(HERE / "beside.py"), "100%", *files)]


def _tests(place: Place) -> list[list[str]]:
    chosen = ["-k", "generators"] if place.small else ["-n", "8"]
    words = (
        "-m",
        "pytest",
        "tests/gpu",
        "tests/simulated",
        "-m",
        "cuda",
        "-p",
        "no:cacheprovider",
        "--tb=short",
    )
    return [_python(*words, *chosen)]


def _command_line(*options: str, name: str) -> Commands:
    """Return generate and verify, as a user runs them."""

    def commands(place: Place) -> list[list[str]]:
        output = str(place.work / f"{name}.py")
        asked = ("--budget", "60%", "--device", "cuda", "--effort", place.effort, "-o", output)
        made = _python("-m", "remat_gen", place.example("gpt"), *asked, *options)
        return [made, _python("-m", "remat_gen", "verify", output)]

    return commands


def _on_gpu(name: str) -> Commands:
    def commands(place: Place) -> list[list[str]]:
        budgets, pairs = ("100%", "2") if place.small else ("100%,60%,20%", "20")
        options = (
            "--budgets",
            budgets,
            "--pairs",
            pairs,
            "--out",
            str(place.out / f"on_gpu_{name}"),
            "--effort",
            place.effort,
        )
        return [_python(str(ROOT / "benchmarks" / "on_gpu.py"), place.example(name), *options)]

    return commands


def _calibrate(place: Place) -> list[list[str]]:
    script = [str(HERE / "small_calibration.py")] if place.small else ["-m", "remat_gen"]
    return [_python(*script, "calibrate", "-o", str(place.out / "calibrated.toml"))]


def _large(name: str, *options: str) -> Commands:
    def commands(place: Place) -> list[list[str]]:
        words = (*options, "--work", str(place.work), *["--small"] * place.small)
        return [_python(str(HERE / "large.py"), name, *words)]

    return commands


_ALL = (
    Stage("import", "the project and torch's GPU", 120, _import),
    Stage("probe", "facts that plans rest on", 150, _own("probe.py")),
    Stage(
        "strides",
        "results of operations as the graph says",
        150,
        _on_files("strides.py", "gpt", "resnet"),
    ),
    Stage("tests", "tests/gpu and tests/simulated", 540, _tests),
    Stage("gpt", "generate and verify", 240, _command_line(name="gpt_remat")),
    Stage("on_gpu_gpt", "peaks and times at 100, 60, 20 %", 300, _on_gpu("gpt")),
    Stage("on_gpu_transformer", "the same", 300, _on_gpu("transformer")),
    Stage("on_gpu_resnet", "the same", 300, _on_gpu("resnet")),
    Stage("on_gpu_unet", "the same", 300, _on_gpu("unet")),
    Stage("on_gpu_hf_llama", "the same", 300, _on_gpu("hf_llama")),
    Stage("calibrate", "the device's rates", 150, _calibrate),
    Stage("gpt2_medium", "bf16, 16 x 1024, at 100, 60, 30 %", 540, _large("gpt2_medium")),
    Stage("llama_1b", "bf16, 1 x 4096, at 100, 60, 30 %", 540, _large("llama_1b")),
    Stage(
        "strides_others",
        "as strides",
        240,
        _on_files("strides.py", "transformer", "unet", "hf_llama"),
    ),
    Stage("graphs", "steps as CUDA graphs", 240, _on_files("graphs.py", "gpt", "resnet")),
    Stage("beside", "kernels and launches beside eager's", 240, _beside),
    Stage("gpt_wide", "float32, 8 x 1024, at 60, 50, 40 %", 540, _large("gpt_wide")),
    Stage("gpt_wide_offload", "the same, with a host", 540, _large("gpt_wide", "--offload")),
    Stage("compile", "parts compiled", 270, _command_line("--compile", name="gpt_compiled")),
    Stage(
        "gpt2_expandable",
        "gpt2_medium with expandable segments",
        540,
        _large("gpt2_medium"),
        {"PYTORCH_ALLOC_CONF": "expandable_segments:True"},
    ),
)
STAGES = {stage.name: stage for stage in _ALL}
