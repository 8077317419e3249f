"""Targets: the table of published rates, users' files, and what follows from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from measure_graphs import Builder

from remat_gen.capture.profile.modelled import modelled_costs, workspace_bytes
from remat_gen.capture.profile.targets import TABLE, Hardware, find_target, read_targets
from remat_gen.ir.errors import UsageError
from remat_gen.ir.graph import Trait

GPU = Hardware("GPU", "cuda", 10**9, 512, 2.0, 1e12, {"float32": 1e13, "bfloat16": 1e14}, "")


def test_the_table_is_of_gpus_as_they_are() -> None:
    found = read_targets(TABLE)
    assert list(found) == ["h200", "h100", "a100", "rtx4090"]
    for name, target in found.items():
        assert target.device == "cuda" and target.alignment_bytes == 512 and target.source, name
        rates = target.flops_per_s
        assert rates["bfloat16"] == rates["float16"] > rates["float32"] >= rates["float64"], name
        assert 100 < rates["bfloat16"] / target.bytes_per_s < 1000, name
    assert found["h200"].bytes_per_s > found["h100"].bytes_per_s > found["a100"].bytes_per_s


def test_a_file_has_one_target(tmp_path: Path) -> None:
    file = tmp_path / "two.toml"
    file.write_text(TABLE.read_text())
    with pytest.raises(UsageError, match="has 4 targets; a file that is given has one"):
        find_target(str(file))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("launch_us = 5.0", "launch_us = 0", "gpu.launch_us: is 0; write a number above 0"),
        (
            "launch_us = 5.0",
            "launch_us = 5.0\ncompute_capability = [9]",
            "gpu.compute_capability: is [9]; write two numbers",
        ),
        ("launch_us = 5.0", "launch_us = nan", "write a number above 0"),
        ("launch_us = 5.0", "launch_us = true", "write a number above 0"),
        ("launch_us = 5.0", "", "gpu: has no launch_us"),
        ("launch_us = 5.0", "launch_us = 5.0\nwatts = 700", "has an unknown key 'watts'"),
        ('device = "cuda"', 'device = "tpu"', "gpu.device: is 'tpu'; known are cuda, cpu"),
        ("memory_bytes = 1", "memory_bytes = 1.5", "write a whole number above 0"),
        ("float32 = 1e13", "", "write a rate by dtype"),
        ("[gpu]", "[gpu", "is no TOML"),
    ],
)
def test_what_a_file_says_is_checked(old: str, new: str, said: str, tmp_path: Path) -> None:
    text = (
        '[gpu]\nname = "GPU"\ndevice = "cuda"\nmemory_bytes = 1\nalignment_bytes = 512\n'
        'launch_us = 5.0\nbytes_per_s = 1e12\nsource = "here"\n[gpu.flops_per_s]\nfloat32 = 1e13\n'
    )
    file = tmp_path / "gpu.toml"
    file.write_text(text)
    assert find_target(str(file)).name == "GPU"
    file.write_text(text.replace(old, new))
    with pytest.raises(UsageError) as caught:
        find_target(str(file))
    assert said in str(caught.value) and str(file) in str(caught.value)


@pytest.mark.parametrize(("dtype", "time_us"), [("float32", 217.0), ("bfloat16", 23.5)])
def test_a_product_takes_as_long_as_its_dtype_does(dtype: str, time_us: float) -> None:
    build = Builder()
    names = [build.tensor(name, (1024, 1024), dtype=dtype) for name in ("a", "b", "y")]
    product = build.operation("aten.mm.default", names[:2], ["y"])
    costs = modelled_costs(build.graph(), GPU)
    # 2 * 1024^3 operations at the dtype's rate, and a launch of 2 us; to three digits
    assert costs.operations[product.name].time_us == time_us
    assert costs.operations[product.name].modelled and costs.device == "GPU"


def test_random_numbers_take_their_time() -> None:
    build = Builder()
    build.tensor("y", (1000, 1000), dtype="bool")
    drawn = build.operation("remat.dropout_mask.default", [(1000, 1000), (1000, 1), 0.9], ["y"])
    graph = replace(build.graph(), operations=(replace(drawn, traits=frozenset({Trait.RANDOM})),))
    slow = modelled_costs(graph, replace(GPU, drawn_per_s=1e8))
    fast = modelled_costs(graph, GPU)
    assert slow.operations[drawn.name].time_us == 10_000.0  # 10^6 numbers, and a launch
    assert fast.operations[drawn.name].time_us == 3.0  # a megabyte at 1 TB/s, and a launch


def test_a_table_is_read_by_the_row() -> None:
    build = Builder()
    table = build.tensor("table", (100_000, 1000))
    rows = build.tensor("rows", (10,), dtype="int64")
    build.tensor("y", (10, 1000))
    picked = build.operation("aten.embedding.default", [table, rows], ["y"])
    costs = modelled_costs(build.graph(), GPU)
    assert costs.operations[picked.name].time_us == 2.08  # 80 kB at 1 TB/s, and a launch


def test_the_workspace_of_flash_attention_backward() -> None:
    build = Builder()
    heads = {"d_y": 8, "q": 8, "k": 2, "v": 2}
    names = [build.tensor(n, (3, h, 100, 40), dtype="bfloat16") for n, h in heads.items()]
    for name in ("d_q", "d_k", "d_v"):
        build.tensor(name, (3, 8, 100, 40), dtype="bfloat16")
    backward = build.operation(
        "aten._scaled_dot_product_flash_attention_backward.default", names, ["d_q", "d_k", "d_v"]
    )
    sums = 4 * 3 * 8 * 128 * (64 + 1)  # 100 rows are 128, heads of 40 are 64, and a sum per row
    expanded = 2 * (2 * 3 * 8 * 100 * 40)  # keys and values of 8 heads instead of 2
    assert workspace_bytes(build.graph(), backward) == sums + expanded
