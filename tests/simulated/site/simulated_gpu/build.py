"""Build the shared library once per torch and source, into the folder for temporary files."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

SOURCE = Path(__file__).parent / "source"
TORCH = "2.13"  # whose interfaces of guards and hooks the source implements
OPTIONS = ("-O1", "-std=c++20", "-fPIC", "-shared", "-w")


@functools.cache
def why_not() -> str | None:
    """Say why no GPU can be simulated here; None if one can."""
    folder = torch_folder()
    if folder is None:
        return "torch is not installed"
    if (folder / "lib" / "libtorch_cuda.so").exists():
        return "torch is a CUDA build: a GPU is simulated on its CPU build"
    if not version("torch").startswith(TORCH):
        return f"the simulated GPU is written for torch {TORCH}, not {version('torch')}"
    if shutil.which("g++") is None:
        return "there is no g++ to build the simulated GPU with"
    return None


@functools.cache  # asked once before `install`: it would find itself among the finders
def torch_folder() -> Path | None:
    """Return where torch is installed, without importing it."""
    found = find_spec("torch")
    return Path(found.origin).parent if found and found.origin else None


def built() -> Path:
    """Return the library, built now if nobody has: about half a minute.

    Raises:
        RuntimeError: the compiler refuses it.
    """
    folder = Path(tempfile.gettempdir()) / f"simulated-gpu-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    library = folder / f"{_key()}.so"
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # those who come meanwhile wait
        if not library.exists():
            _compile(library)
    return library


def _key() -> str:
    """Return what a built library holds for: this torch, these sources, these options."""
    found = hashlib.sha256(f"{version('torch')} {OPTIONS}".encode())
    for path in sorted(SOURCE.iterdir()):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()[:16]


def _compile(library: Path) -> None:
    torch = torch_folder()
    assert torch is not None
    include = torch / "include"
    unfinished = library.with_suffix(f".{os.getpid()}")
    headers = [f"-I{include}", f"-I{include / 'torch/csrc/api/include'}"]
    linked = [f"-L{torch / 'lib'}", "-lc10", "-ltorch_cpu"]
    command = [
        "g++",
        *OPTIONS,
        *headers,
        str(SOURCE / "device.cpp"),
        "-o",
        str(unfinished),
        *linked,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the simulated GPU was not built:\n{done.stderr[-3000:]}")
    unfinished.replace(library)
