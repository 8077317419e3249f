"""The committed GPT with its plan on its graph, traced once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from remat_gen.plot import view_of
from remat_gen.retrace import Retraced, retrace_file
from remat_gen.timeline_view import TimelineView

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="session")
def gpt() -> Retraced:
    return retrace_file(EXAMPLES / "gpt_remat.py")


@pytest.fixture(scope="session")
def view(gpt: Retraced) -> TimelineView:
    """Return the picture's numbers, without what somebody may have measured here."""
    return replace(view_of(gpt), measured=None)
