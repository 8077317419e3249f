"""A schedule stays where a variable or an attribute is called otherwise."""

from __future__ import annotations

import pytest

from remat_gen.solver.stable.committed_schedule import Committed, renamed

NAMES = ("h.0.probs", "h.0.probs_drop", "h.0.x", "h.1.probs", "h.1.d_probs", "h.0.d_x")
COMMITTED = Committed((NAMES[:4],), ((NAMES[1], *NAMES[4:]),))


def changed(word: str, other: str) -> Committed:
    names = tuple(name.replace(word, other) for name in NAMES)
    return Committed((names[:4],), ((names[1], *names[4:]),))


@pytest.mark.parametrize("other", ["scores", "attn_probs", "probs_2", "p"])
def test_a_variable(other: str) -> None:
    wanted = changed("probs", other)
    assert renamed(COMMITTED, [*wanted.forward[0], *wanted.backward[0][1:]]) == wanted


def test_a_list_of_layers() -> None:
    wanted = changed("h.", "layers.")
    assert renamed(COMMITTED, [*wanted.forward[0], *wanted.backward[0][1:]]) == wanted


@pytest.mark.parametrize(
    "names",
    [
        NAMES,
        (*NAMES, "h.2.probs"),
        NAMES[1:],
        ("h.0.scores", "h.0.weights_drop", *NAMES[2:]),
        ("h.0.scores", "h.0.other", "h.0.x", "h.1.scores", "h.1.d_scores", "h.0.d_x"),
    ],
    ids=["nothing", "one more", "one less", "two words", "more than a name"],
)
def test_anything_else_is_left_as_it_is(names: tuple[str, ...]) -> None:
    assert renamed(COMMITTED, names) is COMMITTED
