"""Small tensors gain nothing from threads, and lose much on a busy machine.

A folder whose tests are of such tensors imports the fixture into its conftest.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """Run on one thread, and put the number back."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
