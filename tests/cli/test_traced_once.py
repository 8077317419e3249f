"""Tests that share traces get those of the files that are there."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import traced_once

from remat_gen.capture.load.load import load
from remat_gen.capture.trace.trace import trace_loaded
from remat_gen.review import retrace as existing

NET = """
import torch
from torch import nn
from width import WIDTH

def build_model():
    return nn.Sequential(nn.Linear(4, WIDTH), nn.Tanh())

def example_inputs():
    return (torch.ones(2, 4),)
"""


def test_a_trace_is_shared_until_a_file_changes(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "width.py").write_text("WIDTH = 8\n")
    with mock.patch.object(traced_once, "trace_loaded", wraps=trace_loaded) as trace:
        first, second = (load(tmp_path / "net.py", device="cpu") for _ in range(2))
        found, again = (existing.trace_loaded(loaded) for loaded in (first, second))
        assert found.graph is again.graph
        assert again.reads.file is vars(second.module)
        assert trace.call_count == 1
        assert existing.trace_loaded(second, None).dynamic == ("input:0",)
        assert trace.call_count == 2
        (tmp_path / "width.py").write_text("WIDTH = 16\n")
        wide = existing.trace_loaded(load(tmp_path / "net.py", device="cpu"))
        assert wide.graph != found.graph
        assert trace.call_count == 3
