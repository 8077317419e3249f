"""Run from the checkout's root, the checkout is what runs: its folder hides what is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "arguments",
    [("-m", "remat_gen", "check", "--help"), ("-c", "import remat_gen; remat_gen.check")],
)
def test_the_checkout_runs_from_its_root(arguments: tuple[str, ...]) -> None:
    """Nothing of an editable installation helps: without `site` no `.pth` file is read."""
    paths = [path for path in sys.path if path.endswith("site-packages")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-S", *arguments], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
