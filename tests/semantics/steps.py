"""Run the same step on both models and compare all that it leaves behind, bitwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from pairs import Pair
from torch import Tensor, nn

from remat_gen.verification.compare_models import verify_models
from remat_gen.verification.step import leaves_of, structure_of

Backward: TypeAlias = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Left:
    """What steps leave behind: a description of the outputs' nesting, and tensors by name."""

    structure: str
    constants: list[object]
    tensors: dict[str, Tensor | None]


def gradient_for(tensor: Tensor, seed: int = 11) -> Tensor:
    """Return an incoming gradient, of its own random stream."""
    own = torch.Generator().manual_seed(seed)
    gradient = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return gradient.normal_(generator=own)


def backward_all(outputs: object) -> None:
    """Send a gradient into the loss, else into every output that takes one."""
    wanted = [o for o in leaves_of(outputs) if isinstance(o, Tensor) and o.requires_grad]
    losses = [o for o in wanted if o.ndim == 0]
    wanted = losses if len(losses) == 1 else wanted
    torch.autograd.backward(wanted, [gradient_for(o) for o in wanted])


def run_steps(
    model: nn.Module, pair: Pair, steps: int = 2, backward: Backward = backward_all
) -> Left:
    """Run steps that accumulate into `.grad`; every step has other dropout masks."""
    args, kwargs = pair.inputs()
    torch.manual_seed(3)
    for _ in range(steps):
        outputs = model(*args, **kwargs)
        backward(outputs)
    return _left(model, outputs, (args, kwargs))


def _left(model: nn.Module, outputs: object, inputs: object) -> Left:
    leaves = list(leaves_of(outputs))
    given = [leaf for leaf in leaves_of(inputs) if isinstance(leaf, Tensor)]
    tensors: dict[str, Tensor | None] = {"random stream": torch.get_rng_state()}
    tensors |= {f"output {i}": o for i, o in enumerate(leaves) if isinstance(o, Tensor)}
    tensors |= {f"gradient of {n}": p.grad for n, p in model.named_parameters()}
    tensors |= {f"buffer {n}": b for n, b in model.named_buffers()}
    tensors |= {f"input {i}": x for i, x in enumerate(given)}
    tensors |= {f"gradient of input {i}": x.grad for i, x in enumerate(given)}
    constants = [leaf for leaf in leaves if not isinstance(leaf, Tensor)]
    return Left(structure_of(outputs), constants, tensors)


def assert_same(expected: Left, actual: Left) -> None:
    """Assert that all is bitwise equal: values, dtypes, strides, and which tensors need grad."""
    assert actual.structure == expected.structure
    assert actual.constants == expected.constants
    assert actual.tensors.keys() == expected.tensors.keys()
    different = [n for n, t in expected.tensors.items() if not same(t, actual.tensors[n])]
    assert not different


def same(one: Tensor | None, other: Tensor | None) -> bool:
    """Tell whether two tensors cannot be told apart, but for their history."""
    if one is None or other is None:
        return one is other
    looks = [(t.dtype, t.shape, t.stride(), t.requires_grad) for t in (one, other)]
    return looks[0] == looks[1] and torch.equal(one, other)


def assert_right(pair: Pair, steps: int = 2, backward: Backward = backward_all) -> None:
    """Assert that the planned model, which must re-run something, steps as the original does."""
    assert pair.reruns > 0
    original, planned = pair.models()
    expected = run_steps(original, pair, steps, backward)
    assert_same(expected, run_steps(planned, pair, steps, backward))


def kept_for_backward(loss: Tensor) -> list[Any]:
    """Return what the blocks keep between a planned forward and its backward."""
    step, *_ = getattr(loss.grad_fn, "place", ([], 0))
    assert isinstance(step, list) and step
    return step


def bytes_kept(loss: Tensor) -> int:
    """Return how many bytes the blocks keep for backward."""
    kept = (value for kept in kept_for_backward(loss) for value in vars(kept).values())
    return sum(value.nbytes for value in kept if isinstance(value, Tensor))


def verified(
    original: nn.Module, planned: nn.Module, args: Any, kwargs: Any, what: str
) -> tuple[bool | None, str]:
    """Verify one model by another; return whether a row of the report is right, and its detail."""
    report = verify_models(
        original,
        planned,
        args,
        kwargs,
        device=torch.device("cpu"),
        predicted_peak_bytes=None,
        budget_bytes=None,
    )
    return next((row.ok, row.detail) for row in report.rows() if row.what == what)
