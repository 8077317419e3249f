"""A length that varies is an int, also for a forward that is traced without Dynamo."""

from __future__ import annotations

import pytest
from varying import assert_as_eager, varying
from varying_models import one_line

ASKS = {
    "isinstance": "isinstance(n, int)",
    "one of several": "isinstance(n, (str, int))",
    "type": "type(n) is int",
    "a float": "isinstance(n * 1.0, float)",
    "kept": "isinstance(self.rows, int)",
    "no SymInt": "not isinstance(n, torch.SymInt)",
    "a class": "isinstance(Net, type)",
}


@pytest.mark.parametrize("asks", ASKS)
def test_a_branch_on_its_type(asks: str) -> None:
    """Keeping a tensor, it is traced so; `SymInt` answered no, and the other branch was planned."""
    forward = f"""
h = self.lin(x)
self.seen, self.rows = h.detach().mean(), h.shape[0]
n = h.shape[0]
return h * 2 if {ASKS[asks]} else h
"""
    planned = varying(one_line("", forward))
    for number in (6, 4):
        assert_as_eager(planned, number)
