"""The fenced blocks of a page, in order, and the comments that tell how to run them.

<!-- continues: first-steps.md -->   the page starts with the files which that page ends with
<!-- setup: git init -q -->          a shell command that readers need not see
<!-- exit: 1 -->                     what the last command of the next block exits with
<!-- not run: why -->                the next block is shown only
<!-- needs: accelerate -->           the page is skipped where this cannot be imported
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

PAGES = Path(__file__).parents[2] / "docs"
_FENCE = re.compile(r'^```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?$')
_COMMENT = re.compile(r"^<!-- (?P<key>[a-z ]+): (?P<value>.*) -->$")


@dataclass(frozen=True, slots=True)
class Fence:
    """A block of a page: a file where it has a title, else something to run or to look at."""

    place: str
    language: str
    title: str | None
    text: str
    exit_code: int = 0
    not_run: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """A page's steps in order: blocks, and shell commands that set things up."""

    name: str
    steps: tuple[Fence | str, ...]
    continues: str | None
    needs: tuple[str, ...]

    @property
    def fences(self) -> tuple[Fence, ...]:
        """Return the blocks alone."""
        return tuple(step for step in self.steps if isinstance(step, Fence))


def read_page(path: Path) -> Page:
    """Read the blocks and comments of a page."""
    found = list(_scan(path))
    comments = [item for item in found if isinstance(item, tuple)]
    continues = [value for key, value in comments if key == "continues"]
    return Page(
        name=path.name,
        steps=tuple(_steps(found)),
        continues=continues[0] if continues else None,
        needs=tuple(value for key, value in comments if key == "needs"),
    )


def _steps(found: list[Fence | tuple[str, str]]) -> Iterator[Fence | str]:
    """Give each block what the comments before it say."""
    said: dict[str, str] = {}
    for item in found:
        if isinstance(item, tuple):
            if item[0] == "setup":
                yield item[1]
            said |= dict([item])
            continue
        code = int(said.pop("exit", "0"))
        source = said.pop("from", "")
        why = said.pop("not run", "an excerpt" if source else "")
        yield Fence(item.place, item.language, item.title, item.text, code, why, source)


def _scan(path: Path) -> Iterator[Fence | tuple[str, str]]:
    lines = iter(enumerate(path.read_text(encoding="utf-8").splitlines(), 1))
    for number, line in lines:
        if comment := _COMMENT.match(line):
            yield comment["key"], comment["value"]
        elif line.lstrip().startswith("```"):
            opened = _FENCE.match(line)
            assert opened, f"{path.name}:{number}: a block says its language: {line}"
            body = [text for _, text in takewhile(lambda item: item[1] != "```", lines)]
            yield Fence(f"{path.name}:{number}", opened["language"], opened["title"], _text(body))


def _text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
