"""Models of transformers without a mask: attention is eager's own, and packed rows stay apart."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from emitting import Emitted, assert_bitwise, at_share, compared, emit
from torch import Tensor, nn
from torch._export.utils import _compiling_state_context
from torch._subclasses.fake_tensor import FakeTensorMode

from remat_gen.capture.as_eager.causal_masks import (
    LIBRARY,
    Positions,
    masks_of_eager,
    watched_positions,
)
from remat_gen.capture.observe.outputs import run_for_real
from remat_gen.capture.trace.trace import trace
from remat_gen.ir.errors import TraceError
from remat_gen.ir.graph import Operation
from remat_gen.verification.compare import Match

library = pytest.importorskip(LIBRARY)

MODEL = """\
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

CONFIG = LlamaConfig(
    vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, use_cache=False,
)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.llm = LlamaForCausalLM(CONFIG)

    def forward(self, ids, {parameters}):
        return self.llm(input_ids=ids, labels=ids, {arguments}).loss


def build_model():
    return Net()


def example_inputs():
    return torch.randint(96, (2, 48)), {inputs}
"""
# parameters, arguments, inputs: of calls whose rows hold several sequences, or may do so
PACKED = {
    "asked": (
        "positions",
        "position_ids=positions",
        "torch.arange(48).remainder(16).expand(2, 48).clone()",
    ),
    "asked, one sequence": (
        "positions",
        "position_ids=positions",
        "torch.arange(48).expand(2, 48).clone()",
    ),
    "always": ("_", "position_ids=torch.arange(48)[None].remainder(16)", "torch.zeros(1)"),
    "written": (
        "_",
        "position_ids=torch.arange(48)[None].clone().remainder_(16)",
        "torch.zeros(1)",
    ),
    "padded": ("mask", "attention_mask=mask", "(torch.arange(48) < 40).long().repeat(2, 1)"),
}


def emitted(folder: Path, parameters: str, arguments: str, inputs: str) -> Emitted:
    text = MODEL.format(parameters=parameters, arguments=arguments, inputs=inputs)
    return emit(folder, text, at_share("per-layer", 0.0))


def attention(made: Emitted) -> list[Operation]:
    operations = made.traced.graph.operations
    return [o for o in operations if "scaled_dot_product" in o.target]


def masked(operation: Operation) -> bool:
    return any(name == "attn_mask" and value is not None for name, value in operation.kwargs)


def test_causal_attention_takes_no_mask(tmp_path: Path) -> None:
    made = emitted(tmp_path, "_", "", "torch.zeros(1)")
    assert len(attention(made)) == 4
    assert not any(masked(operation) for operation in attention(made))
    assert_bitwise(made)


@pytest.mark.parametrize("name", PACKED)
def test_packed_rows_keep_their_mask(tmp_path: Path, name: str) -> None:
    made = emitted(tmp_path, *PACKED[name])
    assert all(masked(operation) for operation in attention(made))
    found = compared(made)
    # where the values show that no mask is needed, eager takes the kernel without one
    expected = Match.TOLERANCE if name == "asked, one sequence" else Match.BITWISE
    assert max(found, key=lambda c: list(Match).index(c.match)).match is expected


class Delayed(nn.Module):
    """It takes no mask, and eager gives it none; its delay is another one in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(_attn_implementation="eager")
        self.up = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        mask = library.create_bidirectional_mask(
            config=self.config, inputs_embeds=x, attention_mask=None
        )
        y = self.up(x)
        y = y if mask is None else y.view(mask.shape)
        return y.roll(-int(y.sum()), dims=1).square().mean()


def test_a_refusal_is_not_about_a_mask_that_eager_has_not() -> None:
    with pytest.raises(TraceError, match="becomes a Python number"):
        trace(Delayed(), (torch.randn(4, 12, 8),), {})


def test_the_library_is_left_as_it_was(tmp_path: Path) -> None:
    before = dict(vars(library))
    emitted(tmp_path, "_", "", "torch.zeros(1)")
    assert dict(vars(library)) == before


def test_a_forward_that_runs_for_real_takes_no_mask_either() -> None:
    """Where fakes do not go on, as through the experts of a mixture."""
    assert run_for_real(Routed(), (torch.randn(4, 12, 8),), {}).positions.plain


class Routed(nn.Module):
    """It makes positions in each row, as Whisper does, and a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(_attn_implementation="sdpa")
        self.up = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        positions = torch.arange(x.shape[1])[None].repeat(x.shape[0], 1)
        mask = library.create_causal_mask(
            config=self.config,
            inputs_embeds=x,
            attention_mask=None,
            past_key_values=None,
            position_ids=positions,
        )
        y = self.up(x)
        return (y if mask is None else y * mask.float().mean()).square().mean()


def test_a_mask_of_ones_masks_nothing() -> None:
    """Bart's decoder makes one where it is not compiled."""
    with FakeTensorMode() as mode, watched_positions():
        ones = torch.ones(2, 6).to(torch.bool)
        assert library._ignore_causal_mask_sdpa(ones, 6, 6, 0, 0)
        given = mode.from_tensor(torch.ones(2, 6, dtype=torch.bool))
        assert not library._ignore_causal_mask_sdpa(given, 6, 6, 0, 0)


def test_only_rows_that_count_are_known() -> None:
    with FakeTensorMode() as mode:
        given = mode.from_tensor(torch.arange(6))
        with watched_positions() as positions:
            split = torch.arange(12)[None]
            split.split(6, dim=1)[1].sub_(6)  # forgets all that was known
            row = torch.arange(6)[None]
            looks = {
                "arange": row + 0,
                "expanded": row.expand(3, -1),
                "repeated for each row": row.repeat(3, 1),
                "repeated in the row": row.repeat(1, 2),
                "given": given[None],
                "with a given one": row + given,
                "of this length alone": row.remainder(6),
                "random": torch.randint(6, (1, 6)),
                "written by a view": split,
            }
            for ids in looks.values():
                library.find_packed_sequence_indices(ids)
    assert dict(zip(looks, positions.looks, strict=True)) == {
        "arange": True,
        "expanded": True,
        "repeated for each row": True,
        "repeated in the row": False,
        "given": False,
        "with a given one": False,
        "of this length alone": False,
        "random": False,
        "written by a view": False,
    }
    assert not positions.plain


def test_a_mask_that_is_not_there_is_not_traced() -> None:
    """transformers 5.17 asks of `None`, too, and would make masks of ones for Bert."""
    with _compiling_state_context(), masks_of_eager(Positions()):
        assert not library.is_tracing(None)
        assert library.is_tracing(torch.ones(2, 3))
    with _compiling_state_context():
        assert library.is_tracing(None)
