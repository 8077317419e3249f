"""Fused attention of the simulated GPU, with layouts and places of seeds of torch's kernels."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

_library: list[torch.library.Library] = []


def register() -> None:
    """Register the kernels, once."""
    if not _library:
        _library.append(torch.library.Library("aten", "IMPL", "CUDA"))
        for name, kernel in _KERNELS.items():
            _library[0].impl(f"_scaled_dot_product_{name}", kernel)


class _Step(NamedTuple):
    """Arguments of an attention: tensors of the host, heads repeated for the queries."""

    query: Tensor
    key: Tensor
    value: Tensor
    bias: Tensor | None
    probability: float
    causal: bool
    scale: float
    seed: int
    offset: int

    def weights(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return weights, what dropout multiplies them by, and sums: [B, H, M, N] and [B, H, M]."""
        scores = self.query @ self.key.transpose(-1, -2) * self.scale
        if self.bias is not None:
            scores = scores + self.bias
        if self.causal:
            scores = scores + torch.full(scores.shape[-2:], -math.inf).triu(1)
        return scores.softmax(-1), self._kept(scores.shape), scores.logsumexp(-1)

    def _kept(self, shape: torch.Size) -> Tensor:
        if not self.probability:
            return torch.ones(())
        generator = torch.Generator().manual_seed((self.seed * 1000003 + self.offset) % (1 << 62))
        kept = torch.rand(shape, generator=generator) >= self.probability
        return kept / (1 - self.probability)


def _step(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, *rest: Any, scale: float | None
) -> _Step:
    groups = query.size(1) // key.size(1)
    q, k, v = (_host(t).float() for t in (query, key, value))
    k, v = (t.repeat_interleave(groups, 1) if groups > 1 else t for t in (k, v))
    added = None if bias is None else _host(bias).float()
    by = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    return _Step(q, k, v, added, *rest[:2], by, *rest[2:])


def _host(t: Tensor) -> Tensor:
    return torch.ops.simulated.on_host(t) if t.device.type == "cuda" else t


def _filled(like: Tensor, content: Tensor, heads_inside: bool = True) -> Tensor:
    """Return a result with heads beside the features, as flash attention lays them out."""
    b, h, m, _ = like.shape
    if heads_inside:
        made = like.new_empty(b, m, h, content.size(-1)).transpose(1, 2)
    else:
        made = torch.empty_like(like)
    _host(made).copy_(content)
    return made


def _on_device(content: Tensor, device: torch.device) -> Tensor:
    made = torch.empty(content.shape, dtype=content.dtype, device=device)
    _host(made).copy_(content)
    return made


def _draw(device: torch.device, probability: float, numbers: int) -> tuple[int, int]:
    """Return seed and offset, and move the generator on; zeros where nothing is drawn."""
    if not probability:
        return 0, 0
    generator = torch.cuda.default_generators[device.index]
    found = generator.initial_seed(), generator.get_offset()
    generator.set_offset(found[1] + 4 * (1 + numbers // 4))
    return found


def _forward(step: _Step) -> tuple[Tensor, Tensor]:
    weights, kept, sums = step.weights()
    return (weights * kept) @ step.value, sums


def _backward(grad: Tensor, step: _Step, heads: int) -> list[Tensor]:
    g = _host(grad).float()
    weights, kept, _ = step.weights()
    of_weights = (g @ step.value.transpose(-1, -2)) * kept
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True))
    of_query = of_scores @ step.key * step.scale
    of_key = of_scores.transpose(-1, -2) @ step.query * step.scale
    of_value = (weights * kept).transpose(-1, -2) @ g
    summed = [t.unflatten(1, (heads, -1)).sum(2) for t in (of_key, of_value)]
    return [of_query, *summed]


def _flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    b, h, m, _ = query.shape
    seed = _draw(query.device, dropout_p, b * h * 32)
    out, sums = _forward(_step(query, key, value, None, dropout_p, is_causal, *seed, scale=scale))
    state = _on_device(torch.tensor(seed).view(torch.uint64), query.device)
    unused = torch.empty((), dtype=torch.uint64, device=query.device)
    lse = _on_device(sums.float(), query.device)
    debug = query.new_empty(0)
    return _filled(query, out), lse, None, None, m, key.size(2), state, unused, debug


def _flash_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Tensor,
    philox_offset: Tensor,
    *,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    assert philox_seed.device.type == "cuda", philox_seed.device
    seed = _host(philox_seed).view(torch.int64).tolist()
    step = _step(query, key, value, None, dropout_p, is_causal, *seed, scale=scale)
    made = _backward(grad_out, step, key.size(1))
    return tuple(_filled(t, g) for t, g in zip((query, key, value), made, strict=True))


def _efficient(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    b, h, m, _ = query.shape
    seed = _draw(query.device, dropout_p, b * h * m * key.size(2))
    step = _step(query, key, value, attn_bias, dropout_p, is_causal, *seed, scale=scale)
    out, sums = _forward(step)
    lse = torch.full((b, h, -(-m // 32) * 32 if compute_log_sumexp else 0), math.inf)
    if compute_log_sumexp:
        lse[..., :m] = sums
    on_host = [torch.tensor(number) for number in seed]  # unless a graph is captured
    return _filled(query, out), _on_device(lse, query.device), *on_host


def _efficient_backward(
    grad_out_: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    philox_seed: Tensor,
    philox_offset: Tensor,
    dropout_p: float,
    grad_input_mask: list[bool],
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    assert philox_seed.device.type == philox_offset.device.type == "cpu", philox_seed.device
    seed = int(philox_seed), int(philox_offset)
    step = _step(query, key, value, attn_bias, dropout_p, is_causal, *seed, scale=scale)
    made = _backward(grad_out_, step, key.size(1))
    grads = [_filled(t, g) for t, g in zip((query, key, value), made, strict=True)]
    of_bias = query.new_empty(0) if attn_bias is None else torch.zeros_like(attn_bias)
    return *grads, of_bias


def _cudnn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    b, h, m, _ = query.shape
    seed = _draw(query.device, dropout_p, b * h * m * key.size(2))
    step = _step(query, key, value, attn_bias, dropout_p, is_causal, *seed, scale=scale)
    out, sums = _forward(step)
    lse = _on_device(sums.float().unsqueeze(-1), query.device)
    on_device = [_on_device(torch.tensor(number), query.device) for number in seed]
    laid_out = _filled(query, out, heads_inside=False)
    return laid_out, lse, None, None, m, key.size(2), *on_device, None


def _cudnn_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    philox_seed: Tensor,
    philox_offset: Tensor,
    attn_bias: Tensor | None,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    *,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    assert philox_seed.device.type == "cuda", philox_seed.device
    seed = int(_host(philox_seed)), int(_host(philox_offset))
    step = _step(query, key, value, attn_bias, dropout_p, is_causal, *seed, scale=scale)
    made = _backward(grad_out, step, key.size(1))
    pairs = zip((query, key, value), made, strict=True)
    return tuple(_filled(t, g, heads_inside=False) for t, g in pairs)


_KERNELS = {
    "flash_attention": _flash,
    "flash_attention_backward": _flash_backward,
    "efficient_attention": _efficient,
    "efficient_attention_backward": _efficient_backward,
    "cudnn_attention": _cudnn,
    "cudnn_attention_backward": _cudnn_backward,
}
