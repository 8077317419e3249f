"""Planned modules, generated once per session."""

from __future__ import annotations

import pytest
from one_thread import one_thread as one_thread
from pairs import Pair, make_pair, make_pair_of
from sources import model_source


@pytest.fixture(scope="session")
def deep() -> Pair:
    """Return a model whose blocks run operations of other blocks again."""
    pair = make_pair("deep", "21%", "rotor")
    assert pair.reruns_across
    return pair


@pytest.fixture(scope="session")
def mixed() -> Pair:
    """Return a model with dropout, BatchNorm, tied, frozen and unused parameters; a loss."""
    pair = make_pair("mixed", "1GB", "per-layer")
    assert pair.reruns
    return pair


@pytest.fixture(scope="session")
def wide() -> Pair:
    """Return a model whose blocks hand over gradients in the middle of their backward."""
    return make_pair("wide")


@pytest.fixture(scope="session")
def open_ended() -> Pair:
    """Return a model without a loss: two heads, an input that needs a gradient."""
    return make_pair_of(
        model_source(
            "x = self.body(x)\nreturn self.head(x), self.aux(x)",
            init="self.aux = nn.Linear(8, 3)",
            inputs="(torch.randn(6, 8, requires_grad=True),)",
        ),
        "1GB",
        "per-layer",
    )


@pytest.fixture(scope="session")
def loss_and_logits() -> Pair:
    """Return a model that returns its loss and the logits."""
    source = model_source("h = self.head(self.body(x))\nreturn h.square().mean(), h")
    return make_pair_of(source, "1GB", "per-layer")
