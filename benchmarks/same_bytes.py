"""From the same costs, are the files the same bytes under any hash seed and number of threads?

python benchmarks/same_bytes.py
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from planned import EXAMPLES, ROOT, print_table, scratch

SEEDS = range(10)
SHARE = "60%"


def generate(folder: Path, name: str, seed: int) -> str:
    """Plan an example again in a process of its own; return the hash of both files."""
    environment = os.environ | {
        "PYTHONHASHSEED": str(seed),
        "OMP_NUM_THREADS": str(1 + seed % 2),
        "MKL_NUM_THREADS": str(1 + seed % 2),
    }
    options = ("--budget", SHARE, "--quiet", "--fresh")  # searched again, not kept
    command = [sys.executable, "-m", "remat_gen.cli.app", f"{name}.py", *options]
    subprocess.run(command, cwd=folder, env=environment, check=True)
    files = (folder / f"{name}_remat.py", folder / f"{name}_remat.plan.json")
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def main() -> None:
    """Measure the costs once, then plan from them under each seed, on one and two threads."""
    rows = []
    for name in sys.argv[1:] or EXAMPLES:
        with scratch("same_bytes") as folder:
            shutil.copy(ROOT / "examples" / f"{name}.py", folder)
            generate(folder, name, 0)
            hashes = [generate(folder, name, seed) for seed in SEEDS]
            rows.append((name, f"0 … {max(SEEDS)}", "1, 2", str(len(set(hashes)))))
    print_table(("example", "hash seeds", "threads", "different results"), rows)


if __name__ == "__main__":
    main()
