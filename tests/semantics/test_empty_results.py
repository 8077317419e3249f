"""Results without elements: no layout of theirs matters."""

from __future__ import annotations

from pathlib import Path

from sources import model_source

import remat_gen

MASK = """
mask = torch.ones(6, 6) < 0
for i in range(3):
    mask[2 * i : 2 * (i + 1), : 2 * i] = True
y = self.head(self.body(x))
return y.masked_fill(mask[:, :4], 0.5)
"""


def test_a_slice_that_is_filled_and_is_empty(tmp_path: Path) -> None:
    """The first group's mask in DN-DETR: its strides were compared, and are the kernel's own."""
    path = tmp_path / "model.py"
    path.write_text(model_source(MASK), encoding="utf-8")
    assert remat_gen.generate(path, budget="100%", device="cpu").output is not None
