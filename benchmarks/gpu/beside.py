"""What a planned step runs beside eager's: kernels, launches, and the time of host and device.

    python benchmarks/gpu/beside.py BUDGET FILE …

Prints an object a file: for eager and planned steps the microseconds of a step, of its kernels
and of its launches, and the kernels whose times differ most.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections import Counter
from pathlib import Path

import torch
from each_file import print_each
from torch.profiler import ProfilerActivity, profile

import remat_gen
from remat_gen.capture.load.load import Loaded, load
from remat_gen.verification.paired_times import interleaved_us
from remat_gen.verification.step import training_step

DEVICE = torch.device("cuda")
ROUNDS, STEPS, SHOWN = 30, 10, 10
LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx")


def step_of(loaded: Loaded) -> object:
    return training_step(loaded.model, loaded.args, loaded.kwargs)


def traced(loaded: Loaded) -> tuple[Counter[str], Counter[str]]:
    """Return the microseconds of each kernel in a step, and how often each is run."""
    step_of(loaded)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        for _ in range(STEPS):
            step_of(loaded)
        torch.cuda.synchronize()
    spent, count = Counter[str](), Counter[str]()
    for event in found.key_averages():
        on_device = str(event.device_type).endswith("CUDA")
        if on_device or event.key in LAUNCHES:
            spent[event.key[:90]] += round(event.self_device_time_total / STEPS, 1)
            count[event.key[:90]] += round(event.count / STEPS, 1)
    return spent, count


def figures(source: Path, budget: str) -> dict[str, object]:
    """Plan a model, and take both steps apart."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / f"{source.stem}_remat.py"
        remat_gen.generate(source, output=output, device="cuda", budget=budget, static=True)
        both = [load(path, device="cuda") for path in (source, output)]
    times = interleaved_us([lambda of=of: step_of(of) for of in both], DEVICE, ROUNDS)
    (eager, eagers), (ours, our) = map(traced, both)
    names = sorted(eager | ours, key=lambda name: -abs(ours[name] - eager[name]))
    return {
        "step us": [round(statistics.median(t), 1) for t in times],
        "kernels us": [round(sum(found.values()), 1) for found in (eager, ours)],
        "launches": [sum(n for k, n in c.items() if k in LAUNCHES) for c in (eagers, our)],
        "differ": [[n, eager[n], ours[n], eagers[n], our[n]] for n in names[:SHOWN]],
    }


def main() -> int:
    """Print the figures of each file; returns 1 if one of them failed."""
    budget, *files = sys.argv[1:]
    return print_each("beside", files, lambda path: figures(path, budget))


if __name__ == "__main__":
    sys.exit(main())
