"""A fixture for tests that plan on the simulated GPU."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest


@pytest.fixture(autouse=True, scope="package")
def timed_once() -> Iterator[None]:
    """Time each call once, in one place: what a simulated GPU takes says nothing."""
    with (
        mock.patch("remat_gen.capture.profile.timing.Effort.repeats", lambda *_: 1),
        mock.patch("remat_gen.capture.device.cuda.Cuda.beyond_caches_bytes", lambda *_: 1),
    ):
        yield
