"""The files of a review that attacked the tool: refused, named when something changes, or right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pairs import make_pair_of
from steps import assert_same, run_steps

from remat_gen.ir.errors import RematError

FILES = Path(__file__).parents[3] / "shared" / "reference" / "attacks"
Change = Callable[[Any, Any], object]

# what forward advances, or does instead of computing: refused, with what it is
REFUSED = {
    "1_counter_in_namespace": r"self\.st",
    "1_rng_on_self": r"self\.st",
    "4_counter_in_dict": r"self\.st",
    "5_tensor_attr_inplace": r"forward writes into self\.st, .* register it as a buffer",
    "9_str_raises": r"model\.py:\d+: .*\bE\b",
    "exit0": r"model\.py:\d+: .*calls exit\(\)",
}
# what the review changed between two steps, and what is said of it: where, and both values
CHANGED: dict[str, tuple[Change, str]] = {
    "2_kl_weight_in_dict": (
        lambda m, f: m.w.update(kl=torch.tensor(0.5)),
        r"w\[kl\] is float32\[\] 0\.5, planned for float32\[\] 0\.0",
    ),
    "2_list_of_tensors": (
        lambda m, f: m.sc.__setitem__(0, torch.full((16,), 5.0)),
        r"sc is list \[float32\[16\] \[5\.0, .* planned for list \[float32\[16\] \[2\.0, ",
    ),
    "3_numpy_over_1000": (
        lambda m, f: m.w.__setitem__(505, 3.0),
        r"w is float64\[1200\] sha256 \w+, planned for float64\[1200\] sha256 ",
    ),
    "call_obj": (lambda m, f: setattr(m.w, "z", 3.0), r"w\.z is 3\.0, planned for 2\.0"),
    "class_tensor": (
        lambda m, f: setattr(f.K, "t", torch.full((16,), 3.0)),
        r"K\.t is float32\[16\] \[3\.0, .* planned for float32\[16\] \[2\.0, ",
    ),
    "closure_tensor": (
        lambda m, f: f.f.t.fill_(3.0),
        r"f\.__closure__\[0\]\.cell_contents is float32\[16\] \[3\.0, .* planned for ",
    ),
    "deep": (
        lambda m, f: m.w["a"]["a"]["a"]["a"]["a"]["a"].update(a=3.0),
        r"w(\[a\]){7} is 3\.0, planned for 2\.0",
    ),
    "deflt_mut": (
        lambda m, f: f.g.__defaults__[0].__setitem__(0, 3.0),
        r"g\.__defaults__ is tuple \[list \[3\.0\]\], planned for tuple \[list \[2\.0\]\]",
    ),
    "glob_list": (
        lambda m, f: f.S.__setitem__(0, 3.0),
        r"S is list \[3\.0\], planned for list \[2\.0\]",
    ),
    "long_list": (
        lambda m, f: m.w.__setitem__(1500, 3.0),
        r"w is list sha256 \w+, planned for list sha256 ",
    ),
    "method_obj": (lambda m, f: setattr(m.w, "z", 3.0), r"w\.z is 3\.0, planned for 2\.0"),
    "under_dict": (lambda m, f: m.w.update(_k=3.0), r"w\[_k\] is 3\.0, planned for 2\.0"),
    "written": (
        lambda m, f: setattr(m.cfg, "scale", 3.0),
        r"cfg\.scale is 3\.0, planned for 2\.0",
    ),
}
# gradients of eager's that share memory: what accumulates into one is in the other as well
ONE_STEP = frozenset(("6_alias",))
NOT_MODELS = frozenset(("8_quadratic_order",))  # a bare graph: see tests/bare


def _source(name: str) -> str:
    path = FILES / f"{name}.py"
    if not path.exists():
        pytest.skip("the review's files are not beside this checkout")
    return path.read_text()


def test_each_file_is_looked_at() -> None:
    known = {*REFUSED, *CHANGED, *ONE_STEP, *NOT_MODELS}
    assert known.issuperset(path.stem for path in FILES.glob("*.py"))


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_repeat_itself_is_refused(name: str) -> None:
    with pytest.raises(RematError, match=REFUSED[name]):
        make_pair_of(_source(name), "1GB", "per-layer")


@pytest.mark.parametrize("name", [*CHANGED, *ONE_STEP])
def test_steps_are_eagers(name: str) -> None:
    pair = make_pair_of(_source(name), "1GB", "per-layer")
    steps = 1 if name in ONE_STEP else 2
    assert_same(*(run_steps(model, pair, steps) for model in pair.models()))


@pytest.mark.parametrize("name", CHANGED)
def test_a_change_is_named_with_both_values(name: str) -> None:
    pair = make_pair_of.__wrapped__(_source(name), "1GB", "per-layer")  # its file is changed
    change, said = CHANGED[name]
    _, planned = pair.models()
    run_steps(planned, pair)
    change(planned, pair.planned)
    with pytest.raises(ValueError, match=said):
        run_steps(planned, pair)
