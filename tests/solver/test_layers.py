"""Which layer is which in two versions of a model."""

from __future__ import annotations

from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from remat_gen.ir.paths import OUTERMOST
from remat_gen.solver.stable.layer_kinds import Kind, kinds_of, matched


def layers(kinds: str, first: int = 0) -> dict[str, Kind]:
    """Return a layer for each letter, which says what it is made of."""
    return {f"h.{i}": (f".{kind}",) for i, kind in enumerate(kinds, first)}


def indices(pairs: dict[str, str]) -> list[tuple[int, int]]:
    return [(int(new[2:]), int(old[2:])) for new, old in pairs.items()]


def test_what_layers_are_made_of() -> None:
    names = ("wte", "h.0.ln", "h.0.up", "h.1.ln", "ln_f")
    assert kinds_of(names, OUTERMOST) == {"h.0": (".ln", ".up"), "h.1": (".ln",)}


def test_equal_layers_keep_their_names() -> None:
    old, new = layers("aaaa"), layers("aaaaa")
    assert matched(old, new, set(old)) == {name: name for name in old}
    assert matched(new, old, set(new)) == {name: name for name in old}


def test_what_stands_behind_an_inserted_layer_is_found() -> None:
    old = layers("abcd")
    assert indices(matched(old, layers("abxcd"), set(old))) == [(0, 0), (1, 1), (3, 2), (4, 3)]


def test_a_block_of_two_layers_is_not_parted() -> None:
    """Of three equal layers the new one is the first: the other two are a block."""
    old, new = layers("abbc"), layers("abbbc")
    assert indices(matched(old, new, {"h.0", "h.1", "h.3"})) == [(0, 0), (1, 1), (2, 2), (4, 3)]
    assert indices(matched(old, new, {"h.0", "h.1"})) == [(0, 0), (2, 1), (3, 2), (4, 3)]


def test_nothing_in_common() -> None:
    assert matched(layers("ab"), layers("cd"), ()) == {}
    assert matched({}, layers("cd"), ()) == {}


@given(st.text("abc", max_size=7), st.text("abc", max_size=7), st.sets(st.integers(0, 6)))
def test_as_many_as_possible_in_order(before: str, after: str, starts: set[int]) -> None:
    pairs = indices(matched(layers(before), layers(after), {f"h.{i}" for i in starts}))
    assert all(after[new] == before[old] for new, old in pairs)
    assert sorted(pairs) == sorted(pairs, key=lambda pair: pair[1])
    assert len({old for _, old in pairs}) == len(pairs) == longest(before, after)


@cache
def longest(one: str, other: str) -> int:
    if not one or not other:
        return 0
    paired = 1 + longest(one[1:], other[1:]) if one[0] == other[0] else 0
    return max(paired, longest(one[1:], other), longest(one, other[1:]))
