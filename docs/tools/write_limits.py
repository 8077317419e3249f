"""Write docs/limits.md from the tests that prove it: those marked `limit` or `untold`.

python docs/tools/write_limits.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "limits.md"
_HEAD = """# Limits

What is not supported, and what happens then. Each row is a test that shows the error; what no error
tells has a section of its own. This page is written from the tests
(`python docs/tools/write_limits.py`).
"""
_NOT_THERE = """
## Not there at all

- Tensor parallelism; ZeroBubble's pipelines (others: `docs/distributed.md`).
- Offload of parameters, gradients and optimizer state, and offload together with `--compile`.
  Activations go to the host with `--offload`.
- Sizes that change from step to step, other than smaller batches and what `--dynamic` names.
- An input that is a slice of longer rows (`x[:, :-1]`) is planned for rows as far apart as the
  example's: with `--dynamic x:1` slices of other rows are refused by name. Plan with contiguous
  inputs, and give such.
- CUDA graphs of steps that do anything on the host, or under DistributedDataParallel
  (`docs/cuda-graphs.md`).
- cuDNN's BatchNorm where no running statistics are updated: without them, in `eval()`, and in
  InstanceNorm. On a GPU eager runs it in 32 bits; a planned step runs PyTorch's own kernel there,
  which rounds otherwise. `verify` lets the original run that one, too.
- Networks whose gradients on a GPU differ from run to run by more than rounding, as a ResNet's: the
  two models run torch's deterministic algorithms there, which `verify` says. Where an operator has
  none (the gradient of bilinear resampling) it says *not repeatable*.
- On a GPU an `nn.LSTM`, `nn.GRU` or `nn.RNN` with dropout between its layers, under autocast, with
  packed sequences or without cuDNN is refused when it is planned. Layers of their own with
  `nn.Dropout` between them are planned.
- On a GPU kernels are chosen by the batch: those of a smaller one are measured at halves of the
  example's. Of 97 models one (FocalNet, 4 images) took 5 % more than its budget at a batch of 3.
- `torch.backends.cudnn.benchmark = True`: cuDNN then picks other kernels, with other workspace,
  from run to run, and the peak may exceed the budget.
- On Hopper PyTorch 2.11 and later run cuDNN's attention in 16 bits, and a plan that is made there
  runs it, too. Where a mask is given, the length is 64 above a multiple of 128 and a row's
  log-sum-exp is below -88, its gradient of the queries has nan (pytorch#196678), eager's as well:
  put `torch.backends.cuda.enable_cudnn_sdp(False)` into the model's file, and plan again.
"""
_UNTOLD = """
## What no error tells

Each item is a test that shows the difference.

"""
_TAIL = """
## Equal within tolerance, not to the bit

PyTorch itself takes other formulas here when it is traced. `verify` says so, with the difference.

- With units a parameter that one of them reads twice, and another call, another unit or the model
  once more: eager adds the gradients of all readers one by one.
- An `nn.GRU` or `nn.RNN` on the CPU that `forward` calls twice: eager adds the gradients of all of
  its steps into one sum.
- A function made by `torch.jit.script`: from its second call on eager takes TorchScript's own
  formula for its gradient (the summary names the line under *left out*).
- A weight that is tied within the model, after two forwards and one backward or with a term of its
  own in the loss, and an input that is returned too: their gradients are added in another order.
- Gradients that come into an output in other strides than it has: eager goes on in those.
- A batch of 1 (`verify` tries about half of the example's), or one by which a length that follows
  from it is 1 (`x.chunk(2)` of two samples), where a reshape in front of a product is a view and
  else a copy: autograd chooses by strides which product its gradient is. With `--dynamic` a
  sequence that is padded and cut into pieces is copied in front of a product where eager looks at
  it, at all lengths.
- One tensor for three arguments that were apart in the example: its gradients are added in another
  order.
- The gradient of `x.prod(dim)`, and that of a tensor as the value of `masked_fill`: eager's looks
  at the values, a trace's does not.
- A product written into a view whose rows lie across memory (`y.transpose(0, 2)[0].addmm_(a, b)`).
- `cross_entropy` with class weights, label smoothing and `ignore_index` at once.
- Gradients that share memory in eager: `torch.cat([a, b]) + c.flatten(0, 1)` hands several
  parameters views of one gradient, so that accumulating or clipping changes them together (eager's
  are wrong then). A planned step's gradients are apart.
- A gradient into an output that is itself a parameter: it is added in another order (`verify` sends
  none there).

## What no measurement of ours includes

- An output's gradient that comes in other strides than the output has (of a mean of a transposed
  output, say) is copied: its bytes are there once more until the backward of its block ends.
- "Eager" in a prediction is the graph's own. Where a model writes rows in place, or a library holds
  what nobody reads, the original's measured peak is another one; `verify` measures both.
"""
_ITEM = textwrap.TextWrapper(100, "- ", "  ", break_long_words=False, break_on_hyphens=False)
_SECTIONS = {
    "tests/capture": "When the model is planned",
    "tests/cli": "When the model is planned",
    "tests/dynamic": "In a step, where lengths vary",
    "tests/semantics": "In a step",
    "tests/units": "Where units are planned",
}


def rows() -> list[tuple[str, ...]]:
    """Collect what the tests' marks say: (file, what is not supported, what happens then).

    Of `untold` it is (file, text).
    """
    files = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if _has_marks(path)]
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
        command += ["--limit-rows", str(target), *map(str, files)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        found = json.loads(target.read_text(encoding="utf-8"))
    return list(dict.fromkeys(map(tuple, found)))


def _has_marks(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    return "pytest.mark.limit(" in text or "pytest.mark.untold(" in text


def page(found: Iterable[tuple[str, ...]]) -> str:
    """Return the page: a table for each stage, and the tests that prove it."""
    sections: dict[str, list[tuple[str, ...]]] = {}
    untold: list[tuple[str, ...]] = []
    for row in found:
        folder = "/".join(row[0].split("/")[:2])
        (untold if len(row) == 2 else sections.setdefault(_SECTIONS[folder], [])).append(row)
    tables = "\n".join([_HEAD, *(_section(name, rows) for name, rows in sections.items())])
    items = "".join(f"{_ITEM.fill(text)}\n" for _, text in untold)
    return tables + _NOT_THERE + _UNTOLD + items + f"\n{_proof(untold)}" + _TAIL


def _section(name: str, found: Sequence[tuple[str, ...]]) -> str:
    table = "".join(f"| {what} | {then} |\n" for _, what, then in found)
    return f"## {name}\n\n| not supported | what happens |\n|---|---|\n{table}\n{_proof(found)}"


def _proof(found: Sequence[tuple[str, ...]]) -> str:
    files = ", ".join(f"`{file}`" for file in dict.fromkeys(row[0] for row in found))
    return f"Proved by {files}.\n"


if __name__ == "__main__":
    PAGE.write_text(page(rows()), encoding="utf-8")
