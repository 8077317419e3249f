"""The Jinja environment: strict about names, silent about white space."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def render(template: str, **values: object) -> str:
    """Print a template."""
    return _environment().get_template(template).render(**values)


def source_of(*objects: Callable[..., Any]) -> str:
    """Return the source of functions and classes that a generated module gets as they are."""
    return "\n\n\n".join(inspect.getsource(each).rstrip() for each in objects)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("remat_gen.templates", ""),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Python, not HTML; text of the user's goes through `prose` or `quoted`
    )
    environment.globals.update(section=section, docstring=docstring, wrapped=wrapped)
    return environment


def section(title: str) -> str:
    """Return the comment that opens a part of the file."""
    return f"# -- {title} {'-' * max(2, 84 - len(title))}"


def docstring(text: str) -> str:
    """Return a class's docstring, wrapped; the text has been through `prose`."""
    if len(text) <= 88:
        return f'    """{text}"""'
    first, _, rest = text.partition(". ")
    wrapped = textwrap.fill(rest, 92, initial_indent="    ", subsequent_indent="    ")
    return f'    """{first}.\n\n{wrapped}\n    """'


def wrapped(comment: str) -> list[str]:
    """Return the lines of a comment that stands twice indented, continued with an indent."""
    return textwrap.wrap(comment, 90, subsequent_indent="    ", break_long_words=False)
