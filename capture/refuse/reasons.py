"""Why a model cannot be traced: one sentence with the user's line, out of what torch says."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator

from torch._subclasses.fake_tensor import UnsupportedOperatorException

from remat_gen.capture.refuse.places import Place, place_of
from remat_gen.capture.refuse.untraceable import OWN_GENERATOR
from remat_gen.ir.errors import RefusedKernelError, said

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')

# What torch's own code looks at: found by its lines on the stack, whatever its message says.
_LOOKS = (
    (
        r"float\(self\.num_batches_tracked\)",
        "BatchNorm with momentum=None divides by how many steps it has counted: give it a momentum",
    ),
)
# What torch's message contains, and what it means for the user; {0} is the group that was matched.
_REASONS = (
    (
        r"Data-dependent branching",
        "a branch depends on the value of a tensor: use torch.where, or decide outside of forward",
    ),
    (
        r"(aten\.(?:item|_local_scalar_dense|is_nonzero)\S*)",
        "a tensor becomes a Python number (.item(), int(), bool(), an index without dimensions), "
        "so that what runs depends on its value: keep it a tensor",
    ),
    (
        r"\b(?:not|got) (?:\([^()]*\b)?(?:Compared|Selected)\b",
        "a tensor's number (.item(), int()) is an argument, and it is another one in each step: "
        "keep it a tensor; or give --fix for its input, if that is the same in each step",
    ),
    (
        r"tensors used as indices must be long, int, byte or bool",
        "an index of uint8 picks how many its values say: use torch.where with a mask, or a sum",
    ),
    (
        r"graph_module already has attributes conflicting with root\._modules",
        "a child of the model has the name of a method of nn.Module (parameters, children, …): "
        "rename it",
    ),
    (
        r"Unsupported Tensor\.resize_\(\) call|Attempted to set the storage of a tensor",
        "a tensor is resized: make it in its shape, as x.new_empty(shape) does",
    ),
    (
        r"^aten\._ctc_loss\S*$",
        "how much memory ctc_loss takes depends on the lengths: return the log-probabilities, and "
        "call it outside of the model",
    ),
    (
        r"^(aten\.\S+?)(?:\.default)?$",
        "the shape that {0} returns depends on the values of a tensor: use torch.where, a mask, "
        "or a fixed size",
    ),
    (
        r"backward through (\S+?)(?:\.default)? but no autograd formula",
        "{0} has no backward: register one with torch.library.register_autograd",
    ),
    (
        r"no fake impl registered for <?(?:CustomOpDef\()?([\w:.]+)",
        "{0} has no fake implementation, which gives the shapes of its results: register one with "
        "torch.library.register_fake",
    ),
    (
        r"you can only change requires_grad flags of leaf variables",
        "forward turns requires_grad of parameters on and off: freeze them before the step, or "
        "call that part with torch.func.functional_call and detached parameters",
    ),
    (
        r"Cannot backprop through mirrored meta",
        "an autograd function calls backward() in its own, as reversible blocks do: call the "
        "layers themselves; a planned step frees and runs again by itself",
    ),
    (
        r"expected a torch\.ByteTensor, but got NoneType",
        "an autograd function sets a generator's state in its backward, as reversible blocks do: "
        "call the layers themselves; a planned step frees and runs again by itself",
    ),
    (
        r"TensorIterator does not support symbolic shapes",
        "an operator has no kernel for lengths that vary, as softshrink has none",
    ),
    (
        r"a leaf Variable that requires grad is being used in an in-place",
        "forward writes into an input that requires grad, where a step begins: write into a "
        "clone() of it",
    ),
    (
        r"Observed exception[\s\S]*raised exception ([^\n]*)",
        "forward raises {0}",
    ),
    (
        r"^((?:name|cannot access local variable) '\w+'.*)$",
        "forward raises NameError: {0}",
    ),
    (
        r"^(.+\(\) (?:takes|missing|got an unexpected keyword|got multiple values) .*)$",
        "forward raises TypeError: {0}",
    ),
    (
        r"Found <class '(?:[\w.]+\.)?(\w*Cache)'> in output",
        "forward returns a {0}, which generation needs and training does not: give use_cache=False "
        "in example_inputs(), or set it in the model's config",
    ),
    (
        r"Found <class '(?:[\w.]+\.)?(\w+)'> in output",
        "forward returns a {0}, which holds tensors that torch cannot see: return a tuple, a dict "
        "or a dataclass",
    ),
    (
        r"modified by an inplace operation: (\[[^\]]*\[[^\]]*\]\])",
        "eager's backward fails too: a tensor {0} that it needs was changed in place",
    ),
    (
        r"INTERNAL ASSERT FAILED.*RegisterFunctionalization",
        "backward writes into a tensor of the module, as a hook or an autograd function may: write "
        "into it in forward, or after the step",
    ),
    (
        r"expected predicate to be bool, got torch\.(\w+)",
        "torch.where has a condition of {0}: make it one by .bool()",
    ),
    (
        r"SymIntArrayRef expected to contain only concrete integers",
        "an operator needs its sizes as they are, not lengths that vary",
    ),
    (
        r"got (\w+)\(['\"](.*?)['\"]\)",
        "{0}: {1}",
    ),
    (
        r"function `(pack_(?:padded_)?sequence)`",
        "how many rows {0} makes depends on values: run the RNN on the padded sequences, and mask "
        "what it returns",
    ),
    (
        r"Attempted to call function marked as skipped[\s\S]*?function `([^`]+)`",
        "torch cannot trace {0}",
    ),
    (
        r"Dynamo does not (?:know how to trace|support (?:tracing|calling)) ((?:\w+ )*`[^`]+?)\.?`",
        "torch cannot trace {0}`",
    ),
    (
        r"Attempted to call function marked as skipped",
        "torch cannot trace a function that forward calls",
    ),
    (r"argument of type: <class 'torch\._C\.Generator'>", OWN_GENERATOR),
)


def explain(*errors: Exception) -> str:
    """Return `gpt.py:22: the model cannot be traced: …` for errors of several attempts.

    The first reason that is known counts, else what the first error says; the place is that of the
    error that gave the reason, where it has one.
    """
    telling = sorted(errors, key=lambda error: next(_reasons(error), None) is None)
    first_lines = filter(None, map(_first_line, errors))
    reason = next(_reasons(telling[0]), "") or next(first_lines, "no reason was given")
    places = (place for error in telling for place in _places(error))
    return next(places, Place()).untraceable(reason)


def _reasons(error: Exception) -> Iterator[str]:
    yield from (str(own) for own in _chain(error) if isinstance(own, RefusedKernelError))
    unknown = (own.func for own in _chain(error) if isinstance(own, UnsupportedOperatorException))
    yield from (f"torch has no rule for the shapes that {f} returns" for f in unknown)
    text = said(error)
    frames = (f"{frame.name}: {frame.line}" for frame in traceback.extract_tb(error.__traceback__))
    stack = "\n".join((text, *frames))
    yield from (reason for pattern, reason in _LOOKS if re.search(pattern, stack))
    first = text.strip().partition("\n")[0]
    for pattern, reason in _REASONS:
        found = re.search(pattern, first if pattern.startswith("^") else text)
        if found:
            yield _shortened(reason.format(*found.groups()))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what led to it: tracers raise errors of their own of ours."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _places(error: Exception) -> Iterator[Place]:
    """Yield where an error comes from: by its message and notes, then by its own frames."""
    texts = [said(error), *getattr(error, "__notes__", ())]
    frames = [(file, int(line)) for text in texts for file, line in _FRAME.findall(text)]
    raised = [(f.filename, f.lineno or 0) for f in traceback.extract_tb(error.__traceback__)]
    for stack in (frames, raised):
        place = place_of(reversed(stack))
        if str(place):
            yield place


def _first_line(error: Exception) -> str:
    line = next((line.strip() for line in said(error).splitlines() if line.strip()), "")
    kind = type(error).__name__
    return _shortened(line if kind in ("Unsupported", "TraceError") else f"{kind}: {line}")


def _shortened(text: str) -> str:
    sentence = text.split(". ", 1)[0].rstrip(". ")
    return sentence if len(sentence) <= 200 else sentence[:199] + "…"
