"""Scheduling problems for tests and benchmarks: GPT-like, chains, U-Net ladders, random ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from remat_gen.solver.law.problem import Held, Operation, Problem, Value

FLOPS_PER_US = 100e6
BYTES_PER_US = 1.5e6


@dataclass
class Builder:
    """Collect operations and values; names are for messages only."""

    operations: list[Operation] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    given: list[int] = field(default_factory=list)

    def value(self, name: str, nbytes: int, held: Held = Held.FREE) -> int:
        self.values.append(Value(name, nbytes, held))
        return len(self.values) - 1

    def op(
        self,
        name: str,
        inputs: list[int],
        sizes: list[int],
        *,
        flops: float = 0.0,
        backward: bool = False,
        layer: str = "",
        held: Held = Held.FREE,
        workspace: int = 0,
    ) -> list[int]:
        outputs = [self.value(f"{name}.{k}", size, held) for k, size in enumerate(sizes)]
        moved = sum(sizes) + sum(self.values[v].nbytes for v in inputs)
        time_us = round(3 + max(flops / FLOPS_PER_US, moved / BYTES_PER_US), 2)
        kind = name.rsplit(".", 1)[-1]
        self.operations.append(
            Operation(
                name, time_us, workspace, tuple(inputs), tuple(outputs), backward, True, kind, layer
            )
        )
        return outputs

    def problem(self) -> Problem:
        return Problem(tuple(self.operations), tuple(self.values), tuple(self.given))


@dataclass(frozen=True)
class GptShape:
    batch: int = 8
    tokens: int = 512
    width: int = 768
    heads: int = 12
    vocabulary: int = 16000

    @property
    def rows(self) -> int:
        return self.batch * self.tokens

    @property
    def hidden(self) -> int:
        return 4 * self.rows * self.width

    @property
    def scores(self) -> int:
        return 4 * self.batch * self.heads * self.tokens**2

    def linear_flops(self, outputs: int) -> float:
        return 2.0 * self.rows * self.width * outputs


def gpt_like(layers: int, shape: GptShape = GptShape()) -> Problem:
    """Return a training step like a GPT's traced without fused attention: 18 + 32 per layer."""
    b, s = Builder(), shape
    h, small = s.hidden, 4 * s.rows
    (x,) = b.op("wte", [], [h])
    (position,) = b.op("wpe", [], [h // s.batch])
    (x,) = b.op("embed.add", [x, position], [h])
    saved = []
    for layer in range(layers):
        x, kept = _gpt_layer_forward(b, s, f"h.{layer}", x)
        saved.append(kept)
    normed, mean, rstd = b.op("ln_f", [x], [h, small, small])
    logits_bytes = 4 * s.rows * s.vocabulary
    (logits,) = b.op(
        "head", [normed], [logits_bytes], flops=s.linear_flops(s.vocabulary), held=Held.STEP
    )
    (log_p,) = b.op("log_softmax", [logits], [logits_bytes])
    b.op("nll", [log_p], [4, 4], held=Held.STEP)
    d_loss = b.value("d_loss", 4, Held.SEGMENT)
    b.given.append(d_loss)
    (d_log_p,) = b.op("d_nll", [d_loss], [logits_bytes], backward=True)
    (d_logits,) = b.op("d_log_softmax", [d_log_p, log_p], [logits_bytes], backward=True)
    wide = s.linear_flops(s.vocabulary)
    weight = 4 * s.width * s.vocabulary
    b.op("d_head.w", [d_logits, normed], [weight], flops=wide, backward=True, held=Held.SEGMENT)
    (d,) = b.op("d_head.x", [d_logits], [h], flops=wide, backward=True)
    (d,) = b.op("d_ln_f", [d, x, mean, rstd], [h], backward=True)
    for layer in reversed(range(layers)):
        d = _gpt_layer_backward(b, s, f"h.{layer}", d, saved[layer])
    b.op("d_wpe", [d], [4 * s.tokens * s.width], backward=True, held=Held.SEGMENT)
    b.op("d_wte", [d], [weight], backward=True, held=Held.SEGMENT)
    return b.problem()


def _gpt_layer_forward(b: Builder, s: GptShape, name: str, x: int) -> tuple[int, dict[str, int]]:
    h, small, mask = s.hidden, 4 * s.rows, s.hidden // 4
    k: dict[str, int] = {"x": x}

    def op(kind: str, inputs: list[int], sizes: list[int], flops: float = 0.0) -> list[int]:
        return b.op(f"{name}.{kind}", inputs, sizes, flops=flops, layer=name)

    attention = 2.0 * s.batch * s.tokens**2 * s.width
    k["n1"], k["mean1"], k["rstd1"] = op("ln_1", [x], [h, small, small])
    (k["qkv"],) = op("qkv", [k["n1"]], [3 * h], s.linear_flops(3 * s.width))
    (k["q"],) = op("q", [k["qkv"]], [h])
    (k["k"],) = op("k", [k["qkv"]], [h])
    (k["v"],) = op("v", [k["qkv"]], [h])
    (scores,) = op("scores", [k["q"], k["k"]], [s.scores], attention)
    (scaled,) = op("scale", [scores], [s.scores])
    (filled,) = op("fill", [scaled], [s.scores])
    (k["p"],) = op("softmax", [filled], [s.scores])
    k["pd"], k["mask_p"] = op("drop_p", [k["p"]], [s.scores, s.scores // 4])
    (y,) = op("values", [k["pd"], k["v"]], [h], attention)
    (k["y"],) = op("merge", [y], [h])
    (o,) = op("proj", [k["y"]], [h], s.linear_flops(s.width))
    o, k["mask_o"] = op("drop_o", [o], [h, mask])
    (k["x2"],) = op("add_1", [x, o], [h])
    k["n2"], k["mean2"], k["rstd2"] = op("ln_2", [k["x2"]], [h, small, small])
    (k["u"],) = op("up", [k["n2"]], [4 * h], s.linear_flops(4 * s.width))
    (k["g"],) = op("gelu", [k["u"]], [4 * h])
    (o,) = op("down", [k["g"]], [h], s.linear_flops(4 * s.width))
    o, k["mask_d"] = op("drop_d", [o], [h, mask])
    (out,) = op("add_2", [k["x2"], o], [h])
    return out, k


def _gpt_layer_backward(b: Builder, s: GptShape, name: str, d: int, k: dict[str, int]) -> int:
    h, w = s.hidden, 4 * s.width**2

    def op(kind: str, inputs: list[int], sizes: list[int], flops: float = 0.0) -> list[int]:
        return b.op(f"{name}.d_{kind}", inputs, sizes, flops=flops, backward=True)

    def linear(kind: str, d_out: int, x: int, outs: int, ins: int) -> int:
        flops = 2.0 * s.rows * outs * ins
        weight = {"flops": flops, "backward": True, "held": Held.SEGMENT}
        (d_in,) = op(f"{kind}.x", [d_out], [4 * s.rows * ins], flops)
        b.op(f"{name}.d_{kind}.w", [d_out, x], [4 * outs * ins], **weight)
        b.op(f"{name}.d_{kind}.b", [d_out], [4 * outs], backward=True, held=Held.SEGMENT)
        return d_in

    def norm(kind: str, d_out: int, x: int, mean: int, rstd: int) -> int:
        (d_in,) = op(kind, [d_out, x, mean, rstd], [h])
        held = {"backward": True, "held": Held.SEGMENT}
        b.op(f"{name}.d_{kind}.wb", [d_out, x, mean, rstd], [4 * s.width] * 2, **held)
        return d_in

    assert w > 0
    attention = 2.0 * s.batch * s.tokens**2 * s.width
    c = s.width
    (e,) = op("drop_d", [d, k["mask_d"]], [h])
    e = linear("down", e, k["g"], c, 4 * c)
    (e,) = op("gelu", [e, k["u"]], [4 * h])
    e = linear("up", e, k["n2"], 4 * c, c)
    e = norm("ln_2", e, k["x2"], k["mean2"], k["rstd2"])
    (d,) = op("add_2", [d, e], [h])
    (e,) = op("drop_o", [d, k["mask_o"]], [h])
    e = linear("proj", e, k["y"], c, c)
    (e,) = op("merge", [e], [h])
    (d_v,) = op("values.v", [e, k["pd"]], [h], attention)
    (e,) = op("values.p", [e, k["v"]], [s.scores], attention)
    (e,) = op("drop_p", [e, k["mask_p"]], [s.scores])
    (e,) = op("softmax", [e, k["p"]], [s.scores])
    (e,) = op("fill", [e], [s.scores])
    (e,) = op("scale", [e], [s.scores])
    (d_q,) = op("scores.q", [e, k["k"]], [h], attention)
    (d_k,) = op("scores.k", [e, k["q"]], [h], attention)
    (e,) = op("qkv", [d_q, d_k, d_v], [3 * h])
    e = linear("qkv", e, k["n1"], 3 * c, c)
    e = norm("ln_1", e, k["x"], k["mean1"], k["rstd1"])
    (d,) = op("add_1", [d, e], [h])
    return d


def uniform_chain(length: int) -> Problem:
    """Return DESIGN's unit-cost chain: backward i needs forward i and backward i + 1."""
    b = Builder()
    forward: list[int] = []
    for i in range(length):
        forward += b.op(f"f{i}", forward[-1:], [1])
    d = b.value("d", 1)
    b.given.append(d)
    for i in reversed(range(length)):
        (d,) = b.op(f"b{i}", [d, forward[i]], [1], backward=True)
    unit = tuple(replace(o, time_us=1.0) for o in b.operations)
    return replace(b.problem(), operations=unit)


def unet_like(depth: int, nbytes: int = 1 << 20) -> Problem:
    """Return a U-Net: sizes halve going down, every level skips across to its way up."""
    b = Builder()
    (x,) = b.op("stem", [], [nbytes], flops=1e9)
    skips, pairs = [], []

    def conv(name: str, inputs: list[int], size: int) -> int:
        (made,) = b.op(f"{name}.conv", inputs, [size], flops=4e9)
        normed, stats = b.op(f"{name}.bn", [made], [size, 4096])
        (out,) = b.op(f"{name}.relu", [normed], [size])
        pairs.append((name, inputs, made, stats, out, size))
        return out

    for level in range(depth):
        x = conv(f"down{level}", [x], nbytes >> level)
        skips.append(x)
        (x,) = b.op(f"pool{level}", [x], [nbytes >> (level + 1)])
    for level in reversed(range(depth)):
        (x,) = b.op(f"grow{level}", [x], [nbytes >> level])
        x = conv(f"up{level}", [x, skips[level]], nbytes >> level)
    b.op("loss", [x], [4], held=Held.STEP)
    d = b.value("d", nbytes, Held.SEGMENT)
    b.given.append(d)
    late: dict[int, list[int]] = {}
    for name, inputs, made, stats, out, size in reversed(pairs):
        (e,) = b.op(f"{name}.d_relu", [d, out, *late.pop(out, [])], [size], backward=True)
        (e,) = b.op(f"{name}.d_bn", [e, made, stats], [size], backward=True)
        b.op(f"{name}.d_w", [e, *inputs], [9000], flops=4e9, backward=True, held=Held.SEGMENT)
        parts = b.op(
            f"{name}.d_x", [e], [b.values[v].nbytes for v in inputs], flops=4e9, backward=True
        )
        d = parts[0]
        for v, part in zip(inputs[1:], parts[1:], strict=True):
            late[v] = [part]
        (d,) = b.op(f"{name}.d_resize", [d], [size], backward=True)
    return b.problem()


@st.composite
def problems(draw: st.DrawFn, max_forward: int = 8, *, hard: bool = True) -> Problem:
    """Draw a small problem; `hard` ones have every feature of traced graphs."""
    b = Builder()
    n = draw(st.integers(1, max_forward))
    size = st.integers(0, 8)
    held = st.sampled_from([Held.FREE] * 8 + [Held.STEP]) if hard else st.just(Held.FREE)
    forward: list[int] = []
    for i in range(n):
        inputs = draw(st.lists(st.sampled_from(forward[-4:]), max_size=2, unique=True)) if i else []
        if i and not inputs and not draw(st.booleans()):
            inputs = [forward[-1]]
        sizes = draw(st.lists(size, min_size=1, max_size=2 if hard else 1))
        outputs = b.op(f"f{i}", inputs, sizes, layer=draw(st.sampled_from(["", "a", "b"])))
        for v in outputs:
            b.values[v] = replace(b.values[v], held=draw(held))
        forward += outputs
    _draw_backward(draw, b, forward, hard)
    operations = _drawn_costs(draw, b.operations, hard)
    if hard:
        operations = _drawn_over(draw, b, operations)
    return replace(b.problem(), operations=tuple(operations))


def _draw_backward(draw: st.DrawFn, b: Builder, forward: list[int], hard: bool) -> None:
    size = st.integers(0, 8)
    gradient_held = st.sampled_from([Held.FREE, Held.SEGMENT] if hard else [Held.FREE])
    d = b.value("d", draw(size), draw(gradient_held))
    b.given.append(d)
    if hard and draw(st.booleans()):
        b.given.append(b.value("d_unread", draw(size), draw(gradient_held)))
    gradients = [d]
    for i, v in enumerate(reversed(forward)):
        needs = [v, *draw(st.lists(st.sampled_from(forward), max_size=1))]
        needs = needs if not hard or draw(st.integers(0, 4)) else []
        inputs = list(dict.fromkeys([gradients[-1], *needs]))
        if hard and draw(st.booleans()):
            inputs = list(dict.fromkeys([*inputs, draw(st.sampled_from(gradients))]))
        made = b.op(f"b{i}", inputs, [draw(size)], backward=True)
        gradients += made
        if hard and draw(st.booleans()):
            parameter = b.op(f"w{i}", [made[0]], [draw(size)], backward=True)
            b.values[parameter[0]] = replace(
                b.values[parameter[0]], held=draw(st.sampled_from([Held.SEGMENT, Held.STEP]))
            )


def _drawn_costs(draw: st.DrawFn, operations: list[Operation], hard: bool) -> list[Operation]:
    return [
        replace(
            operation,
            time_us=float(draw(st.integers(1, 9))),
            workspace_bytes=draw(st.integers(0, 3)) if hard else 0,
            rerunnable=not hard or operation.backward or draw(st.integers(0, 5)) > 0,
        )
        for operation in operations
    ]


def _drawn_over(draw: st.DrawFn, b: Builder, operations: list[Operation]) -> list[Operation]:
    """Let backward operations write over inputs that no other one reads, made as large as those."""
    read = Counter(v for operation in operations for v in operation.inputs)
    found = []
    for operation in operations:
        mortal = [v for v in operation.inputs if b.values[v].held is Held.FREE and read[v] == 1]
        if operation.backward and mortal and len(operation.outputs) == 1 and draw(st.booleans()):
            over, made = draw(st.sampled_from(mortal)), operation.outputs[0]
            b.values[made] = replace(b.values[made], nbytes=b.values[over].nbytes)
            operation = replace(operation, over=over)
        found.append(operation)
    return found
