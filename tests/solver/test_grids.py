"""Blocks' options are the same in however many processes they are searched."""

from __future__ import annotations

import pytest
from solver_problems import gpt_like

from remat_gen.solver import ahead, grids
from remat_gen.solver.ahead import Ahead
from remat_gen.solver.grids import GridSearch, grids_of
from remat_gen.solver.local import LocalBlock, gradients, localise
from remat_gen.solver.option_grid import GridResult
from remat_gen.solver.partition import partition
from remat_gen.solver.search import Progress, silent

Report = tuple[str, int, int]


def distinct_blocks(layers: int) -> list[LocalBlock]:
    problem = gpt_like(layers)
    chain = partition(problem, 8)
    grads = gradients(problem, chain)
    blocks = [localise(problem, chain, grads, i) for i in range(len(chain.blocks))]
    return list(dict.fromkeys(blocks))


def size(block: LocalBlock) -> int:
    return len(block.forward) * len(block.backward)


@pytest.fixture(autouse=True)
def short_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grids, "LONG", 12)


def with_cores(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(ahead, "cores", lambda: count)
    monkeypatch.setattr(grids, "cores", lambda: count)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[GridSearch]:
    """Collect the searches of other processes."""
    searches: list[GridSearch] = []

    class Watched(Ahead[dict[LocalBlock, GridResult]]):
        def __init__(self, search: GridSearch) -> None:
            searches.append(search)
            super().__init__(search)

    monkeypatch.setattr(grids, "Ahead", Watched)
    return searches


@pytest.mark.parametrize("cores", [1, 2, 3, 4, 64])
def test_all_blocks_are_searched_once(
    monkeypatch: pytest.MonkeyPatch, begun: list[GridSearch], cores: int
) -> None:
    blocks = distinct_blocks(2)
    long = [block for block in blocks if size(block) >= grids.LONG]
    assert 1 < len(long) < len(blocks)
    with_cores(monkeypatch, 1)
    expected = grids_of(blocks, silent)
    reports: list[Report] = []
    with_cores(monkeypatch, cores)
    found = grids_of(blocks, lambda *report: reports.append(report))
    assert found == expected
    assert list(found) == blocks
    assert len(begun) == max(0, min(cores - 2, len(long) - 1, grids.HELPERS))
    elsewhere = [block for search in begun for block, _ in search.tasks]
    own = max(total for _, _, total in reports)
    assert own + len(elsewhere) == len(blocks) == len({*elsewhere}) + own


def test_the_largest_blocks_are_apart(
    monkeypatch: pytest.MonkeyPatch, begun: list[GridSearch]
) -> None:
    with_cores(monkeypatch, 3)
    blocks = distinct_blocks(3)
    grids_of(blocks, silent)
    (search,) = begun
    largest = sorted(blocks, key=size)[-2:]
    assert sum(block in largest for block, _ in search.tasks) == 1


def test_what_another_process_does_not_find_is_searched_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocks = distinct_blocks(2)
    with_cores(monkeypatch, 1)
    expected = grids_of(blocks, silent)

    def nothing(_: object, __: Progress) -> None:
        return None

    with_cores(monkeypatch, 4)
    monkeypatch.setattr(Ahead, "wait", nothing)
    assert grids_of(blocks, silent) == expected
