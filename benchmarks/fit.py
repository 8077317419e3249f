"""The best batch and the largest one, beside eager's largest, within the same memory.

python benchmarks/fit.py [NUMBER …] > benchmarks/results/fit.md

NUMBERs choose lines, from 0. All but the last line are modelled, by the rates of the target named.
"""

from __future__ import annotations

import sys
from pathlib import Path

from planned import ROOT, print_table

from remat_gen.ask.generate_options import GenerateOptions
from remat_gen.best_batch.fitting import fit_file
from remat_gen.terminal.progress import Progress

MODELS = ROOT / "benchmarks" / "target_models"
CASES = (
    (ROOT / "examples" / "gpt.py", GenerateOptions(target="h200", budget="107.3MB")),
    (ROOT / "examples" / "gpt.py", GenerateOptions(target="h200", budget="214.6MB")),
    (MODELS / "unet_224.py", GenerateOptions(target="a100", device_memory="16GB")),
    (MODELS / "vgg19_224.py", GenerateOptions(target="a100", device_memory="16GB")),
    (ROOT / "examples" / "unet.py", GenerateOptions(device="cpu", budget="40MB")),
)
HEAD = (
    *("model", "target", "memory", "eager's largest", "samples/s"),
    *("best batch", "samples/s", "gain", "largest batch", "over eager's"),
)


def row(model: Path, options: GenerateOptions) -> tuple[str, ...]:
    """Return a line of the table."""
    found = fit_file(options.request(model, None), Progress())
    eager, over = found.eager, found.relative(found.best)
    assert eager is not None and over is not None
    return (
        model.name,
        found.device,
        found.limit,
        str(eager.batch),
        f"{eager.samples_per_s:.4g}",
        str(found.best.batch),
        f"{found.best.samples_per_s:.4g}",
        f"{100 * (over - 1):+.1f} %",
        str(found.largest.batch),
        f"× {found.largest.batch / eager.batch:.2f}",
    )


def main() -> None:
    """Print the table."""
    chosen = [int(word) for word in sys.argv[1:]] or range(len(CASES))
    table = [row(*CASES[i]) for i in chosen]
    print("# The best batch\n")
    print("Within the same memory: eager's largest batch, the one of the most samples per second,")
    print(
        "and the largest one that was planned. A device's memory is for AdamW too; 1 GB and 5 % of"
    )
    print("it are headroom; a budget is for activations alone. The CPU's line is measured.\n")
    print_table(HEAD, table)


if __name__ == "__main__":
    main()
