"""Names of operations and tensors: from the user's program, unique, stable under insertion.

A name is the module's path and a hint (`h.0.attn.scores`). A second one of the same module says how
it was made (`h.0.x_drop`: from `drop`), so that inserting a layer or a line renames nothing else.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field

import torch
from torch._functorch._aot_autograd.descriptors import (
    GradAOTOutput,
    ParamAOTInput,
    TangentAOTInput,
)

from remat_gen.capture.fx import metadata
from remat_gen.capture.fx.storages import Storages, is_getitem, is_view
from remat_gen.ir.graph import Phase
from remat_gen.ir.paths import OUTERMOST

NOTHING = "nothing"  # a result that nobody asked for
_SHORT = 16  # letters of an operand that a name may be told by

_WITH_RESERVE = ("", "mean", "invstd", "reserve", "running_mean", "running_var")
# What the results of an operation are called, after the operation itself.
_ROLES: dict[str, tuple[str, ...]] = {
    "native_layer_norm": ("", "mean", "rstd"),
    "native_group_norm": ("", "mean", "rstd"),
    "_fused_rms_norm": ("", "rstd"),
    "native_batch_norm": ("", "mean", "invstd"),
    "_native_batch_norm_legit_functional": ("", "mean", "invstd", "running_mean", "running_var"),
    "_native_batch_norm_legit": ("", "mean", "invstd"),
    "_native_batch_norm_legit_no_training": ("", "mean", "invstd"),
    "_batch_norm_with_update_functional": _WITH_RESERVE,
    "cudnn_batch_norm": _WITH_RESERVE,
    "native_dropout": ("", "mask"),
    "dropout_mask": ("mask",),
    "dropout_scale": ("scale",),
    "rnn": ("", "state", "cell"),
    "rnn_steps": ("", "state"),
    "max_pool2d_with_indices": ("", "indices"),
    "nll_loss_forward": ("", "weight"),
    "nll_loss2d_forward": ("", "weight"),
    "_scaled_dot_product_flash_attention_for_cpu": ("", "logsumexp"),
}

_OF_ITS_OPERAND = {"clone": "copy", "cast": "cast", "repeat": "repeated"}
_PARTS = ("dropout_mask", "dropout_scale")  # of one call, told apart by their roles
_PRODUCTS = ("mul", "div", "mm", "bmm")  # one operand times the gradient is the other's gradient


@dataclass(slots=True)
class Namer:
    """Hands out unique names."""

    taken: set[str] = field(default_factory=set)

    def unique(self, module: str, hint: str, made_by: tuple[str, ...] = ()) -> str:
        """Return `module.hint`, where it is taken with what made it: its operator, its operands.

        What the same statement makes from equally named operands, as a loop over time steps does,
        is told apart by its turn.
        """
        base = module if module.rpartition(".")[2] == hint else f"{module}.{hint}".strip(".")
        words = [word for word in dict.fromkeys(made_by) if not f"{word}_".startswith(f"{hint}_")]
        names = [base, *(f"{base}_{word}" for word in words)]
        names += [f"{base}_{'_'.join(words[:n])}" for n in range(2, len(words) + 1)]
        turns = (f"{names[-1]}_turn_{n}" for n in itertools.count(2))
        name = next(n for n in itertools.chain(names, turns) if n not in self.taken)
        self.taken.add(name)
        return name

    def of_view(self, base: str, node: torch.fx.Node) -> str:
        """Return `base:operator`, or `base:module.operator` where a module of another layer looks.

        So each layer's look at what all of them read, or the next one made, is called after it.
        """
        operator, module = metadata.operator_name(node), metadata.module_path(node)
        looks = f"{base}:{f'{module}.{operator}'.strip('.')}"
        own = OUTERMOST.of(module) in ("", OUTERMOST.of(base.rpartition(":")[2]))
        turns = (f"{looks}_{n}" for n in itertools.count(2))
        names = itertools.chain([f"{base}:{operator}"] * own, [looks], turns)
        name = next(n for n in names if n not in self.taken)
        self.taken.add(name)
        return name


def hints(
    nodes: list[torch.fx.Node],
    storages: Storages,
    gradients: dict[int, str],
    written: dict[int, str],
) -> dict[torch.fx.Node, tuple[str, ...]]:
    """Return the hints of each operation's results.

    `gradients` maps the storage of a returned gradient to the hint of what it is the gradient of,
    `written` that of a new value to the hint of the buffer or input that it is written into.
    """
    found: dict[torch.fx.Node, tuple[str, ...]] = {}
    backward = _BackwardHints(storages, gradients)
    last_of = {metadata.origin(n): n for n in nodes if not is_view(n)}
    for node in nodes:
        if node.op != "call_function":
            continue
        if is_view(node):
            if phase_of(node) is Phase.FORWARD:
                backward.learn(node)
            continue
        if phase_of(node) is Phase.FORWARD:
            found[node] = _forward_hints(node, storages, last_of, written)
            backward.learn(node)
        else:
            found[node] = backward.hints(node)
        storages.name(node, found[node])
    return found


def first_made(hints: tuple[str, ...]) -> str:
    """Return what an operation is called after: the first result that somebody asked for."""
    return next((hint for hint in hints if hint != NOTHING), hints[0])


def tag_backward(nodes: list[torch.fx.Node]) -> None:
    """Tag what depends on an incoming gradient as AOTAutograd does: it forgets autograd.Functions.

    What such a Function's backward computes before it reads the gradient is known by its place: it
    comes after other operations of backward, and nothing that forward leaves behind needs it.
    """
    begun, wanted = False, wanted_of_forward(nodes)
    for node in nodes:
        incoming = isinstance(node.meta.get("desc"), TangentAOTInput)
        late = begun and node.op == "call_function" and node not in wanted
        if incoming or late or any(phase_of(n) is Phase.BACKWARD for n in node.all_input_nodes):
            node.meta["partitioner_tag"] = "is_backward"
        begun |= node.op == "call_function" and phase_of(node) is Phase.BACKWARD


def wanted_of_forward(nodes: list[torch.fx.Node]) -> set[torch.fx.Node]:
    """Return what the outputs of forward and its writes into buffers are made of."""
    (output,) = (n for n in nodes[-1].graph.nodes if n.op == "output") if nodes else (None,)
    if output is None:
        return set()
    ends = zip(output.args[0], output.meta["desc"], strict=True)
    waiting = [n for n, of in ends if not isinstance(of, GradAOTOutput) and n is not None]
    wanted: set[torch.fx.Node] = set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, torch.fx.Node) and node not in wanted:
            wanted.add(node)
            waiting += node.all_input_nodes
    return wanted


def phase_of(node: torch.fx.Node) -> Phase:
    """Return the half of the step that AOTAutograd traced a node in."""
    backward = node.meta.get("partitioner_tag") == "is_backward"
    return Phase.BACKWARD if backward else Phase.FORWARD


def by_phase(nodes: list[torch.fx.Node]) -> tuple[list[torch.fx.Node], list[torch.fx.Node]]:
    """Return the calls of forward and those of backward, in order."""
    calls = [node for node in nodes if node.op == "call_function"]
    forward = [node for node in calls if phase_of(node) is Phase.FORWARD]
    return forward, [node for node in calls if phase_of(node) is Phase.BACKWARD]


def _forward_hints(
    node: torch.fx.Node,
    storages: Storages,
    last_of: dict[str, torch.fx.Node],
    written: dict[int, str],
) -> tuple[str, ...]:
    hint, variable = metadata.hint_of(node)
    origin = metadata.origin(node)
    name = metadata.operator_name(node)
    value = node.meta["val"]
    into = written.get(storages.key(value)) if isinstance(value, torch.Tensor) else None
    if name in ("rnn", "rnn_steps") and (layer := _layer_of_rnn(node, storages)):
        return with_roles(node, layer)
    if into and not variable:
        hint = f"{into}_new"
    elif name in _OF_ITS_OPERAND and not (variable and last_of.get(origin) is node):
        hint = f"{_copied(node, storages) or hint}_{_OF_ITS_OPERAND[name]}"
    elif origin and last_of.get(origin) is not node and name not in _PARTS:
        hint = _layer_of_parameter(node) or name
    return with_roles(node, hint)


def _layer_of_parameter(node: torch.fx.Node) -> str:
    """Return `in_proj` for what reads a parameter `in_proj_weight` or `in_proj_bias`, or ""."""
    for given in node.all_input_nodes:
        while is_view(given):
            given = given.all_input_nodes[0]
        match given.meta.get("desc"):
            case ParamAOTInput(path):
                layer, _, role = path.rpartition(".")[2].rpartition("_")
                if layer and role in ("weight", "bias"):
                    return layer
    return ""


def _layer_of_rnn(node: torch.fx.Node, storages: Storages) -> str:
    """Return `rnn_l1` for what has a parameter `weight_ih_l1`, and nothing for a cell."""
    _, _, *hints = (storages.hint(n) for n in node.all_input_nodes)
    return next((f"rnn_{hint.partition('_ih_')[2]}" for hint in hints if "_ih_" in hint), "")


def _copied(node: torch.fx.Node, storages: Storages) -> str:
    """Return the user's variable for what a copy is made of, looking through views."""
    base = node.all_input_nodes[0]
    while is_view(base):
        hint, variable = metadata.hint_of(base) if not is_getitem(base) else _of_item(base)
        if variable:
            return hint
        base = base.all_input_nodes[0]
    return storages.hint(node.all_input_nodes[0])


def _of_item(node: torch.fx.Node) -> tuple[str, bool]:
    hint = metadata.without_number(node.meta.get(metadata.ITEM) or metadata.origin(node))
    return hint, bool(hint) and hint not in ("getitem", "unbind") and not hint.startswith("split")


def made_by(node: torch.fx.Node, storages: Storages) -> tuple[str, ...]:
    """Return what tells a result from another of its name, the best first.

    Of two sums called `x`, the one with `drop` is `x_drop`: its operands, the last first, where
    they are short; its operator; who reads it.
    """
    operands = [storages.hint(n) for n in reversed(node.all_input_nodes)]
    operator = metadata.operator_name(node)
    readers = [f"for_{hint}" for n in _readers(node) if 0 < len(hint := storages.hint(n)) <= _SHORT]
    short = [word for word in operands if len(word) <= _SHORT]
    return tuple(identifier(word) for word in (*short, operator, *readers[:1]) if word)


def _readers(node: torch.fx.Node) -> list[torch.fx.Node]:
    """Return the operations that read a result, looking through views."""
    found = []
    for user in node.users:
        if user.op == "call_function":
            found += _readers(user) if is_view(user) else [user]
    return found


def with_roles(node: torch.fx.Node, hint: str) -> tuple[str, ...]:
    """Return a hint per result of an operation: `ln_1`, `ln_1_mean`, `ln_1_rstd`."""
    hint = identifier(hint)
    count = len(node.meta["val"]) if isinstance(node.meta["val"], tuple | list) else 1
    roles = _ROLES.get(metadata.schema_name(node), ("", *(f"part{i}" for i in range(1, count))))
    return tuple(f"{hint}_{role}" if role else hint for role in roles[:count])


def identifier(text: str) -> str:
    """Turn any text into an ASCII identifier; the only way from the user's names to code."""
    word = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "value"
    return f"v_{word}" if word[0].isdigit() else word


@dataclass(slots=True)
class _BackwardHints:
    """Name gradients after the forward value they belong to: same autograd node, same size.

    `carrying` are operations that depend on an incoming gradient; what does not is none.
    """

    storages: Storages
    gradients: dict[int, str]
    carrying: set[torch.fx.Node] = field(default_factory=set)
    inputs_of: dict[int, list[torch.fx.Node]] = field(default_factory=dict)

    def learn(self, node: torch.fx.Node) -> None:
        """Remember the inputs of a forward operation by the autograd node it belongs to."""
        number = node.meta.get("seq_nr")
        if number is not None:
            differentiated = filter(_is_differentiable, node.all_input_nodes)
            self.inputs_of.setdefault(number, []).extend(differentiated)

    def hints(self, node: torch.fx.Node) -> tuple[str, ...]:
        """Return the hints of a backward operation's results."""
        vals = node.meta["val"]
        values = list(vals) if isinstance(vals, tuple | list) else [vals]
        if any(map(self._carries, node.all_input_nodes)):
            self.carrying.add(node)
        return tuple(identifier(self._hint(node, value)) for value in values)

    def _carries(self, node: torch.fx.Node) -> bool:
        if isinstance(node.meta.get("desc"), TangentAOTInput) or node in self.carrying:
            return True
        return is_view(node) and any(map(self._carries, node.all_input_nodes))

    def _hint(self, node: torch.fx.Node, value: object) -> str:
        if not isinstance(value, torch.Tensor):
            return NOTHING
        gradient = self.gradients.get(self.storages.key(value))
        if gradient:
            return f"d_{gradient}"
        if node not in self.carrying or _goes_on(node):
            return self._of_operand(node)
        return self._of_input(node, value) or self._of_operand(node)

    def _of_input(self, node: torch.fx.Node, value: torch.Tensor) -> str:
        candidates = self.inputs_of.get(node.meta.get("seq_nr", -1), [])
        factors = self._factors(node)
        others = [c for c in candidates if c not in factors] or list(candidates)
        if metadata.operator_name(node) == "where" and self._carries(node.all_input_nodes[-1]):
            others.reverse()
        for alike in (_same_shape, _same_size):
            for candidate in others:
                if alike(candidate.meta.get("val"), value):
                    candidates.remove(candidate)
                    hint = self.storages.hint(candidate)
                    return f"d_{hint}" if hint else ""
        return ""

    def _factors(self, node: torch.fx.Node) -> set[torch.fx.Node]:
        """Return what a product multiplies the gradient by: also what that is a view of, or what
        it is a quotient of.
        """
        found: set[torch.fx.Node] = set()
        waiting = node.all_input_nodes if metadata.operator_name(node) in _PRODUCTS else []
        while waiting:
            factor = waiting.pop()
            found.add(factor)
            if is_view(factor):
                waiting += factor.all_input_nodes
            elif metadata.operator_name(factor) == "div" and phase_of(factor) is Phase.BACKWARD:
                waiting += factor.all_input_nodes[:1]
        return found

    def _of_operand(self, node: torch.fx.Node) -> str:
        operand = self.storages.hint_of_first_input(node)
        name = metadata.operator_name(node)
        if name == "add" and operand.startswith("d_"):
            return f"{operand.removesuffix('_sum')}_sum"
        if operand and operand.count("_") < 3:
            return f"{operand}_{name}"
        return f"d_{name}" if node in self.carrying else name


def _goes_on(node: torch.fx.Node) -> bool:
    """Tell whether the same autograd node reads a result again: not to sum up gradients."""
    number = node.meta.get("seq_nr")
    return number is not None and any(
        reader.meta.get("seq_nr") == number and metadata.operator_name(reader) != "add"
        for reader in _readers(node)
    )


def _is_differentiable(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def _same_shape(theirs: object, value: torch.Tensor) -> bool:
    return isinstance(theirs, torch.Tensor) and theirs.shape == value.shape


def _same_size(theirs: object, value: torch.Tensor) -> bool:
    return isinstance(theirs, torch.Tensor) and theirs.numel() == value.numel()
