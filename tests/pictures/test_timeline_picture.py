"""The picture: the same bytes each time, nothing from outside in it, readable labels."""

from __future__ import annotations

import re
import struct
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import combinations, pairwise

import matplotlib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remat_gen.ir.byte_text import size
from remat_gen.ir.errors import UsageError
from remat_gen.picture.timeline_measured import common_order, on_plans_clock
from remat_gen.picture.timeline_owners import residence_of
from remat_gen.picture.timeline_picture import timeline_picture
from remat_gen.picture.timeline_view import Curve, TimelineView
from remat_gen.review.retrace import Retraced


def labels(svg: bytes) -> set[str]:
    """Return the texts of a picture: glyphs are outlines, but each text is told in a comment."""
    return set(re.findall(r"<!-- (.*?) -->", svg.decode()))


def test_it_says_what_is_to_be_seen(view: TimelineView) -> None:
    found = labels(timeline_picture(view))
    assert {"forward", "backward", "h.0", "h.1", "h.2", "h.3"} <= found
    assert {"retained, by module", "run again", "gradients", "transient"} <= found
    assert {f"eager {size(view.eager.peak_bytes)}", f"budget {size(view.budget_bytes)}"} <= found
    (peak,) = [text for text in found if text.startswith("peak ")]
    assert re.fullmatch(rf"peak {size(view.peak_bytes)} at [\w.]+, gpt\.py:\d+", peak)
    assert "measured" not in found


def test_the_same_bytes_whatever_the_users_style(
    view: TimelineView, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = timeline_picture(view)
    monkeypatch.setitem(matplotlib.rcParams, "lines.linewidth", 9)
    monkeypatch.setitem(matplotlib.rcParams, "font.size", 30)
    monkeypatch.setitem(matplotlib.rcParams, "svg.hashsalt", "another")
    assert timeline_picture(view) == first
    assert matplotlib.rcParams["font.size"] == 30
    assert not re.search(rb"20\d\d-\d\d-\d\d", first)


def test_it_needs_nothing_besides(view: TimelineView) -> None:
    root = ET.fromstring(timeline_picture(view))
    link = "{http://www.w3.org/1999/xlink}href"
    assert all(e.get(link, "#").startswith("#") for e in root.iter())
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert tags.isdisjoint({"image", "script", "text", "foreignObject"})


def test_png(view: TimelineView) -> None:
    png = timeline_picture(view, "png")
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", png[16:24]) == (1200, 825)
    assert png == timeline_picture(view, "png")


def test_names_are_data(view: TimelineView) -> None:
    hostile = "a$x$ --> <b>&amp; \\frac{1}{2} `"
    svg = timeline_picture(replace(view, title=hostile, peak_label=hostile))
    root = ET.fromstring(svg)
    assert root[0].text == hostile


def test_measured_memory_is_put_on_the_plans_clock(gpt: Retraced, view: TimelineView) -> None:
    """A step that was as planned, on a clock that runs unevenly: its peak is where it should be."""
    residence = residence_of(gpt.problem, gpt.schedule)
    sizes = gpt.problem.values
    events = sorted(
        [(stay.begin, sizes[stay.value].nbytes) for stay in residence.stays]
        + [(stay.end, -sizes[stay.value].nbytes) for stay in residence.stays],
        key=lambda event: (event[0], event[1]),
    )
    clock = [3 * position**2 for position, _ in events]
    totals, total = [], 0
    for _, change in events:
        totals.append(total := total + change)
    curve = on_plans_clock(residence, clock, [change for _, change in events], totals)
    assert curve.peak_bytes == view.peak_bytes
    at = curve.times_us[curve.nbytes.index(curve.peak_bytes)]
    begin = max(t for t in view.times_us if t <= view.peak_us)
    assert at == pytest.approx(begin, abs=1e-6)  # interpolated: a rounding error of a float
    assert list(curve.times_us) == sorted(curve.times_us)
    assert "measured" in labels(timeline_picture(replace(view, measured=curve)))


def test_a_measurement_unlike_the_plan_is_drawn_as_it_is(gpt: Retraced) -> None:
    residence = residence_of(gpt.problem, gpt.schedule)
    curve = on_plans_clock(residence, [0, 5, 10], [7, 3, -10], [7, 10, 0])
    assert curve == Curve(
        (0.0, residence.time_us / 2, residence.time_us, residence.time_us), (7, 10, 0)
    )


def test_without_matplotlib(view: TimelineView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(UsageError, match=r"pip install 'remat-gen\[plot\]'"):
        timeline_picture(view)


def test_repeated_layers_are_not_taken_for_one_another() -> None:
    """One allocation more, in the third layer: the longest equal run begins a layer too late."""
    layer = [7, 8, 9]
    pairs = common_order(layer * 6, [*layer, *layer, 3, *layer, *layer, *layer, *layer])
    assert pairs == [(i, i + (i >= 6)) for i in range(18)]


SIZES = st.lists(st.integers(1, 3), max_size=8)


@given(SIZES, SIZES)
def test_the_longest_common_order(ours: list[int], theirs: list[int]) -> None:
    pairs = common_order(ours, theirs)
    assert all(ours[i] == theirs[j] for i, j in pairs)
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(pairs))
    chosen = (set(combinations(each, len(pairs) + 1)) for each in (ours, theirs))
    assert not set.intersection(*chosen)  # none that is longer
