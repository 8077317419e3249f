"""A GPU is calibrated into a target. Skipped where there is none."""

from __future__ import annotations

import sys

import pytest
import torch

from remat_gen.capture.profile.calibrate import calibrate

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
    pytest.mark.skipif("simulated_gpu.library" in sys.modules, reason="its times mean nothing"),
]


def test_rates_of_this_gpu() -> None:
    found = calibrate(torch.device("cuda"))
    assert found.name == torch.cuda.get_device_name() and found.alignment_bytes == 512
    assert found.flops_per_s["float16"] > found.flops_per_s["float32"]
    # Every GPU since Volta multiplies at least 10 numbers for each byte that it moves.
    assert found.flops_per_s["float16"] / found.bytes_per_s > 10
    assert 0.5 < found.launch_us < 100
