"""Generators are left as they were, also the seed that GPUs get when they are first used."""

from __future__ import annotations

import pytest
import torch

from remat_gen.capture.process.generators import kept_generators

pytestmark = pytest.mark.skipif(
    torch.cuda.is_initialized(), reason="a GPU has its seed: it is used already"
)


def seeds_of_gpus() -> list[int]:
    """Return the seeds that GPUs will get, in the order in which they are set."""
    calls = torch.cuda._lazy_seed_tracker.get_calls()
    cells = [cell.cell_contents for call in calls if call for cell in call[0].__closure__ or ()]
    return [content for content in cells if isinstance(content, int)]


def test_the_seed_that_gpus_will_get_is_put_back() -> None:
    torch.manual_seed(1234)
    assert seeds_of_gpus()[-1] == 1234
    state = torch.get_rng_state()
    with kept_generators():
        torch.manual_seed(0)
        torch.rand(3)
        assert seeds_of_gpus()[-1] == 0
    assert seeds_of_gpus()[-1] == 1234
    assert torch.equal(torch.get_rng_state(), state)


def test_gpus_that_are_used_meanwhile_are_seeded_as_if_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[int] = []
    torch.manual_seed(1234)
    with kept_generators():
        torch.manual_seed(0)
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.cuda, "manual_seed_all", given.append)
        tracker = torch.cuda._lazy_seed_tracker
        user = (lambda: given.append(1234), "")
        monkeypatch.setattr(tracker, "get_calls", lambda: [None, user])
    assert given == [torch.Generator().initial_seed(), 1234]
