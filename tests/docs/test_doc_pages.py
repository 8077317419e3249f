"""Every page of docs/ does what it says: its files are written and its commands run, in order."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest
from fences import PAGES, read_page
from running import Reader, not_in_order

NAMES = sorted(str(path.relative_to(PAGES)) for path in PAGES.rglob("*.md"))
_LANGUAGES = {"console", "python", "toml", "yaml", "json", "text", "markdown"}


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folders that pages left, by name: other pages go on from there."""
    return {}


def follow(
    name: str, folder: Path, finished: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    """Follow a page, and first the one that it continues."""
    page = read_page(PAGES / name)
    for package in page.needs:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    start = page.continues
    if start is not None and start not in finished:
        before = folder.with_name(f"{folder.name}-before")
        before.mkdir()
        follow(start, before, finished, capfd)
    if start is not None:
        shutil.copytree(finished[start], folder, dirs_exist_ok=True)
    Reader(folder, capfd).follow(page)
    finished[name] = folder


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_can_follow_the_page(
    name: str, tmp_path: Path, finished: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    if name not in finished:
        follow(name, tmp_path, finished, capfd)


@pytest.mark.parametrize("name", NAMES)
def test_no_block_escapes(name: str) -> None:
    for fence in read_page(PAGES / name).fences:
        assert fence.language in _LANGUAGES, f"{fence.place}: {fence.language}"
        assert fence.language == "console" or "\n$ " not in fence.text, fence.place


def test_what_is_shown_must_be_printed() -> None:
    printed = "remat-gen: load\npeak   3 MiB planned, 5 MiB eager\nwritten  a.py\n"
    assert not_in_order("peak 4.5 MiB planned, …\nwritten a.py\n", printed) is None
    assert not_in_order("written a.py\npeak 3 MiB …\n", printed) == "peak 3 MiB …"
    assert not_in_order("peak 3 KiB planned, …\n", printed) == "peak 3 KiB planned, …"


@pytest.mark.parametrize("name", [*NAMES, "../README.md"])
def test_excerpts_are_in_the_file_that_they_are_from(name: str) -> None:
    """In order; `…` leaves lines out."""
    for fence in read_page(PAGES / name).fences:
        if fence.source:
            lines = iter((PAGES.parent / fence.source).read_text(encoding="utf-8").splitlines())
            for line in fence.text.splitlines():
                found = line in ("", "…") or line in lines
                assert found, f"{fence.place}: not in {fence.source}, or not there: {line}"
