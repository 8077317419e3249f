"""What a model's own file asks torch of how it runs is answered as in a plain step.

Dynamo says yes to `torch.compiler.is_compiling()`: the plan would be of a branch that eager mode
never takes. Libraries keep that answer, by which they leave out looks at values that no trace can
take, unless their other branch is what fails; where the user's own code asks, its numbers are what
counts. So they are where a library has another way for an export: loops in place of kernels.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import torch
import torch._dynamo
from torch._dynamo.functional_export import dynamo_graph_capture_for_export

from remat_gen.capture.process.libraries import is_library_file
from remat_gen.capture.process.replaced import replaced
from remat_gen.ir.errors import TraceError

T = TypeVar("T")
_TORCH = str(Path(torch.__file__).parent)
_EXPORTING = "is_exporting"
QUESTIONS: tuple[tuple[ModuleType, str], ...] = (
    (torch.compiler, "is_compiling"),
    (torch.compiler, "is_dynamo_compiling"),
    (torch.compiler, _EXPORTING),
    (torch._dynamo, "is_compiling"),
)


@dataclass(slots=True)
class Asked:
    """Whether the user's own code has asked, whether a library has.

    `for_export` where one but torch itself wants to know whether it is exported.
    """

    by_user: bool = False
    by_library: bool = False
    for_export: bool = False


@contextmanager
def watched_questions() -> Iterator[Asked]:
    """Watch who asks while a model runs on fake tensors."""
    asked = Asked()
    with ExitStack() as stack:
        for module, name in _places():
            stack.enter_context(replaced(module, name, _noting(asked, getattr(module, name))))
        yield asked


def _places() -> list[tuple[ModuleType, str]]:
    """Return where the questions stand: in torch, and where files have imported them from there."""
    own = {id(getattr(module, name)) for module, name in QUESTIONS}
    places = [*QUESTIONS]
    for name, file in list(sys.modules.items()):
        if name.partition(".")[0] != "torch" and isinstance(file, ModuleType):
            held = object.__getattribute__(file, "__dict__")  # a lazy module's own would be heard
            if not own.isdisjoint(map(id, held.values())):  # who hears calls hears none of these
                places += [(file, name) for name, value in held.items() if id(value) in own]
    return places


def _noting(asked: Asked, question: Callable[[], bool]) -> Callable[[], bool]:
    def noted() -> bool:
        file = sys._getframe(1).f_code.co_filename
        if is_library_file(file):
            asked.by_library = True
        else:
            asked.by_user = True
        asked.for_export |= question.__name__ == _EXPORTING and not file.startswith(_TORCH)
        return question()

    return noted


def first_as_eager(asked: Asked, trace: Callable[[], T]) -> T:
    """Trace with a plain step's answers if the user has asked, or a library about an export.

    Else, and where that fails, without: what eager mode runs may look at values, and then there is
    no other trace than a compiler's. Where that fails though nobody but a library has asked, as
    LongT5's for want of the mask that it makes in a plain step, the plain step's answers come last.
    """
    if asked.by_user or asked.for_export:
        with suppress(TraceError), _answered_as_eager():
            return trace()
    try:
        return trace()
    except TraceError:
        if asked.by_library and not (asked.by_user or asked.for_export):
            with suppress(TraceError), _answered_as_eager():
                return trace()
        raise


@contextmanager
def _answered_as_eager() -> Iterator[None]:
    """Let functions that say no stand in the questions' place, behind Dynamo's back.

    Dynamo notes once in a process which functions the questions are: before, or it could not trace
    them any more.
    """
    dynamo_graph_capture_for_export(_asks)(torch.zeros(()))
    with ExitStack() as stack:
        for module, name in _places():
            stack.enter_context(replaced(module, name, lambda: False))
        yield


@contextmanager
def anomaly_as_outside() -> Iterator[None]:
    """Answer whether autograd looks for anomalies as outside: torch traces in that mode."""
    enabled = torch.is_anomaly_enabled()
    with replaced(torch, "is_anomaly_enabled", lambda: enabled):
        yield


def _asks(tensor: torch.Tensor) -> torch.Tensor:
    return tensor + torch.compiler.is_compiling()
