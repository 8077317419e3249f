"""Budgets as users write them."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runs import Remat
from hypothesis import given
from hypothesis import strategies as st

from remat_gen.ask.budget import Optimizer, Resident, break_down, parse_budget, parse_size
from remat_gen.ask.request import DeviceMemory
from remat_gen.capture.device.kinds import kind_of
from remat_gen.ir.byte_text import size
from remat_gen.ir.errors import UsageError

_UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "GiB": 2**30}


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("6GB", 6 * 10**9),
        ("1.5GiB", 3 * 2**29),
        ("512MB", 512 * 10**6),
        ("4096", 4096),
        (" 2 kb ", 2000),
        ("1TiB", 2**40),
        ("0.5KiB", 512),
    ],
)
def test_sizes(text: str, nbytes: int) -> None:
    assert parse_budget(text).resolve(1) == nbytes


@pytest.mark.parametrize(
    ("text", "peak", "nbytes"),
    [("70%", 1000, 700), ("33.3 %", 1000, 333), ("100%", 7, 7), ("102%", 1000, 1020)],
)
def test_shares(text: str, peak: int, nbytes: int) -> None:
    assert parse_budget(text).resolve(peak) == nbytes


@given(st.integers(1, 10**9), st.sampled_from(sorted(_UNITS)), st.booleans())
def test_whole_sizes_are_exact(number: int, unit: str, space: bool) -> None:
    text = f"{number}{' ' * (space and bool(unit))}{unit}"
    assert parse_size(text, "--budget") == number * _UNITS[unit]


@given(st.integers(1, 10_000), st.integers(1, 10**15))
def test_shares_round_down(hundredths: int, peak: int) -> None:
    nbytes = parse_budget(f"{hundredths // 100}.{hundredths % 100:02}%").resolve(peak)
    assert nbytes == peak * hundredths // 10_000


BAD_BUDGETS = [
    *("abc", "", "0", "0GB", "-3GB", "-1", "nan", "inf", "1e9", "6G", "6 GBs", "GB", "0.1"),
    *("6,5GB", "0%", "201%", "-5%", "nan%", "%", "6GB%", "٣GB", "9" * 5000, "1_000", "0x10"),
]


@pytest.mark.parametrize("text", BAD_BUDGETS)
def test_bad_budgets_are_refused(text: str, folder: Path, remat: Remat) -> None:
    ended = remat("small.py", f"--budget={text}")
    assert ended.code == 2
    assert "--budget" in ended.err
    assert any(example in ended.err for example in ("6GB", "70%"))
    assert "Traceback" not in ended.err


@given(st.text(max_size=12))
def test_any_text_is_a_budget_or_refused(text: str) -> None:
    try:
        budget = parse_budget(text)
    except UsageError:
        return
    assert budget.nbytes or budget.percent


@pytest.mark.parametrize(
    ("options", "phrase"),
    [
        ([], "give --budget"),
        (["--budget", "1GB", "--device-memory", "2GB"], "exclude each other"),
        (["--device-memory", "much"], "--device-memory"),
        (["--device-memory", "2GB", "--headroom", "some"], "--headroom"),
        (["--device-memory", "2GB", "--optimizer", "lion"], "lion"),
        (["--device-memory", "1MB"], "leaves nothing for activations"),
    ],
)
def test_bad_limits_are_refused(
    options: list[str], phrase: str, folder: Path, remat: Remat
) -> None:
    ended = remat("small.py", *options)
    assert ended.code == 2
    assert phrase in ended.err


@pytest.mark.parametrize(
    ("optimizer", "copies"), [("none", 0), ("sgd", 0), ("momentum", 1), ("adam", 2), ("adamw", 2)]
)
def test_a_devices_memory_is_broken_down(optimizer: str, copies: int) -> None:
    resident = Resident(parameters_bytes=100, trained_bytes=60, buffers_bytes=7, inputs_bytes=5)
    breakdown = break_down(1000, resident, Optimizer(optimizer), 50)
    assert breakdown.activations_bytes == 1000 - 100 - 60 - copies * 60 - 7 - 5 - 50
    assert "1000 B device - 100 B parameters - 60 B gradients" in str(breakdown)


def test_a_gpu_needs_more_headroom_than_a_cpu() -> None:
    """For its context, cuBLAS's workspaces in two threads, and the allocator's segments."""
    resident = Resident(0, 0, 0, 0)
    memory = DeviceMemory("80GB")
    left = {
        kind: memory.break_down(resident, kind_of(kind).headroom_bytes).activations_bytes
        for kind in ("cpu", "cuda")
    }
    assert left == {"cpu": 79 * 10**9, "cuda": 75 * 10**9}
    asked = DeviceMemory("80GB", headroom="2GB")
    assert (
        asked.break_down(resident, kind_of("cuda").headroom_bytes).activations_bytes == 78 * 10**9
    )


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (2048, "2 KiB"), (4456448, "4.25 MiB"), (-(2**31), "-2 GiB")],
)
def test_bytes_for_people(nbytes: int, text: str) -> None:
    assert size(nbytes) == text
