"""GPT-4L: real peak with new gradients, and FLOPs, beside what a user would pick instead.

python benchmarks/gpt_4l.py > benchmarks/results/gpt_4l.md
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from planned import plan, print_table, scratch
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from remat_gen.capture.load.load import Loaded, load
from remat_gen.ir.errors import InfeasibleBudgetError
from remat_gen.plan.pipeline import Generated
from remat_gen.review.verifying import verify_file
from remat_gen.verification.peak import model_peak
from remat_gen.verification.step import training_step

MIB = 2**20
TRIES = 4  # budgets for a target
TARGETS = (116.0, 96.2, 53.1, 40.0)  # MiB: what is picked instead needs the first three
MODEL = Path(__file__).with_name("gpt_4l_model.py")
PREAMBLE = """# GPT-4L

A step after `zero_grad(set_to_none=True)`, on the CPU: the highest number of bytes that its
allocator had handed out, parameters and inputs not among them, the new gradients among them; FLOPs
of matrix products and attention. Where a peak is infeasible, the smallest budget was asked for.
"""
HEAD = ("what", "peak, MiB", "FLOPs × eager", "equal")


def figures(loaded: Loaded) -> tuple[float, int]:
    """Return a step's peak in MiB, its new gradients among it, and its FLOPs."""
    model = loaded.model
    peak = model_peak(model, loaded.args, {}, torch.device("cpu"), set_to_none=True).peak_bytes
    gradients = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
    with FlopCounterMode(display=False) as counter:
        training_step(model, loaded.args, {})
    return (peak + gradients) / MIB, counter.get_total_flops()


def checkpointed(every: int) -> Loaded:
    """Return the model with `torch.utils.checkpoint` around every so many-th layer."""
    loaded = load(MODEL, device="cpu")
    for number, layer in enumerate(loaded.model.layers):
        if number % every == 0:
            layer.forward = _recomputed(layer.forward)
    return loaded


def _recomputed(forward: Callable[..., torch.Tensor]) -> Callable[..., object]:
    return lambda x: checkpoint(forward, x, use_reentrant=False)


def planned(target: float, gradients: int, folder: Path) -> tuple[Loaded, str]:
    """Plan for a peak in MiB that has the new gradients in it, or the lowest there is."""
    source = Path(shutil.copy(MODEL, folder / "gpt.py"))
    budget = fitting = int(target * MIB) - gradients
    for _ in range(TRIES):
        made = plan_at_least(source, budget)
        over = made.plan.predicted.peak_bytes_without_grads + gradients - int(target * MIB)
        if over <= 0:
            fitting = budget
        budget -= over if over <= 0 else (budget - fitting + 1) // 2
    made = plan_at_least(source, fitting)
    assert made.output is not None
    report = verify_file(made.output)
    equal = "bitwise" if report.bitwise else "within tolerance" if report.ok else "NO"
    return load(made.output, device="cpu"), equal


def plan_at_least(source: Path, budget_bytes: int) -> Generated:
    """Plan within a budget, which bounds the peak with `.grad` allocated, or the smallest."""
    try:
        return plan(source, str(budget_bytes))
    except InfeasibleBudgetError as error:
        return plan(source, str(error.smallest_bytes))


def main() -> None:
    """Print the table."""
    eager = load(MODEL, device="cpu")
    peak, flops = figures(eager)
    gradients = sum(p.nbytes for p in eager.model.parameters() if p.requires_grad)
    rows = [("eager", f"{peak:.1f}", "1.000", "")]

    def add(what: str, loaded: Loaded, equal: str = "") -> None:
        peak, mine = figures(loaded)
        rows.append((what, f"{peak:.1f}", f"{mine / flops:.3f}", equal))

    add("torch.utils.checkpoint, every other layer", checkpointed(2))
    add("torch.utils.checkpoint, every layer", checkpointed(1))
    with scratch("gpt_4l") as folder:
        for target in TARGETS:
            loaded, equal = planned(target, gradients, folder)
            add(f"remat-gen, at most {target:g} MiB", loaded, equal)
    print(
        "# GPT-4L\n\nA step after `zero_grad(set_to_none=True)`, on the CPU: the highest number of"
    )
    print("bytes that its allocator had handed out, parameters and inputs not among them, the new")
    print("gradients among them; FLOPs of matrix products and attention.\n")
    print_table(HEAD, rows)


if __name__ == "__main__":
    main()
