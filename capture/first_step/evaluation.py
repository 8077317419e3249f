"""What an evaluation makes of a model, where the next training step makes it as it was again.

Weights that are scaled for inference, say, with a note that they are. A generated module lets
forward run ahead of such a step. That this undoes all of it is compared, never assumed.
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
from remat_gen.capture.observe.assumed import File, described
from remat_gen.capture.observe.repeats import Reads
from remat_gen.capture.process.copies import copied
from remat_gen.capture.process.generators import kept_generators
from remat_gen.capture.process.operands import lack_values
from remat_gen.capture.process.quiet import quiet
from remat_gen.capture.values.holding import held_as_before


def turned_by_evaluation(model: nn.Module, call: Call, reads: Reads) -> dict[str, str]:
    """Describe what forward reads as an evaluation leaves it, where the next step undoes that.

    The model runs for real where its methods assign what forward reads; it is as before then.
    """
    given = [leaf.value for leaf in call.leaves if isinstance(leaf.value, Tensor)]
    if not _assigns(model, reads) or lack_values((*model.parameters(), *model.buffers(), *given)):
        return {}
    with contextlib.suppress(Exception), held_as_before(model):  # of the user's own code
        return _turned(model, call, reads)
    return {}


def _turned(model: nn.Module, call: Call, reads: Reads) -> dict[str, str]:
    expected, before = Run.of(model, call), _words(model, reads)
    with values_kept(model):
        with _evaluating(model), kept_generators(), quiet(), torch.no_grad():
            args, kwargs = pytree.tree_map_only(Tensor, copied, (call.args, call.kwargs))
            model(*args, **kwargs)
        turned = {path: said for path, said in _words(model, reads).items() if said != before[path]}
        undone = turned and Run.of(model, call).does_as(expected)
        return turned if undone and _words(model, reads) == before else {}


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
