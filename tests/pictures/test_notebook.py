"""In a notebook: tables, and a picture where matplotlib is; names are text, never markup."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from remat_gen.ir.byte_text import size
from remat_gen.picture.timeline_view import TimelineView
from remat_gen.review.retrace import Retraced
from remat_gen.show.notebook import plan_html, plan_svg


class Tags(HTMLParser):
    """Collects tags and texts, and checks that what is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag != "img":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read(html: str) -> Tags:
    tags = Tags()
    tags.feed(html)
    assert not tags.open
    return tags


def test_a_plan_is_a_table_and_a_picture(gpt: Retraced, view: TimelineView) -> None:
    plan = gpt.existing.plan
    html = plan_html(plan, view)
    found = read(html)
    assert found.tags.count("table") == 2 and found.tags.count("img") == 1
    assert size(plan.predicted.peak_bytes) in found.texts
    assert {block.name for block in plan.blocks} <= set(found.texts)
    encoded = re.search(r"base64,([^\"]+)", html)
    assert encoded and base64.b64decode(encoded[1]).decode() == plan_svg(view)


def test_without_matplotlib_there_is_the_table(
    gpt: Retraced, view: TimelineView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert plan_svg(view) is None
    assert read(plan_html(gpt.existing.plan, view)).tags.count("img") == 0


def test_names_are_text(gpt: Retraced) -> None:
    plan = gpt.existing.plan
    block = replace(plan.blocks[0], name="<script>x</script>&", rematerialised=('"<b>',))
    found = read(plan_html(replace(plan, blocks=(block,))))
    assert "script" not in found.tags and "b" not in found.tags
    assert "<script>x</script>&" in found.texts
