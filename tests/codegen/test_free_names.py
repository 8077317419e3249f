"""Short names of values: more of the path where they are taken, and no word of it twice."""

from __future__ import annotations

import pytest

from remat_gen.codegen.statements.free_names import free_name
from remat_gen.ir.paths import Layers


@pytest.mark.parametrize(
    ("hint", "path", "taken", "name"),
    [
        ("x", "mlp.drop.x", (), "x"),
        ("x", "mlp.drop.x", ("x",), "drop_x"),
        ("x", "mlp.drop.x", ("x", "drop_x"), "mlp_drop_x"),
        ("norm1_mean", "block.layer2.norm1.mean", ("norm1_mean",), "layer2_norm1_mean"),
        ("norm1", "block.layer2.norm1.norm1", ("norm1",), "layer2_norm1"),
        ("norm1_mean", "norm1.mean", ("norm1_mean",), "norm1_norm1_mean"),
    ],
)
def test_a_name_that_is_taken_gets_more_of_its_path(
    hint: str, path: str, taken: tuple[str, ...], name: str
) -> None:
    assert free_name(Layers(), hint, path, taken) == name
