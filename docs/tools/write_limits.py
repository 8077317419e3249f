"""Write docs/limits.md from the tests that prove it: those marked `limit(what, then)`.

python docs/tools/write_limits.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "limits.md"
_HEAD = """# Limits

What is not supported, and what happens then. Each row is a test that shows the error; what no error
tells has a section of its own. This page is written from the tests
(`python docs/tools/write_limits.py`).
"""
_TAIL = """
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

## What no error tells

- A hook of a parameter from which nothing leads to the outputs that the loss is made of, or of
  another output, is called with None, where eager does not call it.
- Hooks of parameters run in the order in which a block hands its gradients over, which may be
  another than eager's within the block: those that draw (gradient noise) draw other numbers.
- Units whose inputs the loss reads, too, where the planned step did not show it (a hook that
  collects them, an argument that returns them later): gradients are added up in another order than
  eager's, and differ in the last bits. So are those of a tensor that a unit is given for two
  arguments and that something else reads, too (`x = block(x, x0)`, first with `x0` for both), and
  those of DDP in three processes and more, by the order of its buckets (`docs/distributed.md`).
- `print` and other Python that `forward` runs beside its tensors and that leaves nothing behind
  runs when the model is planned, not in a planned step. (What it counts or appends is refused.)
- Code: a function that is put in place of another of its name, or of a layer's class as its
  `__call__`, and layers and functions that are edited in other files. `remat-gen check` traces the
  model again, and sees both; of a library the version is a row.
- What `forward` reads of context variables, and of attributes of a library's functions, classes
  and modules (`F.scaled_dot_product_attention = …`): changed since planning, a planned step goes
  on with what it was. So it does with what it asks of a tensor that it is given beside its layout
  (`is_leaf`, `_version`, `.grad`, own attributes), and what it reads of `.grad` of its parameters
  (`verify` tells).
- `functools.singledispatch` on a length that varies, in a model that keeps something on itself: it
  goes as for no number (`verify` tells).
- Objects in a set, or in a dict under a key that is no name (an `Enum`, a pair, `"0"`),
  attributes of a `threading.local`, of an `Enum`'s member or of a module object made by hand, the
  numbers behind a `torch.finfo` of the model's: another one in their place is not seen. Nor is
  what `forward` finds by `dir(self)` or `vars(self).values()`, in a descriptor of the user's own,
  by `dict.get(self.d, …)`, behind a weak reference, as an own attribute of a parameter, by `"X"
  in globals()`, in a text that it evaluates, or in a file; nor a global that is put over a
  function of Python's, what is put where a `defaultdict` makes an item, another function
  registered by `singledispatch`, another class of the same object, and what its class is given as
  `__call__` or `__len__`.
- `is` between lengths (`n is t`, `(n == 5) is True`), where it is so at other lengths than
  the example's, half of it and the least: a plan goes on as elsewhere.
- A table that `forward` makes where there is none and keeps on a module (`self.cos`), and another
  one that somebody puts there: a planned step computes its own.
- What a `TorchFunctionMode`, `saved_tensors_hooks` that round, `parametrize.cached()` or the cache
  of casts of one `autocast` region would do to calls of a planned model: it keeps and casts by
  itself.
- What `forward` asks of the process by other ways than a function of torch's without arguments,
  called in the model's own files: those are rows of `ASSUMED`, and torch's default dtype is where
  something is made in it.
- A buffer that `forward` writes into, given to the same model as an input (`m(m.queue)`): eager's
  version check may raise where a planned step goes on.
- `p.data = …` and `p.data.mul_(…)` between a step's forward and its backward: backward, and what it
  runs again, read the new numbers, eager's some of the old ones. (Parameters that are changed in
  place by themselves raise, as in eager; also where only what runs again reads them.)
- A mode that `forward` itself sets (`self.norm.eval()`): the step computes as eager's, and behind
  it the module is in the mode that it was in.
- What `copy.deepcopy` makes of a library's function that holds a tensor (x-transformers' tied
  head): eager's copy goes on with the original's, a planned one with its own.
- `out.data.mul_(…)` and writes through `out.numpy()` on an output before backward, and such writes
  into an input (an array that `torch.from_numpy` was given, refilled before backward): PyTorch's
  version check sees neither; what a plan runs again reads what was written, so that gradients
  differ from eager's.
- A hook on an output that is then changed in place (`h.register_hook(…); h.mul_(2)`): where eager's
  is a view, as a linear layer's in three dimensions, PyTorch forgets the hook; here it is called.
- `torch.nn.attention.sdpa_kernel(…)` around a step that was planned without it: attention's kernel
  is the planned one (last bits differ). So it is with `torch.backends.mkldnn.flags(…)` and other
  settings of torch's that `forward` itself changes; what it leaves set (`torch.set_…`) is not set.
- An output into which no gradient comes (the keys and values beside the logits), or one in another
  layout than the output's (a loss of `y.transpose(1, 2)`): gradients are laid out as for one that
  comes as the output is, and sums over them go in another order than eager's (last bits). A model
  that returns its loss is not affected.
- Hooks for all modules (`register_module_forward_hook`) are called for the model as a whole.
- A thread that draws random numbers while backward draws a dropout's again, from the state that
  their generator had: either may get the other's. Masks that are kept are safe.
- On Hopper PyTorch 2.11 and later run cuDNN's attention in 16 bits, and a plan that is made there
  runs it, too. Where a mask is given, the length is 64 above a multiple of 128 and a row's
  log-sum-exp is below -88, its gradient of the queries has nan (pytorch#196678), eager's as well:
  put `torch.backends.cuda.enable_cudnn_sdp(False)` into the model's file, and plan again.

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
_SECTIONS = {
    "tests/capture": "When the model is planned",
    "tests/cli": "When the model is planned",
    "tests/dynamic": "In a step, where lengths vary",
    "tests/semantics": "In a step",
    "tests/units": "Where units are planned",
}


def rows() -> list[tuple[str, str, str]]:
    """Collect (test file, what is not supported, what happens then) from the tests' marks."""
    files = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if _has_marks(path)]
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
        command += ["--limit-rows", str(target), *map(str, files)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        found = json.loads(target.read_text(encoding="utf-8"))
    return list(dict.fromkeys((file, what, then) for file, what, then in found))


def _has_marks(path: Path) -> bool:
    return "pytest.mark.limit(" in path.read_text(encoding="utf-8")


def page(found: Iterable[tuple[str, str, str]]) -> str:
    """Return the page: a table for each stage, and the tests that prove it."""
    sections: dict[str, list[tuple[str, str, str]]] = {}
    for row in found:
        folder = "/".join(row[0].split("/")[:2])
        sections.setdefault(_SECTIONS[folder], []).append(row)
    return "\n".join([_HEAD, *(_section(name, rows) for name, rows in sections.items())]) + _TAIL


def _section(name: str, found: Sequence[tuple[str, str, str]]) -> str:
    table = "".join(f"| {what} | {then} |\n" for _, what, then in found)
    files = ", ".join(f"`{file}`" for file in dict.fromkeys(file for file, _, _ in found))
    return (
        f"## {name}\n\n| not supported | what happens |\n|---|---|\n{table}\nProved by {files}.\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page(rows()), encoding="utf-8")
