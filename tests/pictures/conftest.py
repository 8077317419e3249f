"""The committed GPT with its plan on its graph, traced once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from committed import gpt_remat as gpt_remat

from remat_gen.picture.timeline_view import TimelineView
from remat_gen.review.retrace import Retraced, retrace_file, view_of


@pytest.fixture(scope="session")
def gpt(gpt_remat: Path) -> Retraced:
    return retrace_file(gpt_remat)


@pytest.fixture(scope="session")
def view(gpt: Retraced) -> TimelineView:
    """Return the picture's numbers, without what somebody may have measured here."""
    return replace(view_of(gpt), measured=None)
