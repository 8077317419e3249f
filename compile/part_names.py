"""Names of the functions that are compiled: after what they make, never a number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from remat_gen.compile.part_text import PartText


@dataclass(frozen=True, slots=True)
class NamedPart:
    """A function for the template."""

    name: str
    text: PartText


def name_parts(texts: Iterable[PartText], taken: frozenset[str]) -> tuple[NamedPart, ...]:
    """Name each distinct text, in order of appearance: `fused_softmax`, `fused_d_x_from_d_up`."""
    distinct = {text.key: text for text in texts}
    used = set(taken)
    named = []
    for text in distinct.values():
        name = next(n for n in _candidates(text) if n not in used)
        used.add(name)
        named.append(NamedPart(name, text))
    return tuple(named)


def _candidates(text: PartText) -> Iterator[str]:
    made, read = text.returned, [name for name, _ in text.parameters]
    yield f"fused_{made[0]}"
    for count in range(2, min(len(made), 4) + 1):
        yield f"fused_{'_'.join(made[:count])}"
    for count in range(1, min(len(read), 3) + 1):
        yield f"fused_{made[0]}_from_{'_'.join(read[:count])}"
    yield f"fused_{made[0]}_{text.key[:6]}"
    yield f"fused_{made[0]}_{text.key}"
