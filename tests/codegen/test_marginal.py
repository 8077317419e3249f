"""The search gets what an operation adds to the reader that it fuses into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from emitting import HEAD, Emitted, emit, model_costs

from remat_gen.compile.fusible import fusible_in
from remat_gen.compile.masks import Handed
from remat_gen.compile.part_text import PartText
from remat_gen.ir.costs import PartCost
from remat_gen.ir.graph import Phase
from remat_gen.plan.marginal import marginal_costs

MODEL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("mask", torch.ones(8, dtype=torch.bool))

    def forward(self, x):
        h = F.dropout(self.first(x), 0.5, training=True)
        h = F.softmax(h.masked_fill(self.mask, 0.0), dim=-1)
        return self.second(h).square().mean()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(64, 8),)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Emitted:
    return emit(tmp_path_factory.mktemp("marginal"), HEAD + MODEL)


def pairs_add_a_tenth(candidates: Sequence[PartText]) -> Mapping[str, PartCost]:
    """Two operations take 20 one by one and 6 together, one alone takes 10 and 5."""
    return {
        c.sha256: PartCost(20.0, 6.0, 0) if len(c.operations) == 2 else PartCost(10.0, 5.0, 0)
        for c in candidates
    }


def test_what_fuses_into_a_reader_costs_what_it_adds(made: Emitted) -> None:
    graph, costs = made.traced.graph, model_costs(made.traced)
    marginal = marginal_costs(graph, costs, pairs_add_a_tenth)
    shares = {
        name: marginal.operations[name].time_us / cost.time_us
        for name, cost in costs.operations.items()
    }
    less = {name for name, share in shares.items() if share < 1}
    assert all(shares[name] == pytest.approx(0.1, rel=0.01) for name in less)  # three digits
    by_name = {operation.name: operation for operation in graph.operations}
    fusible = {o.name for o, can in zip(graph.operations, fusible_in(graph), strict=True) if can}
    assert fusible >= set(less)
    assert all(by_name[name].phase is Phase.FORWARD for name in less)
    assert {by_name[name].target for name in less} >= {
        "remat.dropout_scale.default",
        "aten.masked_fill.Scalar",
    }


def test_what_is_refused_costs_what_it_did(made: Emitted) -> None:
    def refused(candidates: Sequence[PartText]) -> Mapping[str, PartCost]:
        return {c.sha256: PartCost(0.0, 0.0, 0, "other numbers") for c in candidates}

    costs = model_costs(made.traced)
    assert marginal_costs(made.traced.graph, costs, refused) == costs


def test_masks_go_in_as_numbers_where_booleans_are_slow(made: Emitted) -> None:
    asked: list[PartText] = []

    def note(candidates: Sequence[PartText]) -> Mapping[str, PartCost]:
        asked.extend(candidates)
        return pairs_add_a_tenth(candidates)

    marginal_costs(made.traced.graph, model_costs(made.traced), note)
    scaled = [c for c in asked if ".to(torch.float32)" in c.code]
    filled = [c for c in asked if "masked_fill(" in c.code]
    assert scaled and all(Handed.BYTES in c.handed for c in scaled)
    assert filled and all(Handed.INTEGERS in c.handed and " != 0" in c.code for c in filled)
    assert all(" != 0" not in c.code_apart for c in filled)
