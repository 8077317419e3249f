"""The garbage collector looks less often while a model is traced, and as before afterwards."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from tracing import LINEAR, source, traced

from remat_gen.capture.garbage import fewer_collections
from remat_gen.ir.errors import TraceError


def test_thresholds_are_put_back_after_an_error() -> None:
    before = gc.get_threshold()
    with pytest.raises(ZeroDivisionError), fewer_collections():
        assert gc.get_threshold()[0] > before[0]
        raise ZeroDivisionError
    assert gc.get_threshold() == before


def test_a_model_is_traced_so(tmp_path: Path) -> None:
    before = gc.get_threshold()
    traced(tmp_path, source(LINEAR, "return self.lin(x).sum()"))
    assert gc.get_threshold() == before
    with pytest.raises(TraceError):
        traced(tmp_path, source(LINEAR, "self.n = 1\nreturn x"))
    assert gc.get_threshold() == before
