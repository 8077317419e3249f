"""Pages that are written by a tool are what the tool writes; every page is in the site's menu."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import write_limits
import write_reference
import yaml
from fences import PAGES

ROOT = PAGES.parent
AGAIN = "run: nox -s pages"


def test_the_command_lines_page_is_current() -> None:
    assert (PAGES / "reference/cli.md").read_text() == write_reference.cli_page(), AGAIN


def test_the_plans_page_is_current() -> None:
    assert (PAGES / "reference/plan.md").read_text() == write_reference.plan_page(), AGAIN


def test_the_page_of_limits_is_current() -> None:
    assert (PAGES / "limits.md").read_text() == write_limits.page(write_limits.rows()), AGAIN


def test_every_page_is_in_the_menu() -> None:
    pages = {path.relative_to(PAGES).as_posix() for path in PAGES.rglob("*.md")}
    menu = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert set(_leaves(menu)) == pages


def _leaves(menu: Any) -> Iterator[str]:
    if isinstance(menu, str):
        yield menu
        return
    for item in menu.values() if isinstance(menu, dict) else menu:
        yield from _leaves(item)


def test_a_limit_is_told_in_its_section() -> None:
    rows = [("tests/capture/test_a.py", "this", "that"), ("tests/semantics/test_b.py", "x", "y")]
    text = write_limits.page(rows)
    assert "## When the model is planned\n" in text and "\n| this | that |\n" in text
    assert text.index("| this |") < text.index("## In a step\n") < text.index("| x | y |")
    assert "Proved by `tests/capture/test_a.py`." in text


def test_what_no_error_tells_is_a_list() -> None:
    text = write_limits.page([("tests/semantics/test_b.py", "Sums go in another order.")])
    told = text[text.index("## What no error tells") :]
    assert "\n- Sums go in another order.\n" in told
    assert "Proved by `tests/semantics/test_b.py`." in told
