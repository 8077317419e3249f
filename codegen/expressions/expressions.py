"""Arguments, views and calls as text with marks."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch

from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.rnn.run_whole import RUNS
from remat_gen.capture.rnn.step_by_step import STEPS
from remat_gen.codegen.expressions import spelling
from remat_gen.codegen.expressions.copied_matrices import copied_matrices, copies
from remat_gen.codegen.expressions.in_place_forms import SLICE, gradient_form, method_of, part_of
from remat_gen.codegen.expressions.kernel_functions import Kernel
from remat_gen.codegen.expressions.marks import Mark, argument, written
from remat_gen.codegen.expressions.reordered_dims import reordered
from remat_gen.ir.errors import EmitError
from remat_gen.ir.graph import (
    CHECK,
    Argument,
    Graph,
    Kind,
    Literal,
    Operation,
    Phase,
    Ref,
    Source,
    View,
    refs_in,
)
from remat_gen.ir.size import Size, evaluate

BATCH_NORM = "aten._native_batch_norm_legit_functional.default"
# what is called for a batch norm, and how many results it has: it updates its statistics itself
BATCH_NORMS = {
    BATCH_NORM: ("torch.native_batch_norm", 3),
    "remat.cudnn_batch_norm.default": ("torch.cudnn_batch_norm", 4),
}
_RESIZED_LOSSES = frozenset(
    f"aten.{name}.default"
    for name in ("binary_cross_entropy", "mse_loss", "smooth_l1_loss", "soft_margin_loss")
)
"""Their result is allocated for each element, then resized to the sum or mean of them."""
_LIKE_INPUT = frozenset(
    f"aten.{name}.default"
    for name in """mse_loss_backward smooth_l1_loss_backward huber_loss_backward elu_backward
    hardswish_backward hardsigmoid_backward hardtanh_backward softplus_backward
    _softmax_backward_data _log_softmax_backward_data""".split()
)
"""Their kernels lay gradients out like an input, where the trace has them contiguous."""
_CONVOLUTION = "aten.convolution.default"
_SUM = "aten.sum.dim_IntList"
_PRODUCTS = {  # how they are written, and of how many dimensions
    "aten.mm.default": ("torch.mm", 2),
    "aten.addmm.default": ("torch.addmm", 2),
    _SUM: ("torch.sum", 2),
    "aten.bmm.default": ("batch_mm", 3),
}
DROPOUT_MASK = "remat.dropout_mask.default"
DROPOUT_SCALE = "remat.dropout_scale.default"
_RNNS = {
    "remat.rnn.default": "run_rnn",
    "remat.rnn_backward.default": "rnn_backward",
    "remat.rnn_steps.default": "run_steps",
    "remat.rnn_steps_backward.default": "steps_backward",
}
_SIZES = ("view", "permute", "expand")  # methods that take their sizes one by one
_OMITTED = {"layout": ("strided",), "pin_memory": (False, None)}  # the defaults, said by the trace


@dataclass(slots=True)
class Expressions:
    """Writes tensors of a graph; `place` tells where a storage is found at the moment."""

    graph: Graph
    place: Callable[[str], Mark]
    helps: bool = False  # functions of the generated file may be called
    kernels: Mapping[str, Kernel] = field(default_factory=dict)  # those for kernels, by operator
    views: Mapping[str, View] = field(init=False)
    loose: frozenset[str] = field(init=False)  # storages that may be laid out otherwise
    matrices: frozenset[str] = field(init=False)  # copies that torch does not make of a single row
    updates: Mapping[str, Argument] = field(init=False)  # of BatchNorm: new statistics -> old
    forward_lines: frozenset[Source] = field(init=False)

    def __post_init__(self) -> None:
        self.views = {view.tensor: view for view in self.graph.views}
        self.loose = frozenset(
            storage
            for operation in self.graph.operations
            if operation.target in _LIKE_INPUT
            and not all(map(self._contiguous, refs_in(operation.args)))
            for storage in self.graph.writes(operation)
        )
        views, of_gradients = self.graph.views, (Kind.GRADIENT, Kind.TANGENT)
        seen = {v.source for v in views if self.graph.storage_of(v.tensor).kind not in of_gradients}
        run = {o.source for o in self.graph.operations if o.phase is Phase.FORWARD}
        self.forward_lines = frozenset(run | seen)
        self.matrices = frozenset(copied_matrices(self.graph) if self.helps else ())
        self.updates = {
            new: old
            for operation in self.graph.operations
            if operation.target in BATCH_NORMS
            for behind in [operation.outputs[BATCH_NORMS[operation.target][1] :]]
            for new, old in zip(behind, operation.args[3:5], strict=False)
            if new
        }

    def tensor(self, name: str) -> str:
        """Write a tensor: the variable of its storage, and the views on it as method calls."""
        view = self.views.get(name)
        if view is None:
            storage = self.graph.storage_of(name)
            return str(argument(name) if storage.kind.outside else self.place(storage.name))
        return self._view(view)

    def output(self, name: str, *, shared: bool) -> str:
        """Write what forward returns: no view, where nobody else has its memory (`shared`).

        People may write over it then, and FSDP2's hooks on it stay.
        """
        view = self.views.get(name)
        if view is None or shared or not _reshapes(view) or self._storage(view) in self.loose:
            return self.tensor(name)
        _, shape = view.args
        sizes = ", ".join(map(self.argument, shape if isinstance(shape, tuple) else (shape,)))
        return f"as_result({self.tensor(self._viewed(view))}, {sizes})"

    def _view(self, view: View) -> str:
        if found := reordered(self.graph, self.views, view):
            base, order = found
            moved = f".permute({', '.join(map(str, order))})" * (order != sorted(order))
            return self.tensor(base) + moved
        index = "" if view.index is None else f"[{view.index}]"
        method = spelling.method(view.target)
        first, *rest = view.args
        if view.target == SLICE:
            whole, place = self.tensor(self._viewed(view)), [*map(self.argument, rest)]
            return spelling.sliced(whole, len(self.graph.tensors[view.base].shape), place)
        if method is None or not (isinstance(first, Ref) and first.name == view.base):
            return f"{spelling.function(view.target)}({self._arguments(view)}){index}"
        if method in _SIZES and isinstance(rest[0], tuple) and rest[0]:
            rest = [*rest[0], *rest[1:]]  # view(64, 64) for view((64, 64))
        if method == "view" and self._storage(view) in self.loose:
            method = "reshape"  # as autograd does: a copy, where it can be no view
        written = (*map(self.argument, rest), *self._keywords(view.kwargs))
        return f"{self.tensor(self._viewed(view))}.{method}({', '.join(written)}){index}"

    def _storage(self, view: View) -> str:
        return self.graph.tensors[view.tensor].storage

    def _viewed(self, view: View) -> str:
        """Return what a view is made of: of a view of a contiguous tensor, that tensor."""
        inner = self.views.get(view.base)
        if inner and _reshapes(view) and _reshapes(inner) and self._contiguous(inner.base):
            return self._viewed(inner)
        return view.base

    def _contiguous(self, name: str) -> bool:
        tensor, layout = self.graph.tensors[name], self.graph.layouts.get(name)
        if layout is None:
            return _follow(tensor.shape, tensor.stride)
        # for one length they may follow by chance
        return all(
            _follow(
                tuple(evaluate(size, lengths) for size in layout.shape),
                tuple(evaluate(size, lengths) for size in layout.stride),
            )
            for lengths in self._some_lengths()
        )

    def _some_lengths(self) -> Iterator[dict[str, int]]:
        yield {length.name: length.maximum for length in self.graph.lengths}
        yield {length.name: length.minimum for length in self.graph.lengths}
        yield {length.name: length.maximum - 1 for length in self.graph.lengths}

    def call_in_place(self, operation: Operation, position: int) -> str:
        """Write an operation's call so that it writes over one of its arguments."""
        name = method_of(operation)
        if part_of(operation):
            return self._part_over(operation)
        if not name:
            return self._gradient_over(operation, position)
        others = [*operation.args[:position], *operation.args[position + 1 :]]
        arguments = (*map(self.argument, others), *self._keywords(operation.kwargs))
        return f"{self.argument(operation.args[position])}.{name}_({', '.join(arguments)})"

    def _part_over(self, operation: Operation) -> str:
        """Write a value into a part of the tensor that is copied otherwise."""
        whole, value, *place = map(self.argument, operation.args)
        (of,) = refs_in(operation.args[0])
        part = (
            spelling.sliced(whole, len(self.graph.tensors[of].shape), place)
            if part_of(operation) == SLICE
            else f"{whole}.{spelling.method(part_of(operation))}({', '.join(place)})"
        )
        return f"write_part({whole}, {part}, {value})"

    def _gradient_over(self, operation: Operation, position: int) -> str:
        form = gradient_form(self.graph, operation)
        assert form is not None, f"{operation.target} has no form in place"
        target, keyword = form
        taken = self.argument(operation.args[position])
        return f"{spelling.function(target)}({self._arguments(operation)}, {keyword}={taken})"

    def call(self, operation: Operation, *, again: bool) -> str:
        """Write an operation's call; `again` where it is a re-run, which updates no buffer."""
        if operation.target == "remat.rng_state":
            return self._rng_state(operation)
        if operation.target == "remat.constant":
            return self._constant(operation)
        if operation.target == CHECK:
            return self._check(operation)
        function, arguments = self._function_and_arguments(operation, again)
        if again and operation.state:
            state = self.tensor(operation.state)
            return f"{self._rerun(operation.state)}({state}, {function}, {arguments})"
        return f"{function}({arguments}){'.clone()' * self._keeps_too_much(operation)}"

    def _keeps_too_much(self, operation: Operation) -> bool:
        """Tell whether a loss is one number in as much memory as all that it was summed from."""
        if operation.target not in _RESIZED_LOSSES or not operation.outputs[0]:
            return False
        return self.graph.tensors[operation.outputs[0]].shape == ()

    def _function_and_arguments(self, operation: Operation, again: bool) -> tuple[str, str]:
        if operation.target == DROPOUT_MASK:
            return self._dropout_mask(operation)
        if operation.target == DROPOUT_SCALE:
            mask, keep, dtype = map(self.argument, operation.args)
            if self.helps:
                return "dropout_scale", f"{mask}, {keep}, {dtype}".removesuffix(", torch.float32")
            return f"{mask}.view(torch.uint8).to({dtype}).div_", keep
        if operation.target in _RNNS:
            return self._rnn(operation)
        if operation.target == "aten.bernoulli.Tensor":  # of `bernoulli_(p)` alone
            drawn, keep = map(self.argument, operation.args[:2])
            return f"torch.empty_like({drawn}).bernoulli_", keep
        if (other := self._cast_to(operation)) is not None:
            return f"{self.argument(operation.args[0])}.to", self.argument(other)
        if operation.target == _CONVOLUTION:
            return self._convolution(operation)
        if self.helps and self._may_be_of_one(operation):
            taken, dims = map(self.argument, operation.args[:2])
            return "sum_broadcast", f"{taken}, {dims}"
        if self.helps and operation.target in _PRODUCTS:
            return self._product(operation)
        if self.helps and copies(operation):
            name = "copy_matrices" if operation.outputs[0] in self.matrices else "contiguous_copy"
            return name, self.argument(operation.args[0])
        if kernel := self.kernels.get(operation.target):
            kwargs = {name: self.argument(value) for name, value in operation.kwargs}
            given = dict(zip(kernel.arguments, self._args(operation, again), strict=False))
            return kernel.name, kernel.call(given | kwargs)
        if operation.target in BATCH_NORMS:
            function, _ = BATCH_NORMS[operation.target]
            return function, ", ".join(self._args(operation, again))
        return spelling.function(operation.target), self._arguments(operation)

    def _rnn(self, operation: Operation) -> tuple[str, str]:
        run, *given = operation.args
        runs = {**RUNS, **STEPS}[str(run)].__name__
        of_torch = "torch." * hasattr(torch, runs)
        how = [f"{name}={value!r}" for name, value in operation.kwargs]
        arguments = [f"{of_torch}{runs}", *map(self.argument, given), *how]
        return _RNNS[operation.target], ", ".join(arguments)

    def _may_be_of_one(self, operation: Operation) -> bool:
        """Tell whether a gradient is summed over dimensions one of which may have the length 1.

        Autograd sums what was broadcast; a dimension of length 1 was not, and -0.0 stays there.
        Where no line of forward led to the sum, a user's own backward asks for it.
        """
        if operation.target != _SUM or operation.args[2:] != (True,) or operation.kwargs:
            return False
        if operation.source not in self.forward_lines:
            return False
        taken, dims, _ = operation.args
        layout = self.graph.layouts.get(taken.name) if isinstance(taken, Ref) else None
        if operation.phase is not Phase.BACKWARD or layout is None or not isinstance(dims, tuple):
            return False
        fewest = {length.name: length.minimum for length in self.graph.lengths}
        lengths = [layout.shape[dim] for dim in dims if isinstance(dim, int)]
        return any(isinstance(n, Size) and evaluate(n, fewest) == 1 for n in lengths)

    def _args(self, operation: Operation, again: bool) -> list[str]:
        """Write the arguments that go by their place.

        A batch norm updates its running statistics in place, but where it gets none, to run again.
        """
        if operation.target not in BATCH_NORMS:
            return list(map(self.argument, operation.args))
        before, statistics, behind = operation.args[:3], operation.args[3:5], operation.args[5:]
        words = ["None" if again else self._statistic(s) for s in statistics]
        return [*map(self.argument, before), *words, *map(self.argument, behind)]

    def _product(self, operation: Operation) -> tuple[str, str]:
        """Write a product of matrices, or a sum over rows: dimensions before theirs are together.

        So a linear layer has the batch's rows as one matrix, and attention a batch of matrices.
        """
        function, ndim = _PRODUCTS[operation.target]
        args = spelling.with_lone_dimension(operation.target, operation.args)
        words = [
            self.together(a.name, ndim) if isinstance(a, Ref) else self.argument(a) for a in args
        ]
        return function, ", ".join([*words, *self._keywords(operation.kwargs)])

    def matrix(self, name: str) -> str:
        """Write a matrix for a function that takes all dimensions but the last together itself."""
        base = self._base_of_rows(name, 2)
        return self.together(name, 2) if base is None else self.tensor(base)

    def together(self, name: str, ndim: int) -> str:
        """Write a tensor of `ndim` dimensions, the first of which several others are viewed as."""
        view = self.views.get(name)
        if view and _swaps_last(view, ndim) and isinstance(view.args[0], Ref):
            inner = self.together(view.base, ndim)
            if inner != self.tensor(view.base):
                return f"{inner}.{'t()' if ndim == 2 else 'mT'}"
        base = self._base_of_rows(name, ndim)
        if base is None:
            return self.tensor(name)
        return f"as_rows({self.tensor(base)})" if ndim == 2 else self.tensor(base)

    def _base_of_rows(self, name: str, ndim: int) -> str | None:
        """Return the tensor whose first dimensions are together in one of `ndim` dimensions."""
        view = self.views.get(name)
        if view is None or not _reshapes(view):
            return None
        base = self._viewed(view)
        seen, whole = self._shape(name), self._shape(base)
        matrix = ndim - 1  # dimensions that stay
        same = len(seen) == ndim and len(whole) > ndim and seen[-matrix:] == whole[-matrix:]
        return base if same else None

    def _shape(self, name: str) -> tuple[Size | int, ...]:
        layout = self.graph.layouts.get(name)
        return layout.shape if layout else self.graph.tensors[name].shape

    def _convolution(self, operation: Operation) -> tuple[str, str]:
        """Write a convolution by its public name, with what is not usual."""
        x, weight, bias, stride, padding, dilation, transposed, output_padding, groups = (
            operation.args
        )
        (of,) = refs_in((weight,))
        name = f"conv{'_transpose' if transposed else ''}{len(self.graph.tensors[of].shape) - 2}d"
        options = [("stride", stride, "1"), ("padding", padding, "0")]
        options += [("output_padding", output_padding, "0")] * bool(transposed)
        options += [("dilation", dilation, "1"), ("groups", groups, "1")]
        words = [self.argument(x), self.argument(weight)]
        words += [self.argument(bias)] * (bias is not None)
        for option, value, usual in options:
            same = isinstance(value, tuple) and len(set(value)) == 1
            text = self.argument(value[0] if isinstance(value, tuple) and same else value)
            words += [f"{option}={text}"] * (text != usual)
        return f"F.{name}", ", ".join(words)

    def _cast_to(self, operation: Operation) -> Argument:
        """Return the other dtype that something is copied to, or None where more is another.

        A tensor's `to` makes no copy if nothing is another.
        """
        if operation.target != "aten._to_copy.default":
            return None
        given = {name: v for name, v in operation.kwargs if not _is_default(name, v)}
        (copied,) = refs_in(operation.args)
        tensor, dtype = self.graph.tensors[copied], given.pop("dtype", None)
        here = given.pop("device", Literal("device", tensor.device))
        alone = here == Literal("device", tensor.device) and not given
        return dtype if alone and dtype != Literal("dtype", tensor.dtype) else None

    def _dropout_mask(self, operation: Operation) -> tuple[str, str]:
        size, stride, keep = map(self.argument, operation.args)
        device = dict(operation.kwargs)["device"]
        on_cpu = isinstance(device, Literal) and device.text == "cpu"
        mask = operation.outputs[0]
        if on_cpu and mask and self._contiguous(mask):
            return "draw_mask", f"{size}, {keep}"
        layout = f"{size}, {stride}, dtype=torch.bool, device={self.argument(device)}"
        return f"torch.empty_strided({layout}).bernoulli_", keep

    def _statistic(self, value: Argument) -> str:
        """Write running statistics: the buffer itself, also where the layer ran before."""
        while isinstance(value, Ref) and value.name in self.updates:
            value = self.updates[value.name]
        return self.argument(value)

    def _constant(self, operation: Operation) -> str:
        """Write a tensor of numbers; to a device with a queue they are copied once."""
        device = dict(operation.kwargs)["device"]
        queued = isinstance(device, Literal) and kind_of(device.text).is_accelerator
        return f"{'copied_once' if queued else 'torch.tensor'}({self._arguments(operation)})"

    def _rng_state(self, operation: Operation) -> str:
        return f"{kind_of(_generator_device(operation)).module}.get_rng_state()"

    def _rerun(self, state: str) -> str:
        """Name the helper for the generator that was recorded: the model's, or the host's."""
        recorded = next(o for o in self.graph.operations if state in o.outputs)
        devices = {tensor.device for tensor in self.graph.tensors.values()} - {"cpu"}
        elsewhere = devices and _generator_device(recorded) not in devices
        return "rerun_random_on_host" if elsewhere else "rerun_random"

    def _check(self, operation: Operation) -> str:
        """Compare a condition: at once on the CPU, at the end of the step where that would wait."""
        (condition,) = refs_in(operation.args)
        later = self.graph.tensors[condition].device != "cpu"
        return f"check_value({'step, ' * later}{', '.join(map(self.argument, operation.args))})"

    def _arguments(self, node: Operation | View) -> str:
        args = spelling.with_lone_dimension(node.target, node.args)
        return ", ".join((*map(self.argument, args), *self._keywords(node.kwargs)))

    def _keywords(self, kwargs: tuple[tuple[str, Argument], ...]) -> tuple[str, ...]:
        return tuple(f"{k}={self.argument(v)}" for k, v in kwargs if not _is_default(k, v))

    def argument(self, value: Argument) -> str:
        """Write one argument."""
        if isinstance(value, Ref):
            return self.tensor(value.name)
        if isinstance(value, Size):
            return written(value)
        if isinstance(value, tuple):
            inner = ", ".join(map(self.argument, value))
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        return constant(value)


def _follow(shape: tuple[float, ...], strides: tuple[float, ...]) -> bool:
    """Tell whether elements of this shape lie one after another."""
    expected: float = 1
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length != 1 and stride != expected:
            return False
        expected *= length
    return True


def constant(value: Argument) -> str:
    """Write an argument that is no tensor and depends on no length."""
    if isinstance(value, Literal):
        return literal(value)
    if isinstance(value, tuple):
        inner = ", ".join(map(constant, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return quoted(value) if isinstance(value, str) else repr(value)


def literal(value: Literal) -> str:
    """Write a constant that Python has no literal for."""
    if value.kind == "float":
        return f'float("{value.text}")'
    if value.kind == "complex":
        return f'complex("{value.text.strip("()")}")'
    if value.kind == "device":
        return f'"{value.text.partition(":")[0]}"'  # of GPUs the current one
    if not value.text.isidentifier():
        raise EmitError(f"no spelling for {value}")
    return f"torch.{value.text}"


def quoted(text: str) -> str:
    """Write a string literal; the only way from the user's text to code, besides `identifier`."""
    written = ascii(text)
    if ast.literal_eval(written) != text:
        raise EmitError(f"cannot quote {text!r}")
    plain = written.startswith("'") and '"' not in written and "\\" not in written
    return f'"{written[1:-1]}"' if plain else written


def _reshapes(view: View) -> bool:
    return view.target in ("aten.view.default", "aten._unsafe_view.default")


def _swaps_last(view: View, ndim: int) -> bool:
    """Tell whether a view of `ndim` dimensions is its base with the last two swapped."""
    if view.target == "aten.t.default":
        return ndim == 2
    dims = view.args[1:] if view.target == "aten.transpose.int" else ()
    return {dim % ndim for dim in dims if isinstance(dim, int)} == {ndim - 2, ndim - 1}


def _generator_device(recorded: Operation) -> str:
    """Return the device of the generator whose state an operation records."""
    (device,) = recorded.args
    return device.text if isinstance(device, Literal) else ""


def _is_default(name: str, value: Argument) -> bool:
    plain = value.text if isinstance(value, Literal) else value
    return name in _OMITTED and plain in _OMITTED[name]
