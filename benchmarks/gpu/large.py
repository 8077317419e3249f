"""Plan a model that fills the GPU, and run it beside eager: the figures that matter.

    python benchmarks/gpu/large.py NET [--budgets A,B] [--offload] [--work FOLDER] [--small]

Prints an object a budget: activation peaks predicted, requested and allocated, bytes reserved in
all, for eager and planned steps; the median of paired times with its interval; what `verify` says.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch
from nets import SIZES, SMALL, text

import remat_gen
from remat_gen.capture.load.load import Loaded, load
from remat_gen.review.verifying import verify_file
from remat_gen.verification.paired_times import time_ratio
from remat_gen.verification.peak import model_peak
from remat_gen.verification.step import training_step

ROOT = Path(__file__).resolve().parents[2]
DEVICE = torch.device("cuda")
BUDGETS = {
    "gpt2_medium": ("100%", "60%", "45%"),  # below 42 % float32 logits do not fit
    "llama_1b": ("100%", "60%", "50%"),  # 49 %
    "gpt_wide": ("60%", "50%", "40%"),
}


def text_of(net: str, small: bool) -> str:
    """Return a model's file; the wide GPT is that of benchmarks/offload.py."""
    if net in SIZES:
        return text(net, SMALL if small else SIZES[net])
    if small:
        return (ROOT / "examples" / "gpt.py").read_text(encoding="utf-8")
    sys.path.append(str(ROOT / "benchmarks"))
    from offload import LOSS, source

    return source(LOSS)


def peaks(path: Path) -> dict[str, int | None]:
    """Return what a step allocates above the rest, and what the allocator holds for it in all."""
    torch.cuda.empty_cache()
    loaded = load(path, device="cuda")
    found = model_peak(loaded.model, loaded.args, loaded.kwargs, DEVICE)
    return {
        "requested": found.peak_bytes,
        "allocated": found.allocated_peak_bytes,
        "reserved in all": found.reserved_bytes,
    }


def ratio(original: Loaded, planned: Loaded, pairs: int) -> dict[str, object]:
    """Return the planned step's time as a multiple of eager's, each in turn."""
    return asdict(
        time_ratio(
            lambda: training_step(original.model, original.args, original.kwargs),
            lambda: training_step(planned.model, original.args, original.kwargs),
            DEVICE,
            pairs,
        )
    )


def figures(source: Path, budget: str, pairs: int, effort: str, offload: bool) -> dict[str, object]:
    """Plan, verify, measure and time one budget."""
    start = time.monotonic()
    made = remat_gen.generate(
        source, device="cuda", budget=budget, static=True, effort=effort, offload=offload
    )
    assert made.output is not None
    planned_s, predicted = time.monotonic() - start, made.plan.predicted
    report = verify_file(made.output)
    verified_s = time.monotonic() - start - planned_s
    eager_peaks, planned_peaks = peaks(source), peaks(made.output)
    original, planned = (load(path, device="cuda") for path in (source, made.output))
    return {
        "budget_bytes": made.plan.asked.budget_bytes,
        "predicted_bytes": predicted.peak_bytes,
        "predicted_ratio": predicted.time_us / predicted.eager_time_us,
        "reruns": predicted.reruns,
        "verified": report.ok,
        "bitwise": report.bitwise,
        "not so": [str(row)[:300] for row in report.rows() if row.ok is False],
        "eager": eager_peaks,
        "planned": planned_peaks,
        "time": ratio(original, planned, pairs),
        "seconds": [round(planned_s, 1), round(verified_s, 1)],
    }


def main() -> int:
    """Print the figures of each budget; returns 1 if one of them failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("net", choices=sorted(BUDGETS))
    parser.add_argument("--budgets", help="as in 60%%,50%%")
    parser.add_argument("--offload", action="store_true")
    parser.add_argument("--work", type=Path, default=Path("build/gpu/work"))
    parser.add_argument("--small", action="store_true")
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    source = asked.work / f"{asked.net}.py"
    source.write_text(text_of(asked.net, asked.small))
    failed = False
    budgets, pairs, effort = BUDGETS[asked.net], 12, "normal"
    if asked.budgets:
        budgets = tuple(asked.budgets.split(","))
    if asked.small:
        budgets, pairs, effort = budgets[1:2], 2, "quick"
    for budget in budgets:
        told: dict[str, object] = {"net": asked.net, "budget": budget, "offload": asked.offload}
        try:
            told |= figures(source, budget, pairs, effort, asked.offload)
        except Exception as error:  # a smaller budget may be met
            told["error"] = f"{type(error).__name__}: {error}"[:500]
        failed |= not told.get("verified")
        print(json.dumps(told), flush=True)
        torch.cuda.empty_cache()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
