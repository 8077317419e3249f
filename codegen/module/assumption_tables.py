"""The tables of what a plan takes for granted: one row for all layers that are alike."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from types import MappingProxyType

import torch
from torch import Tensor, nn

from remat_gen.capture.first_step.evaluation import ANY
from remat_gen.capture.observe.assumed import (
    NOT_SET,
    File,
    described,
    digest_of,
    fetch,
    is_plain,
    rows_of,
)
from remat_gen.capture.observe.repeats import Reads
from remat_gen.codegen.expressions.expressions import quoted
from remat_gen.ir.size import Shape, Size, write

_LONG = 400  # characters of a row: what is longer is described, by a hash
_FEW = 1024  # bytes of an input whose numbers are written out
_BAR = " | "  # between paths
_WIDTH = 140  # of a row in one line
_KEY = 100  # characters of paths in a line, where they take several
_PATTERNS = 64  # of a path, which may have many numbers
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Tables:
    """What a plan takes for granted, as lines of Python dicts by the paths of modules.

    `modules` describes them, `values` has what is plain of what forward reads of them, `held`
    describes the rest; `also` how else some may be. `fresh` describes what is another thing until
    forward has run once, or behind an evaluation; of some it may be `anything` else.
    `filled` are the buffers that it gives other numbers then; `attributes` tells of tensors that
    are described by their layout.
    """

    modules: list[str]
    values: list[str]
    held: list[str]
    also: list[str]
    fresh: list[str] = field(default_factory=list)
    anything: bool = False
    filled: list[str] = field(default_factory=list)
    attributes: bool = False

    @classmethod
    def of(
        cls, model: nn.Module, reads: Reads, fresh: Mapping[str, str], filled: Iterable[str]
    ) -> Tables:
        """Describe a model, and what its forward reads, as it is now; and as it was `fresh`.

        Forward fills the buffers in `filled` in its first run.
        """
        modules = [name for name, _ in model.named_modules(remove_duplicate=False)]
        rows = _lines(modules, {path: (quoted(words),) for path, words in fresh.items()})
        own, filled = cls.of_units(model, {"": reads}), [*map(quoted, filled)]
        return replace(own, fresh=rows, anything=ANY in fresh.values(), filled=filled)

    @classmethod
    def of_units(cls, model: nn.Module, units: Mapping[str, Reads]) -> Tables:
        """Describe what the forwards of a model's units read, by the units' paths."""
        file = File(next(iter(units.values())).file)
        words: dict[str, str] = {}
        also: dict[str, str] = {}
        for at, reads in units.items():
            for path, text in described(model.get_submodule(at), reads.paths, file):
                words[_within(at, path)] = text
                if path in reads.changed:
                    also[_within(at, path)] = reads.changed[path][reads.changed[path][0] == text]
        modules = [name for name, _ in model.named_modules(remove_duplicate=False)]
        plain: dict[str, dict[str, str]] = {}
        held: dict[str, dict[str, str]] = {}
        others: dict[str, dict[str, str]] = {}
        for path in sorted(words.keys() - modules):
            owner = _owner(path, modules)
            name = path.removeprefix(f"{owner}.") if owner else path
            value = fetch(model, path, file)
            if is_plain(value) and len(repr(value)) <= _LONG:
                plain.setdefault(owner, {})[name] = as_python(value)
            else:
                held.setdefault(owner, {})[name] = quoted(words[path])
            if path in also:
                others.setdefault(owner, {})[name] = quoted(also[path])
        return cls(
            _lines(
                modules,
                {p: (quoted(words[p]),) for p in modules if words.get(p, "model") != "model"},
            ),
            _lines(modules, {p: _dict_of(plain[p]) for p in modules if p in plain}),
            _lines(modules, {p: _dict_of(held[p]) for p in modules if p in held}),
            _lines(modules, {p: _dict_of(others[p]) for p in modules if p in others}),
            attributes=any(reads.attributes for reads in units.values()),
        )


def rows_of_fixed(inputs: Mapping[str, Tensor]) -> Iterator[str]:
    """Write the numbers of fixed inputs, or a hash of what is long, as lines of a dict."""
    for path, value in inputs.items():
        short = value.nbytes <= _FEW and not value.is_complex()
        if short and not value.isnan().any():  # some bits of one Python does not write
            yield from _row(path, tuple(as_python(value.tolist()).split(" ")))
        else:
            yield from _row(path, (quoted(digest_of(value)),))


def _within(at: str, path: str) -> str:
    """Return the path from the model of what a unit reads."""
    return path if ":" in path or not at else f"{at}.{path}".rstrip(".")


def _dict_of(items: Mapping[str, str]) -> tuple[str, ...]:
    """Write a dict as words, behind which a line may end."""
    *words, last = (f"{quoted(name)}: {text}" for name, text in items.items())
    first, *others = (*(f"{word}," for word in words), f"{last}}}")
    return f"{{{first}", *others


def _row(paths: str, words: tuple[str, ...]) -> list[str]:
    """Write a row: in one line, or in several where it is long."""
    row = f"    {quoted(paths)}: {' '.join(words)},"
    if len(row) <= _WIDTH:
        return [row]
    first, *others = *words[:-1], f"{words[-1]},"
    lines = [f"    {text}" for text in _key(paths)]
    lines[-1] += ":"
    lines.append(f"        {first}")
    for word in others:
        if len(lines[-1]) + len(word) > _WIDTH - 1:
            lines.append(f"         {word}")
        else:
            lines[-1] += f" {word}"
    return lines


def _key(paths: str) -> list[str]:
    """Write paths as texts of a line each, which Python takes for one."""
    texts = [""]
    for path in re.split(rf"(?<={re.escape(_BAR)})", paths):
        if texts[-1] and len(texts[-1]) + len(path) > _KEY:
            texts.append("")
        texts[-1] += path
    return [*map(quoted, texts)]


def _owner(path: str, modules: Collection[str]) -> str:
    """Return the module whose row says what stands at a path: for files the model."""
    while path not in modules:
        path = path.rpartition(".")[0]
    return path


def _lines(modules: list[str], said: dict[str, tuple[str, ...]]) -> list[str]:
    """Write the rows of a table as lines of Python."""
    return [line for paths, words in grouped(modules, said) for line in _row(paths, words)]


def grouped(
    modules: list[str], said: dict[str, tuple[str, ...]]
) -> list[tuple[str, tuple[str, ...]]]:
    """Say the same in fewer rows: with `*` for numbers, and paths that are alike together."""
    left = dict(said)
    found: dict[str, tuple[str, ...]] = {}
    numbered: dict[str, list[str]] = {}
    for module in modules:
        numbered.setdefault(_NUMBER.sub("*", module), []).append(module)
    for path in said:
        if path in left:
            found |= _shortest(numbered, path, left)
    rows = _together(found)
    expanded = rows_of(rows, modules)  # of patterns as general the last one counts
    wrong = {path: said[path] for path in said if expanded[path] != said[path]}
    return [*_together(found | wrong).items()]


def _together(found: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Let paths that are alike share a row."""
    paths: dict[object, list[str]] = {}
    for path, words in found.items():
        alone = path if _BAR in path or not path else ""
        paths.setdefault((alone, words), []).append(path)
    return {_BAR.join(alike): found[alike[0]] for alike in paths.values()}


def _shortest(
    numbered: Mapping[str, list[str]], path: str, left: dict[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """Return the row with a path that says most, and take that out of `left`.

    `numbered` are the modules by their paths with `*` for all numbers.
    """
    best: tuple[int, str, list[str]] = (0, path, [path])
    for pattern in itertools.islice(_patterns(path), _PATTERNS):
        head, _, tail = pattern.rpartition("*")
        owner = _NUMBER.sub("*", f"{head}*{tail.partition('.')[0]}")
        alike = list(rows_of({pattern: ()}, numbered.get(owner, ())))
        if len(alike) > 1 and all(at in left for at in alike):
            most = max((left[at] for at in alike), key=[left[at] for at in alike].count)
            same = [at for at in alike if left[at] == most]
            best = max(best, (2 * len(same) - len(alike), pattern, same), key=itemgetter(0))
    _, pattern, same = best
    words = [left.pop(at) for at in same]
    return {pattern: words[0]}


def _patterns(path: str) -> Iterator[str]:
    """Yield a path with `*` for all of its numbers, then for fewer of them."""
    spans = [number.span() for number in _NUMBER.finditer(path)]
    for count in range(len(spans), 0, -1):
        for starred in itertools.combinations(reversed(spans), count):
            pattern = path
            for start, stop in starred:
                pattern = f"{pattern[:start]}*{pattern[stop:]}"
            yield pattern


def as_python(value: object, lengths: Mapping[str, str] = MappingProxyType({})) -> str:
    """Write a value as Python, `lengths` by their names; its `repr` is not always that."""
    if isinstance(value, list | tuple):
        items = ", ".join(as_python(item, lengths) for item in value)
        if isinstance(value, list):
            return f"[{items}]"
        items = f"({items}{',' * (len(value) == 1)})"
        return f"torch.Size({items})" if isinstance(value, torch.Size | Shape) else items
    if isinstance(value, Size):
        return write(value, lengths.__getitem__)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if value is NOT_SET:
        return "NOT_SET"
    if isinstance(value, torch.device):
        return f'torch.device("{value}")'
    return quoted(value) if isinstance(value, str) else repr(value)
