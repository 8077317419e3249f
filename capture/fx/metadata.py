"""What an FX node remembers of the user's program: the line, the module, the variable."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import torch
from torch import nn

from remat_gen.ir.graph import Source

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in [^\n]+\n\s+([^\n]*)')
_HOW = re.compile(
    "^native_|_legit(_functional)?$|_with_update_functional$|(_with_indices|_for_cpu)(?=$|_backward)"
)
_PLAIN = {"to_copy": "cast", "batch_norm_legit_no_training": "eval_batch_norm"}
_TORCH = str(Path(torch.__file__).parent)

MODULE = "remat_gen_module"  # in a node's meta: its module's path, with the turn of a call
ITEM = "remat_gen_item"  # in a node's meta: the user's variable for one of several results


def source_of(node: torch.fx.Node, model_file: str) -> Source:
    """Return the innermost line of the model's own file, else the last one outside of torch."""
    frames = _FRAME.findall(node.stack_trace or "")
    own = [frame for frame in frames if frame[0] == model_file]
    others = [frame for frame in frames if not frame[0].startswith((_TORCH, "<"))]
    for file, line, text in reversed(own or others):
        return Source(Path(file).name, int(line), text.strip())
    return Source("", 0, "")


def frames_of(node: torch.fx.Node) -> tuple[tuple[str, int], ...]:
    """Return the files and lines outside of torch in which a node is made, the outermost first."""
    return _frames_in(node.stack_trace or "")


@functools.lru_cache(maxsize=4096)
def _frames_in(trace: str) -> tuple[tuple[str, int], ...]:
    frames = ((file, int(line)) for file, line, _ in _FRAME.findall(trace))
    return tuple(frame for frame in frames if not frame[0].startswith((_TORCH, "<")))


def where(node: torch.fx.Node, model_file: str) -> str:
    """Say in an error where forward does it: `model.py:12`, or "forward" where no line is known."""
    source = source_of(node, model_file)
    return f"{source.file}:{source.line}" if source.file else "forward"


def module_path(node: torch.fx.Node) -> str:
    """Return the path of the module that the operation (or the one it differentiates) ran in."""
    told: str = node.meta.get(MODULE) or next(reversed(module_paths(node)), "")
    return told


def module_paths(node: torch.fx.Node) -> list[str]:
    """Return the paths of all modules that it ran in but the model, the outermost first."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    return [path for told, _ in stack.values() if (path := clean_path(told))]


@functools.cache
def clean_path(path: str) -> str:
    """Turn Dynamo's `L['self'].h[0]` into `h.0`.

    Also where it is `._modules['h']` or, of a class with a `__getattr__`,
    `.__dict__['_modules']['h']`; or `L['args'][0].h[0]`, where forward is decorated; or
    `getattr(L['self'].h, '0')`, under `torch.func`.
    """
    found = 1
    while found:  # from the innermost on
        path, found = re.subn(r"getattr\(([^()]*), '(\w+)'\)", r"\1.\2", path)
    path = re.sub(r"^L\['(?!self')\w+'\](\[0\])?", "", path)
    path = re.sub(r"(?:__dict__\[['\"])?_modules(?:['\"]\])?\[['\"](.*?)['\"]\]", r"\1", path)
    path = re.sub(r"\[['\"]?(.*?)['\"]?\]", r".\1", path.removeprefix("L['self']"))
    return path.strip(".")


def hint_of(node: torch.fx.Node) -> tuple[str, bool]:
    """Return the user's name for a node's result, and whether it is a variable of the user's.

    Otherwise it is the attribute of a torch.nn module, or the name of the function called.
    """
    variable = without_number(origin(node))
    if variable == "input" and _in_sequential(node):
        variable = ""  # the variable of nn.Sequential's own loop
    function = without_number(_source_function(node))
    if variable and variable != function and not variable.startswith("l_self_"):
        return variable, True
    return _leaf_module(node) or function or variable or operator_name(node), False


def origin(node: torch.fx.Node) -> str:
    """Return the node of Dynamo's graph that a node came from, "" where there was none."""
    origins = node.meta.get("from_node") or []
    return str(origins[-1].name) if origins else ""


def operator_name(node: torch.fx.Node) -> str:
    """Return the bare name of the operator: `softmax` of `aten._softmax.default`."""
    return plain_name(schema_name(node))


def plain_name(schema: str) -> str:
    """Return an operator's name without what says how it is made: `layer_norm`, `max_pool2d`."""
    name = _HOW.sub("", schema.strip("_"))
    return _PLAIN.get(name, name)


def schema_name(node: torch.fx.Node) -> str:
    """Return the name of the operator as torch writes it: `_softmax` of `aten._softmax.default`."""
    return getattr(node.target, "__name__", str(node.target)).split(".")[0]


def _source_function(node: torch.fx.Node) -> str:
    stack = node.meta.get("source_fn_stack") or []
    return str(stack[-1][0]) if stack else ""


def _leaf_module(node: torch.fx.Node) -> str:
    """Return the attribute of the torch.nn module that the node is the body of."""
    stack = node.meta.get("nn_module_stack") or {}
    if not stack:
        return ""
    path, kind = list(stack.values())[-1]
    if not isinstance(kind, type) or not kind.__module__.startswith("torch.nn.modules"):
        return ""
    if kind in (nn.Sequential, nn.ModuleList):
        return ""
    name = clean_path(path).rpartition(".")[2]
    return name if not name.isdigit() else kind.__name__.lower()


def _in_sequential(node: torch.fx.Node) -> bool:
    """Tell whether the node is the body of a module that a sequence runs."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    owner = stack[-2][1] if len(stack) > 1 else None
    return isinstance(owner, type) and getattr(owner, "forward", None) is nn.Sequential.forward


def without_number(name: str) -> str:
    """Strip the running numbers that Dynamo puts behind a name."""
    return re.sub(r"(_\d+)+$", "", name).strip("_")
