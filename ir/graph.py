"""The joint graph of one training step, free of FX: operations, views, storages.

A *value* is a storage. A *tensor* is a way to look at one: what an operation returned, an input of
the step, or a view of another tensor. Views cost nothing and are no operations; they keep their
storage alive. Costs stand beside the graph (`costs.py`), never in it.

    argument ::= Ref | int | float | bool | str | None | Literal | Size | tuple of arguments
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from remat_gen.ir.errors import GraphError
from remat_gen.ir.paths import OUTERMOST, Layers
from remat_gen.ir.size import Layout, Length, Size

CHECK = "remat.check_value"


class Phase(Enum):
    """Which half of the step an operation was traced in."""

    FORWARD = "forward"
    BACKWARD = "backward"


class Kind(Enum):
    """Where a storage comes from."""

    PARAMETER = "parameter"
    BUFFER = "buffer"
    INPUT = "input"
    CONSTANT = "constant"
    TANGENT = "tangent"  # the gradient that comes into the step's backward
    ACTIVATION = "activation"  # made by a forward operation
    GRADIENT = "gradient"  # made by a backward operation

    @property
    def outside(self) -> bool:
        """Whether the bytes were there before the step, and are never freed by it."""
        return self in (Kind.PARAMETER, Kind.BUFFER, Kind.INPUT, Kind.CONSTANT)


class Trait(Enum):
    """What an operation is, where its name must not decide."""

    RANDOM = "random"  # draws from the global generator of its device
    UPDATES_BUFFER = "updates-buffer"  # one of its results is written back into a buffer
    HANDED_ON = "handed-on"  # another unit holds its result, which a second run would not be


@dataclass(frozen=True, slots=True)
class Ref:
    """An argument that is a tensor of the graph."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """An argument without a Python literal.

    `kind` is dtype, device, layout, memory_format, or float (infinities and nan).
    """

    kind: str
    text: str  # as in `torch.float32`: "float32"; a device: "cpu", "cuda:0"


Argument: TypeAlias = (
    "Ref | Literal | Size | int | float | bool | str | tuple[Argument, ...] | None"
)


@dataclass(frozen=True, slots=True)
class Storage:
    """The bytes behind one or more tensors (unrounded)."""

    name: str
    nbytes: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class Tensor:
    """A view on a storage. Shape, strides and offset in elements; dtype without `torch.`.

    `hint` is the user's word for it, short and not unique; `name` is unique in the graph.
    """

    name: str
    storage: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: str
    device: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """The user's line an operation came from; `file` is a base name, or "" where unknown."""

    file: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Operation:
    """A non-view call of the trace.

    `outputs` has a tensor name per returned tensor, or None where nothing uses it. `hint` is the
    user's name for the result (a variable or a module), `module` the path of the module it ran in.
    `state` is the recorded generator state that a second run of a random operation starts from.
    `node` numbers the nodes of autograd that backward operations are parts of, and those of
    forward operations whose node saves an input that backward does not read.

    Three targets are ours: `remat.rng_state` records the generator's state, `remat.constant` builds
    a small tensor from the numbers in its arguments, `remat.check_value` compares a condition with
    the one that was planned for: it is run once.
    """

    name: str
    target: str  # "aten.addmm.default"
    args: tuple[Argument, ...]
    kwargs: tuple[tuple[str, Argument], ...]
    outputs: tuple[str | None, ...]
    single: bool  # returns one tensor, not a tuple of them
    phase: Phase
    traits: frozenset[Trait]
    source: Source
    module: str
    hint: str
    state: str | None = None
    node: int | None = field(default=None, repr=False)  # no part of a fingerprint


@dataclass(frozen=True, slots=True)
class View:
    """A tensor that looks at the storage of another: `base` is the tensor it was made from.

    `index` is the position in the tuple that a splitting view (`split`, `unbind`) returns.
    """

    tensor: str
    base: str
    target: str
    args: tuple[Argument, ...]
    kwargs: tuple[tuple[str, Argument], ...]
    index: int | None
    source: Source
    hint: str


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor that exists before the step.

    `path` is the name of a parameter or buffer ("h.0.ln_1.weight"), or for an input the access
    from the call's arguments ("ids", "batch[0]", "batch['mask']").
    """

    tensor: str
    kind: Kind
    path: str
    requires_grad: bool


@dataclass(frozen=True, slots=True)
class Output:
    """One leaf of what the model returns: a tensor (`tensor`) or a constant (`constant`).

    `tangent` is the incoming gradient's tensor; None where no gradient flows in.
    `requires_grad` tells whether eager's output carries a gradient, `read_on` whether other outputs
    are made of it. The same tensor returned twice is the same Output twice. Where there is a path
    in `kept`, forward leaves it there on the model, and does not return it.
    """

    tensor: str | None
    constant: Argument
    tangent: str | None
    requires_grad: bool
    read_on: bool = field(default=False, repr=False)  # no part of a fingerprint, nor is
    kept: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Gradient:
    """The gradient that the step returns for a parameter or input; None where it is unused."""

    of: str  # tensor name of the input
    tensor: str | None


@dataclass(frozen=True, slots=True)
class Mutation:
    """A buffer (or input) that the step overwrites with the value of `tensor`."""

    target: str  # tensor name of the input
    tensor: str


@dataclass(frozen=True, slots=True)
class Graph:
    """A training step: forward operations, then backward operations, in traced order.

    Where `lengths` may vary, numbers in tensors and storages are those of the example, which are
    the largest; `layouts` has the shapes and strides that vary, by tensor name. `layers` tells
    which members of the model's lists are its layers.
    """

    inputs: tuple[Input, ...]
    operations: tuple[Operation, ...]
    views: tuple[View, ...]
    tensors: Mapping[str, Tensor]
    storages: Mapping[str, Storage]
    outputs: tuple[Output, ...]
    gradients: tuple[Gradient, ...]
    mutations: tuple[Mutation, ...]
    lengths: tuple[Length, ...] = ()
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    layers: Layers = OUTERMOST

    def storage_of(self, tensor: str) -> Storage:
        """Return the storage that a tensor looks at."""
        return self.storages[self.tensors[tensor].storage]

    def lies_otherwise_alone(self, tensor: Tensor) -> bool:
        """Tell whether a single row of a tensor may be laid out otherwise, as by a convolution."""
        in_rows = tensor.stride == tuple(sorted(tensor.stride, reverse=True))
        return not in_rows and any(length.minimum <= 1 for length in self.lengths)

    def reads(self, operation: Operation) -> tuple[str, ...]:
        """Return the storages an operation reads, each once, in order of its arguments."""
        refs = [*refs_in((operation.args, operation.kwargs))]
        refs += [operation.state] if operation.state else []
        return tuple(dict.fromkeys(self.tensors[name].storage for name in refs))

    def writes(self, operation: Operation) -> tuple[str, ...]:
        """Return the storages an operation makes."""
        return tuple(dict.fromkeys(self.tensors[o].storage for o in operation.outputs if o))


def refs_in(argument: Argument) -> Iterator[str]:
    """Yield the names of the tensors in an argument, in order."""
    if isinstance(argument, Ref):
        yield argument.name
    elif isinstance(argument, tuple):
        for item in argument:
            yield from refs_in(item)


def verify(graph: Graph) -> Graph:
    """Check a graph and return it.

    Raises:
        GraphError: a tensor is used before it is made, made twice, or looks at no known storage;
            a forward operation follows a backward one.
    """
    views = {view.tensor: view for view in graph.views}
    made = {i.tensor for i in graph.inputs} | {o.tangent for o in graph.outputs if o.tangent}

    def root(name: str) -> str:
        while name in views:
            name = views[name].base
        return name

    backward_seen = False
    for operation in graph.operations:
        backward_seen |= operation.phase is Phase.BACKWARD
        if backward_seen and operation.phase is Phase.FORWARD:
            raise GraphError(f"forward operation {operation.name} follows a backward operation")
        for name in refs_in((operation.args, operation.kwargs)):
            if root(name) not in made:
                raise GraphError(f"{operation.name} uses {name} before it is made")
        for output in operation.outputs:
            if output in made:
                raise GraphError(f"{output} is made twice")
            if output:
                made.add(output)
    for tensor in graph.tensors.values():
        if tensor.storage not in graph.storages:
            raise GraphError(f"{tensor.name} looks at an unknown storage {tensor.storage}")
    return graph


def unplanned_outputs(graph: Graph) -> Iterator[str]:
    """Yield the outputs that carry a gradient and get none: all but the loss, if there is one.

    Not what forward keeps on the model, nor a parameter that is handed on: its gradient is its own.
    """
    for i, output in enumerate(graph.outputs, start=1):
        if output.tensor is None or output.tangent or output.kept or not output.requires_grad:
            continue
        if not graph.storage_of(output.tensor).kind.outside:
            yield f"{graph.tensors[output.tensor].hint} (output {i})"
