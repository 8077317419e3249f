"""A parameter or buffer that forward also reads at another place: in a list, as an attribute."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
import torch
from pairs import Pair, make_pair_of
from sources import model_source
from torch import nn

INIT = """
self.scale = nn.Parameter(torch.ones(4))
self.register_buffer("shift", torch.zeros(4))
self.scales, self.other = [self.scale], self.shift
"""
FORWARD = """
y = self.head(self.body(x)) * self.scale + self.shift
return y * self.scales[0] + self.other
"""
CHANGES: dict[str, Callable[[nn.Module], object]] = {
    "scales[0]": lambda m: setattr(m, "scale", nn.Parameter(torch.full((4,), 2.0))),
    "scales[0] itself": lambda m: operator.setitem(
        m.scales, 0, nn.Parameter(torch.full((4,), 2.0))
    ),
    "other": lambda m: setattr(m, "shift", torch.ones(4)),
}


@pytest.fixture(scope="module")
def pair() -> Pair:
    return make_pair_of(model_source(FORWARD, init=INIT), "1GB", "per-layer")


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("place", CHANGES)
def test_one_of_the_places_has_another_tensor(pair: Pair, place: str, later: bool) -> None:
    """As behind `load_state_dict(…, assign=True)`: eager reads the old one there, still."""
    (args, _), (original, planned) = pair.inputs(), pair.models()
    if later:
        planned(*args)
    for model in (original, planned):
        CHANGES[place](model)
    original(*args)
    with pytest.raises(
        ValueError, match=rf"{place.replace('[', '.')[:5]}.*, planned for (scale|shift)"
    ):
        planned(*args)


def test_a_copy_has_its_own_in_both(pair: Pair) -> None:
    args, _ = pair.inputs()
    left, right = pair.models()
    assert right.scales[0] is right.scale
    results = []
    for model in (left, right):
        torch.manual_seed(3)
        results.append(model(*args))
    assert torch.equal(*results)
