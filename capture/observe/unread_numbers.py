"""Which tensors that are plain attributes nobody reads numbers of: any numbers will do for those.

Fake tensors stand in their place for one step, where who asks for a number fails.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from remat_gen.capture.load.arguments import Call
from remat_gen.capture.observe.outputs import Returned, run_on_fakes
from remat_gen.capture.process.quiet import quiet
from remat_gen.capture.process.replaced import replaced


def unread(
    model: nn.Module, call: Call, returned: Returned, attributes: Mapping[str, Tensor]
) -> frozenset[str]:
    """Return the paths of attributes whose numbers a step does without.

    That is so where it returns what it `returned` with them.
    """

    def does_without(attributes: Mapping[str, Tensor]) -> bool:
        """Run a step with fakes in place of attributes; tell whether it goes on as it did."""
        with suppress(Exception), ExitStack() as fakes, quiet():
            watch = _standing_in(model, attributes, fakes)
            found = run_on_fakes(model, call.args, call.kwargs, watch=watch)
            _backward(pytree.tree_leaves(found.value))
            told, expected = ((r.leaves, r.positions, r.masks) for r in (found, returned))
            return told == expected
        return False

    if not attributes or does_without(attributes):
        return frozenset(attributes)
    return frozenset(path for path in attributes if does_without({path: attributes[path]}))


@contextmanager
def _standing_in(
    model: nn.Module, attributes: Mapping[str, Tensor], undo: ExitStack
) -> Iterator[None]:
    """Put fakes of the mode that runs in place of attributes, until `undo` ends."""
    mode = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
    for path, tensor in attributes.items():
        owner, _, name = path.rpartition(".")
        holder = operator.attrgetter(owner)(model) if owner else model
        undo.enter_context(replaced(holder, name, mode.from_tensor(tensor)))
    yield


def _backward(leaves: Iterable[Any]) -> None:
    """Run backward: functions of the user's own may look at numbers there."""
    wanted = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad]
    with wanted[0].fake_mode:  # type: ignore[attr-defined]
        torch.autograd.backward(wanted, [torch.ones_like(leaf) for leaf in wanted])
