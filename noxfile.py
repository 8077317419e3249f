"""Everything that is run on the project: `nox -l` lists it, `nox -s demo` shows it."""

from __future__ import annotations

import os
from pathlib import Path

import nox

TORCH = "2.13.0"
TORCHES = ("2.11.0", "2.12.0", "2.13.0", "2.14.1", "2.15.0")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
SIMULATED = Path("tests/simulated/site").resolve()  # in PYTHONPATH, it is a GPU for tests
WORKERS = min(8, max(2, os.cpu_count() or 2))  # each holds torch, and what its tests plan
ZOO = (
    "torchvision==0.29.2",
    "timm==1.0.31",
    "peft==0.21.2",
    "accelerate==1.15.0",
    "vit-pytorch==1.26.11",
    "torch-geometric==2.8.1",
    *"""
    diffusers==0.42.1 x-transformers==2.31.10 segmentation-models-pytorch==0.6.0 monai==1.6.1
    open-clip-torch==3.3.0 vector-quantize-pytorch==1.32.0 denoising-diffusion-pytorch==2.3.4
    perceiver-pytorch==0.11.0 performer-pytorch==1.1.4 reformer-pytorch==1.4.4 linformer==0.2.3
    linear-attention-transformer==0.19.1 sinkhorn-transformer==0.11.4 local-attention==1.11.2
    nystrom-attention==0.0.14 minGRU-pytorch==0.2.1 conformer==0.3.2 g-mlp-pytorch==0.1.5
    mlp-mixer-pytorch==0.3.1 pytorch-tcn==1.2.3 mambapy==1.2.0 timesformer-pytorch==0.4.1
    siren-pytorch==0.1.7 egnn-pytorch==0.2.8 soft-moe-pytorch==0.1.9 st-moe-pytorch==0.1.8
    axial-attention==0.6.1 lambda-networks==0.4.0 pytorch-tabnet==4.1.0 efficientnet-pytorch==0.7.1
    native-sparse-attention-pytorch==0.2.3 block-recurrent-transformer-pytorch==0.4.4
    kornia==0.9.0 e3nn==0.6.0 point-transformer-pytorch==0.1.5 pytorchcv==0.0.74
    """.split(),
    # what they import besides
    *"""
    einx==0.4.3 loguru==0.7.3 axial-positional-embedding==0.3.12 product-key-memory==0.3.0
    kornia-rs==0.2.0 opt-einsum==3.4.0 opt-einsum-fx colt5-attention==0.11.2 beartype==0.23.1
    hyper-connections==0.4.11 torch-einops-utils==0.2.0 mixture-of-experts==0.2.3
    taylor-series-linear-attention==0.2.0 rotary-embedding-torch==0.9.1 ema-pytorch
    scikit-learn joblib threadpoolctl ftfy wcwidth huggingface-hub importlib-metadata frozendict
    """.split(),
)

nox.options.sessions = ["tests"]
nox.options.error_on_missing_interpreters = False
nox.options.reuse_venv = "yes"


def install(session: nox.Session, torch: str, *what: str) -> None:
    """Install torch by itself first: the project would take the newest build that it admits."""
    session.install(f"torch=={torch}")
    session.install(*what)


def run_tests(session: nox.Session) -> None:
    """Run tests on all cores, then those that need the machine alone, then those of a GPU."""
    # a choice of tests may have none of one kind, which pytest ends with 5
    codes = [0, 5] if session.posargs else [0]
    workers = ("-n", str(WORKERS), "--dist", "worksteal")
    for options in ((*workers, "-m", "not alone"), ("-m", "alone")):
        session.run("pytest", *options, *session.posargs, success_codes=codes)
    simulated = ("-m", "cuda", *(session.posargs or ("tests/gpu", "tests/simulated")))
    session.run(
        "pytest", *workers, *simulated, success_codes=codes, env={"PYTHONPATH": str(SIMULATED)}
    )


@nox.session
def tests(session: nox.Session) -> None:
    """Run all tests."""
    install(session, TORCH, "-e", ".[test]")
    run_tests(session)


@nox.session(python=PYTHONS)
@nox.parametrize("torch", TORCHES)
def matrix(session: nox.Session, torch: str) -> None:
    """Run all tests on every Python that is here, with every torch that is supported."""
    install(session, torch, "-e", ".[test]")
    run_tests(session)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and types; types on the installed wheel, since mypy follows no editable one."""
    install(session, TORCH, ".[test]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    config = str(Path("pyproject.toml").resolve())
    session.chdir(session.create_tmp())
    session.run("mypy", "--config-file", config, "-p", "remat_gen")


@nox.session(reuse_venv=False)
def wheel(session: nox.Session) -> None:
    """Build the wheel, install it into a clean environment, use it from a temporary folder."""
    folder = Path(session.create_tmp())
    for old in folder.iterdir():
        old.unlink()
    session.run("pip", "wheel", "--no-deps", "--wheel-dir", str(folder), ".", silent=True)
    (built,) = folder.glob("*.whl")
    install(session, TORCH, str(built))
    model = Path("tests/cli/models/small.py").read_text(encoding="utf-8")
    session.chdir(folder)
    Path("small.py").write_text(model, encoding="utf-8")
    session.run("remat-gen", "small.py", "--budget", "80%", "-o", "small_remat.py")
    session.run("remat-gen", "verify", "small_remat.py")


@nox.session
def demo(session: nox.Session) -> None:
    """Plan examples/gpt.py at 60 % of its eager peak and train it beside the original."""
    install(session, TORCH, "-e", ".")
    session.run("python", "benchmarks/demo.py", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Time a generated step beside what people use: `-- gpt gpt_4l --budgets 50%`."""
    install(session, TORCH, "-e", ".[plot]", "transformers==5.23.0")
    # freed pages are kept: a step would pay for those that the one before it gave back
    pages = {"MALLOC_MMAP_THRESHOLD_": "1073741824", "MALLOC_TRIM_THRESHOLD_": "4294967296"}
    session.run("python", "benchmarks/side_by_side.py", *session.posargs, env=pages)


@nox.session(venv_backend="none")
def gpu(session: nox.Session) -> None:
    """Find out all that a first run on a GPU is to show, on this machine's torch: `-- --list`."""
    session.run("python", "benchmarks/gpu/first_run.py", *session.posargs)


@nox.session
def zoo(session: nox.Session) -> None:
    """Plan models of torchvision, timm, transformers and torch; `-- timm` runs one part.

    `-- units --budget 65%` plans units of models that cannot be planned as a whole.
    """
    install(session, TORCH, "-e", ".[test]")
    # without their dependencies: these would bring another torch
    session.install("--no-deps", *ZOO)
    session.install("pillow", "psutil", "pyyaml", "packaging", "tqdm", "safetensors")
    session.install("scipy", "einops", "aiohttp", "requests", "xxhash")
    session.run("python", "benchmarks/zoo/run.py", *session.posargs)


@nox.session
def pages(session: nox.Session) -> None:
    """Write the pages of docs/ that follow from the code and from the tests."""
    install(session, TORCH, "-e", ".[test]")
    session.run("python", "docs/tools/write_reference.py")
    session.run("python", "docs/tools/write_limits.py")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site from docs/, without a warning; `-- serve` shows it while it is written."""
    # the extra alone: the API's page is read from the source, so that torch is not needed
    project = nox.project.load_toml("pyproject.toml")["project"]
    session.install(*project["optional-dependencies"]["docs"])
    session.run("mkdocs", *(session.posargs or ("build", "--strict")))
