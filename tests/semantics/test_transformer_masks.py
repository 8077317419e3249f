"""nn.Transformer looks at the values of its masks: of those that forward makes, it is known."""

from __future__ import annotations

import pytest
from pairs import make_pair_of
from sources import model_source
from steps import assert_right
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.modules import transformer

from remat_gen.capture.as_eager.transformer_masks import watched_masks

INIT = """
layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
self.encoder = nn.TransformerEncoder(layer, 2)
layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
self.decoder = nn.TransformerDecoder(layer, 1)
self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(3))
"""
ENCODED = "h = self.body(x).view(2, 3, 8)\n{}\nreturn self.head(self.encoder(h, mask=mask))"
MASKS = {
    "causal": "mask = nn.Transformer.generate_square_subsequent_mask(h.size(1))",
    "causal, of booleans": "mask = torch.triu(torch.ones(3, 3), 1).bool()",
    "causal, filled in place": "mask = torch.zeros(3, 3)\n"
    "mask.masked_fill_(torch.ones(3, 3).tril() == 0, float('-inf'))",
    "another": "mask = torch.tril(torch.ones(3, 3), 1) == 0",
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_attention_is_eagers(mask: str) -> None:
    assert_right(make_pair_of(model_source(ENCODED.format(mask), init=INIT), "1GB", "per-layer"))


def test_a_decoder_with_both_masks() -> None:
    forward = (
        "h = self.body(x).view(2, 3, 8)\n"
        f"{MASKS['causal']}\n"
        "y = self.decoder(h, self.encoder(h), tgt_mask=mask)\n"
        "return self.head(y)"
    )
    assert_right(make_pair_of(model_source(forward, init=INIT), "1GB", "per-layer"))


@pytest.mark.parametrize("mask", ["mask = self.mask", "mask = self.mask + 0"])
def test_a_buffers_numbers_must_stay(mask: str) -> None:
    """Causal or not: that is what eager finds in it, and the plan is for that."""
    pair = make_pair_of(model_source(ENCODED.format(mask), init=INIT), "1GB", "per-layer")
    assert_right(pair)
    _, model = pair.models()
    model.get_buffer("mask").zero_()
    with pytest.raises(ValueError, match=r"mask is float32\[3, 3\] .*planned for float32"):
        model(*pair.inputs()[0])


def test_what_is_written_into_is_not_known() -> None:
    """A causal mask with a row put in is another one."""
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8), 1)
    found = []
    for write in (lambda mask: mask, lambda mask: mask[0].zero_(), lambda mask: mask.add_(1)):
        with FakeTensorMode(), watched_masks(model) as masks:
            mask = nn.Transformer.generate_square_subsequent_mask(4)
            write(mask)
            transformer._detect_is_causal_mask(mask)
        found.append(masks.answer)
    assert found == [True, None, None]
