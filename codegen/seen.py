"""How a generated module knows quickly that a model is the one it saw in the last step."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from remat_gen.codegen.held import describe_held

MODULE_CONTENTS = (
    "_parameters _buffers _modules _forward_pre_hooks _forward_hooks _backward_pre_hooks "
    "_backward_hooks"
).split()
TENSOR_LAYOUT = operator.attrgetter("shape", "dtype", "device", "requires_grad")


class Seen:
    """The objects of which `structure_of` told: while none is another, it need not tell again.

    It takes a sixth of the time. The model holds this: so it may be held by what it holds itself
    and is let go of all the same; nothing here refers to its `vars`, so it is let go of at once.
    """

    def __init__(
        self,
        model: nn.Module,
        reads: frozenset[str],
        loads: frozenset[str],
        file: Mapping[str, object],
    ) -> None:
        self.reads, self.loads, self.file = reads, loads, file
        modules = list(model.modules())
        self.modules = modules[1:]
        dicts = [vars(module) for module in self.modules]
        dicts += [vars(module)[key] for module in modules for key in MODULE_CONTENTS]
        self.filled = [one for one in dicts if one]
        named = (vars(module)[key] for module in modules for key in MODULE_CONTENTS[:3])
        self.named = [one for one in named if one]
        self.empty = [one for one in dicts if not one]  # most of them
        kinds = {c for module in modules for c in type(module).__mro__}
        self.kinds = [c for c in kinds if c not in nn.Module.__mro__]
        tensors = (*model.parameters(), *model.buffers())
        self.tensors = [t for t in tensors if t.layout is torch.strided]
        self.objects, self.contents = self.look(model)
        values = (value for module in modules for value in vars(module).values())
        self.constants = [v for v in values if isinstance(v, Tensor) and v.numel() <= 4096]
        pairs = (pair for module in modules for pair in vars(module).items())
        read = {id(value): value for key, value in pairs if key in reads}
        self.held = [v for v in read.values() if not isinstance(v, nn.Module)]
        self.described = self.describe()

    def look(self, model: nn.Module) -> tuple[list[object], list[object]]:
        """Return all objects in the dicts, and what may change of what stays the same object."""
        own = [value for value in vars(model).values() if type(value) is not Look]
        values = itertools.chain.from_iterable(map(dict.values, self.filled))
        members = itertools.chain.from_iterable(vars(kind).values() for kind in self.kinds)
        read = map(self.file.get, self.loads)
        kinds = type(model), *map(type, self.modules)
        found = [*kinds, *map(vars, self.modules), *own, *values, *members, *read]
        names = itertools.chain.from_iterable(self.named)
        return found, [*names, *map(TENSOR_LAYOUT, self.tensors), *map(Tensor.stride, self.tensors)]

    def describe(self) -> list[object]:
        """Describe what may change inside while it stays the same object."""
        # a GPU's numbers are not waited for in each step: only writes are noticed there
        numbers = [t.tolist() if t.device.type == "cpu" else t._version for t in self.constants]
        return [numbers, *(describe_held(value, self.reads) for value in self.held)]

    def is_current(self, model: nn.Module) -> bool:
        """Tell whether all is as it was."""
        if any(self.empty):
            return False
        objects, contents = self.look(model)
        same = len(objects) == len(self.objects) and all(map(operator.is_, objects, self.objects))
        return same and contents == self.contents and self.described == self.describe()


class Look:
    """What was seen of the model that holds it, with its blocks' parameters; a copy saw nothing."""

    last: tuple[Seen, list[tuple[Tensor, ...]]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Look, ()
