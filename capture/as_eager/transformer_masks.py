"""Trace the attention that `nn.Transformer` runs for a mask which `forward` makes itself.

It looks at the *values* of a mask: a causal one is left to the kernel. A trace cannot look; where
the mask is made of sizes alone, as by `nn.Transformer.generate_square_subsequent_mask`, what eager
mode finds is known, and the same for all lengths. Of a mask that is handed in or a buffer nothing
is known of the next step: it is refused, and `is_causal=` says it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import Tensor, nn
from torch.nn.modules import transformer

from remat_gen.capture.fx.known_values import KnownValues
from remat_gen.capture.process.replaced import replaced

_LOOK = "_detect_is_causal_mask"
Look = Callable[[Tensor | None, bool | None, int | None], bool]
# What makes a mask the same way for every length.
_MASKING = frozenset(
    """aten.full.default aten.ones.default aten.zeros.default aten.triu.default aten.tril.default
    aten.masked_fill.Scalar aten.masked_fill_.Scalar aten.zeros_like.default aten.ones_like.default
    aten.full_like.default aten.eq.Scalar aten.ne.Scalar aten.gt.Scalar aten.lt.Scalar
    aten.bitwise_not.default aten.logical_not.default aten.transpose.int aten.t.default
    aten.alias.default aten.detach.default aten.clone.default aten._to_copy.default""".split()
)


@dataclass(slots=True)
class Masks:
    """Whether each mask that was looked at is causal; `known` unless one comes from outside."""

    causal: list[bool] = field(default_factory=list)
    known: bool = True

    @property
    def answer(self) -> bool | None:
        """Return the one answer to all looks; None if there is none, or were several."""
        found = set(self.causal)
        return found.pop() if self.known and len(found) == 1 else None


@contextmanager
def watched_masks(model: nn.Module) -> Iterator[Masks]:
    """Watch the masks that a model's transformers look at while it runs on fake tensors."""
    masks = Masks()
    kinds = (nn.TransformerEncoder, nn.TransformerDecoder)
    if not any(isinstance(module, kinds) for module in model.modules()):
        yield masks
        return
    look: Look = getattr(transformer, _LOOK)
    with KnownValues(_MASKING, _is_square) as values:

        def noted(
            mask: Tensor | None, is_causal: bool | None = None, size: int | None = None
        ) -> bool:
            if is_causal is not None or mask is None:
                return look(mask, is_causal, size)
            masks.known &= values.value(mask) is not None
            masks.causal.append(values.holds(mask, lambda value: look(value, None, size)))
            return masks.causal[-1]

        with replaced(transformer, _LOOK, noted):
            yield masks


@contextmanager
def looks_of_eager(masks: Masks) -> Iterator[None]:
    """Give the answer of eager mode while a model is traced, if there is one."""
    answer = masks.answer
    if answer is None:
        yield
        return

    def known(mask: Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:
        return answer and mask is not None if is_causal is None else is_causal

    with replaced(transformer, _LOOK, known):
        yield


def _is_square(made: Tensor, _read: list[Tensor]) -> bool:
    return made.ndim > 1 and made.shape[-1] == made.shape[-2]
