"""The roofline counts arithmetic and traffic as one does by hand."""

import torch
from measure_graphs import Builder

from remat_gen.capture.profile.roofline import (
    Rates,
    flops,
    measured_rates,
    moved_bytes,
    roofline_us,
)

RATES = Rates(flops_per_us=1000.0, bytes_per_us=100.0, launch_us=2.0)


def test_a_matrix_product() -> None:
    build = Builder()
    a, b = build.tensor("a", (10, 20)), build.tensor("b", (20, 30))
    build.tensor("y", (10, 30))
    product = build.operation("aten.mm.default", [a, b], ["y"])

    graph = build.graph()

    assert flops(graph, product) == 2 * 10 * 20 * 30
    assert moved_bytes(graph, product) == 4 * (200 + 600 + 300)
    assert roofline_us(graph, product, RATES) == 2.0 + 44.0  # bound by traffic
    assert roofline_us(graph, product, Rates(100.0, 1e9, 2.0)) == 2.0 + 120.0  # by arithmetic


def test_attention_on_the_cpu() -> None:
    build = Builder()
    q, k, v = (build.tensor(name, (2, 4, 16, 8)) for name in "qkv")
    build.tensor("y", (2, 4, 16, 8))
    build.tensor("lse", (2, 4, 16))
    attention = build.operation(
        "aten._scaled_dot_product_flash_attention_for_cpu.default", [q, k, v], ["y", "lse"]
    )
    assert flops(build.graph(), attention) == 2 * (2 * 2 * 4 * 16 * 16 * 8)


def test_a_convolution() -> None:
    build = Builder()
    x, weight = build.tensor("x", (2, 3, 8, 8)), build.tensor("weight", (5, 3, 3, 3))
    build.tensor("y", (2, 5, 6, 6))
    convolution = build.operation(
        "aten.convolution.default",
        [x, weight, None, (1, 1), (0, 0), (1, 1), False, (0, 0), 1],
        ["y"],
    )
    assert flops(build.graph(), convolution) == 2 * (2 * 5 * 6 * 6) * (3 * 3 * 3)


def test_elementwise_is_traffic_only_and_expansion_is_not_read() -> None:
    build = Builder()
    x = build.tensor("x", (1000, 1))
    wide = build.tensor("wide", (1000, 50), stride=(1, 0), storage="x")
    build.tensor("y", (1000, 50))
    addition = build.operation("aten.add.Tensor", [wide, x], ["y"])
    assert flops(build.graph(), addition) == 0
    assert moved_bytes(build.graph(), addition) == 4000 + 4000 + 200_000


def test_this_machine_has_rates() -> None:
    rates = measured_rates(torch.device("cpu"))
    assert rates.flops_per_us > 100
    assert rates.bytes_per_us > 10
    assert 0 < rates.launch_us < 1e4
