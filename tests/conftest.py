"""Options of all tests, and what is imported by then left alone by the garbage collector."""

import gc
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

if "PYTEST_XDIST_WORKER" in os.environ:  # the other cores have workers of their own
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # nothing has imported torch yet

# the machine is shared: how long a draw takes says nothing about the test
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")

LIMIT = "limit(what, then): a row of docs/limits.md: what is not supported, and what happens then"
UNTOLD = "untold(text): an item of docs/limits.md: what no error tells, as the test shows"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew")
    parser.addoption("--limit-rows", metavar="FILE", help="write these marks as JSON")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", LIMIT)
    config.addinivalue_line("markers", UNTOLD)


def pytest_collection_modifyitems(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Write what the marks say, and whose tests prove it, for docs/tools/write_limits.py."""
    target = config.getoption("--limit-rows")
    if target:
        marked = ((item, mark) for item in items for mark in item.iter_markers())
        told = [(item, mark.args) for item, mark in marked if mark.name in ("limit", "untold")]
        rows = [[item.nodeid.partition("::")[0], *words] for item, words in told]
        Path(target).write_text(json.dumps(rows), encoding="utf-8")


def pytest_collection_finish() -> None:
    """Freeze what is imported: each measured step collects first, and torch alone takes 0.2 s."""
    gc.collect()
    gc.freeze()
    frozen = gc.get_freeze_count()
    gc.get_freeze_count = lambda: frozen  # it counts them one by one: 30 ms each time


@pytest.fixture(scope="module", autouse=True)
def leave_what_stays_alone() -> Iterator[None]:
    """Freeze what a file's tests leave, such as traces that others read: see above."""
    yield
    gc.collect()
    gc.freeze()
