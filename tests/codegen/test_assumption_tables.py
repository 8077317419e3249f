"""Rows of the tables of assumptions: fewer than paths, and they say the same of each path."""

from __future__ import annotations

import ast
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from remat_gen.capture.observe.assumed import rows_of
from remat_gen.codegen.module.assumption_tables import _lines, grouped

PARTS = [
    "0",
    "1",
    "10",
    "block1",
    "block2",
    "conv1",
    "conv12",
    "3x3_1a",
    "3x3_2a",
    "bn",
    "branch3x3dbl_1",
]
WORDS = [("one",), ("two",), ("{'a': 1,", "'b': 2}")]


@st.composite
def modules_and_words(draw: st.DrawFn) -> tuple[list[str], dict[str, tuple[str, ...]]]:
    """Return paths of modules with those above them, and what is said of some."""
    deep = st.lists(st.sampled_from(PARTS), min_size=1, max_size=4)
    paths = draw(st.lists(deep, min_size=1, max_size=14))
    above = (accumulate(path, lambda a, b: f"{a}.{b}") for path in paths)
    modules = ["", *dict.fromkeys(path for several in above for path in several)]
    said = draw(st.dictionaries(st.sampled_from(modules[1:]), st.sampled_from(WORDS)))
    return modules, {path: said[path] for path in modules if path in said}


@given(modules_and_words())
def test_rows_say_the_same_of_each_path_and_nothing_of_others(
    given: tuple[list[str], dict[str, tuple[str, ...]]],
) -> None:
    modules, said = given
    rows = dict(grouped(modules, said))
    assert rows_of(rows, modules) == said
    assert len(rows) <= len(said)


@st.composite
def stages(draw: st.DrawFn) -> tuple[list[str], dict[str, tuple[str, ...]]]:
    """Return the layers of stages, each full, of a few widths: patterns cross each other."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    modules = [
        "",
        *(
            f"s.{i}.{j}.n{k}"
            for i, size in enumerate(sizes)
            for j in range(size)
            for k in (1, 2, 3)
        ),
    ]
    words = st.lists(st.sampled_from(WORDS), min_size=len(modules) - 1, max_size=len(modules) - 1)
    return modules, dict(zip(modules[1:], draw(words), strict=True))


@given(stages())
def test_where_patterns_cross_each_path_has_its_own(
    given: tuple[list[str], dict[str, tuple[str, ...]]],
) -> None:
    modules, said = given
    assert rows_of(dict(grouped(modules, said)), modules) == said


def test_of_patterns_as_general_that_are_put_together_the_right_one_counts() -> None:
    """`b.*.2.n*` shares a row with `n1`, which comes before that of `b.1.*.n*`."""
    layers = ["b.0.0", "b.1.0", "b.1.1", "b.1.2"]
    modules = ["", "n1", *(f"{layer}.n{k}" for layer in layers for k in (1, 2))]
    said = dict(zip(modules[1:], [(w,) for w in "yyyzzzzyy"], strict=True))
    assert rows_of(dict(grouped(modules, said)), modules) == said


def test_numbers_within_names_have_a_star_too() -> None:
    modules = ["", *(f"layer{i}.{j}.bn{k}" for i in (1, 2) for j in range(3) for k in (1, 2))]
    assert grouped(modules, dict.fromkeys(modules[1:], ("x",))) == [("layer*.*.bn*", ("x",))]


def test_a_number_may_stand_amid_a_name() -> None:
    modules = ["", "conv_1a", "conv_1a.bn", "conv_22a", "conv_22a.bn", "conv_1b", "conv_1b.bn"]
    said = dict.fromkeys(("conv_1a.bn", "conv_22a.bn"), ("x",))
    assert grouped(modules, said) == [("conv_*a.bn", ("x",))]


def test_what_most_say_is_one_row_and_the_others_have_their_own() -> None:
    modules = ["", *(f"h.{i}.ln_{k}" for i in range(4) for k in (1, 2))]
    said = dict.fromkeys(modules[1:], ("x",)) | {"h.2.ln_1": ("y",)}
    assert grouped(modules, said) == [("h.*.ln_*", ("x",)), ("h.2.ln_1", ("y",))]


def test_many_paths_take_several_lines() -> None:
    modules = ["", *(f"{name}.{name[::-1]}_attention" for name in map(chr, range(97, 117)))]
    lines = _lines(modules, dict.fromkeys(modules[1:], ('"Linear"',)))
    assert max(map(len, lines)) <= 110 and len(lines) > 3
    (paths,) = ast.literal_eval(f"{{{''.join(lines)}}}")
    assert paths.split(" | ") == modules[1:]
