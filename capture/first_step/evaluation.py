"""What a model is before its first step, or behind an evaluation, and a step makes of it.

Weights that are scaled for inference, say, with a note that they are; or a table that is kept with
the length that it is for. A generated module lets forward run ahead of such a step. That this
undoes all of it is compared, never assumed.
"""

from __future__ import annotations

import contextlib
import dis
import inspect
import types
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from remat_gen.capture.first_step.compared_runs import Run, values_kept
from remat_gen.capture.load.arguments import Call
from remat_gen.capture.load.shorter_call import at_lengths
from remat_gen.capture.observe.assumed import File, described
from remat_gen.capture.observe.repeats import Reads
from remat_gen.capture.process.copies import copied
from remat_gen.capture.process.generators import kept_generators
from remat_gen.capture.process.operands import lack_values
from remat_gen.capture.process.quiet import quiet
from remat_gen.capture.values.holding import Holding, held_as_before
from remat_gen.ir.size import Length

ANY = ""  # in place of what is said: it may be anything else than it is behind a step


def turned_otherwise(model: nn.Module, call: Call, reads: Reads, *, tables: bool) -> dict[str, str]:
    """Describe what forward reads before a step that makes it what it is behind each.

    That is as an evaluation leaves it; where a first step leaves `tables`, as that finds it, too.
    What follows from the evaluation's lengths may be `ANY`. The model runs for real where its
    methods assign what forward reads; it is as before then.
    """
    given = [leaf.value for leaf in call.leaves if isinstance(leaf.value, Tensor)]
    if not _assigns(model, reads) or lack_values((*model.parameters(), *model.buffers(), *given)):
        return {}
    with contextlib.suppress(Exception), held_as_before(model):  # of the user's own code
        return _turned(model, call, reads, tables=tables)
    return {}


def _turned(model: nn.Module, call: Call, reads: Reads, *, tables: bool) -> dict[str, str]:
    fresh, found = Holding.of(model), _words(model, reads)
    expected = Run.of(model, call)
    settled, usual = Holding.of(model), _words(model, reads)
    shorter = [*_shorter(call)]
    runs: list[tuple[Holding, Call | None]] = [(settled, given) for given in (call, *shorter)]
    if tables and found != usual:
        runs = [*((fresh, given) for given in (None, *shorter)), *runs]
    turned: dict[str, str] = {}
    for before, given in runs:
        with contextlib.suppress(Exception), values_kept(model):  # a length may be none of its
            before.put_back()
            if given:
                _evaluate(model, given)
            said = {p: words for p, words in _words(model, reads).items() if words != usual[p]}
            undone = said and Run.of(model, call).does_as(expected)
            if undone and _words(model, reads) == usual:
                of_length = given is not None and given is not call
                turned |= {
                    p: ANY if of_length and turned.get(p) != words else words
                    for p, words in said.items()
                }
    return turned


def _shorter(call: Call) -> Iterator[Call]:
    """Yield the call with half of each size that its tensors have."""
    dims: dict[int, list[tuple[str, int]]] = {}
    for leaf in call.leaves:
        for dim, size in enumerate(leaf.value.shape if isinstance(leaf.value, Tensor) else ()):
            dims.setdefault(size, []).append((leaf.path, dim))
    for size in sorted(dims.keys() - {0, 1}):
        yield at_lengths(call, {Length("", 1, size, tuple(dims[size])): size // 2})


def _evaluate(model: nn.Module, call: Call) -> None:
    with _evaluating(model), kept_generators(), quiet(), torch.no_grad():
        args, kwargs = pytree.tree_map_only(Tensor, copied, (call.args, call.kwargs))
        model(*args, **kwargs)


def _words(model: nn.Module, reads: Reads) -> dict[str, str]:
    return dict(described(model, reads.paths, File(reads.file)))


@contextlib.contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def _assigns(model: nn.Module, reads: Reads) -> bool:
    """Tell whether methods of modules, but `__init__`, assign an attribute that is read."""
    owners = {name for name, _ in model.named_modules()}
    read = {path.rpartition(".")[2] for path in reads.paths if path.rpartition(".")[0] in owners}
    kinds = {kind for module in model.modules() for kind in type(module).__mro__}
    members = (vars(kind).items() for kind in kinds if kind.__module__.partition(".")[0] != "torch")
    held = (member for own in members for name, member in own if name != "__init__")
    methods = (inspect.unwrap(member) for member in held if isinstance(member, types.FunctionType))
    codes = (method.__code__ for method in methods if isinstance(method, types.FunctionType))
    return any(
        step.opname == "STORE_ATTR" and step.argval in read
        for code in codes
        if not read.isdisjoint(code.co_names)
        for step in dis.get_instructions(code)
    )
