"""The simulated GPU does what tests of the product rely on: `nox -s tests` runs them on it."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from on_gpu_steps import SIMULATED, simulated_only
from torch import Tensor, nn

if SIMULATED:
    from simulated_gpu.events import logged

pytestmark = [pytest.mark.cuda, simulated_only]
MIB = 1 << 20


@pytest.fixture(autouse=True)
def no_free_blocks() -> Iterator[None]:
    """Begin with full segments: other tests of this process may have left tensors in some."""
    torch.cuda.init()
    held = [_filling(nbytes) for nbytes in (512, MIB + 512)]
    yield
    del held
    torch.cuda.set_per_process_memory_fraction(1.0)


def _filling(nbytes: int) -> list[Tensor]:
    """Return tensors that leave no room for another of their size without a new segment."""
    torch.cuda.empty_cache()
    held, reserved = [], stat("reserved")
    while stat("reserved") == reserved:
        held.append(on_gpu(nbytes))
    held.pop()  # alone in the new segment
    torch.cuda.empty_cache()
    return held


def on_gpu(nbytes: int) -> Tensor:
    return torch.empty(nbytes, dtype=torch.uint8, device="cuda")


def stat(kind: str, what: str = "current") -> int:
    return int(torch.cuda.memory_stats()[f"{kind}_bytes.all.{what}"])


def risen(make: Callable[[], object]) -> tuple[int, int, int]:
    """Return requested, allocated and reserved bytes that were added while something is held."""
    kinds = ("requested", "allocated", "reserved")
    before = [stat(kind) for kind in kinds]
    held = make()
    after = [stat(kind) for kind in kinds]
    del held
    requested, allocated, reserved = (a - b for a, b in zip(after, before, strict=True))
    return requested, allocated, reserved


@pytest.mark.parametrize(
    ("nbytes", "expected"),
    [
        (1, (1, 512, 2 * MIB)),
        (513, (513, 1024, 2 * MIB)),
        (MIB, (MIB, MIB, 2 * MIB)),
        (MIB + 1, (MIB + 1, MIB + 512, 20 * MIB)),  # split from a segment of 20 MiB
        (10 * MIB, (10 * MIB, 10 * MIB, 10 * MIB)),
        (11 * MIB + 1, (11 * MIB + 1, 12 * MIB, 12 * MIB)),  # less than 1 MiB left: not split
    ],
)
def test_bytes_are_counted_as_the_caching_allocator_does(
    nbytes: int, expected: tuple[int, int, int]
) -> None:
    assert risen(lambda: on_gpu(nbytes)) == expected


def test_blocks_are_split_and_merged() -> None:
    three = [on_gpu(512) for _ in range(3)]
    reserved = stat("reserved")
    first = three[0].data_ptr()
    assert [t.data_ptr() - first for t in three] == [0, 512, 1024]
    del three
    whole = on_gpu(MIB)
    assert whole.data_ptr() == first and stat("reserved") == reserved
    del whole
    torch.cuda.empty_cache()
    assert stat("reserved") == 0 or stat("allocated") > 0


def test_peaks_are_kept_and_reset() -> None:
    torch.cuda.reset_peak_memory_stats()
    before = stat("requested")
    on_gpu(1000)
    assert stat("requested", "peak") == before + 1000 and stat("requested") == before
    torch.cuda.reset_peak_memory_stats()
    assert stat("requested", "peak") == before


def test_memory_is_never_by_luck_what_it_was() -> None:
    fresh = torch.empty(4, device="cuda")
    assert fresh.isnan().all()
    freed = fresh.fill_(1.0).data_ptr()
    del fresh
    held = on_gpu(16)
    assert held.data_ptr() == freed and (held == 0xFF).all()


def test_a_limit_is_kept_and_the_cache_given_back_first() -> None:
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((stat("reserved") + 40 * MIB) / total)
    on_gpu(30 * MIB)  # its segment is kept, and would be in the way
    held = on_gpu(32 * MIB)
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        on_gpu(20 * MIB)
    assert held[:16].fill_(7).sum().item() == 16 * 7


def test_devices_are_not_mixed() -> None:
    x = torch.ones(3, device="cuda")
    with pytest.raises(RuntimeError, match="on the same device"):
        x + torch.ones(3)
    assert torch.equal((x + torch.tensor(1.0)).cpu(), torch.full((3,), 2.0))
    assert x[torch.tensor([0, 2])].numel() == 2


def test_generators_are_the_devices_own() -> None:
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator"):
        torch.rand(3, device="cuda", generator=torch.Generator())
    with pytest.raises(RuntimeError, match="RNG state is wrong size"):
        torch.cuda.set_rng_state(torch.get_rng_state())
    own = torch.Generator("cuda").manual_seed(3)
    torch.cuda.manual_seed(3)
    drawn = torch.rand(5, device="cuda")
    assert torch.equal(drawn, torch.rand(5, device="cuda", generator=own))


def test_the_hosts_numbers_are_left_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    state = torch.cuda.get_rng_state()
    torch.rand(1000, device="cuda")
    assert not torch.equal(torch.cuda.get_rng_state(), state)
    assert torch.equal(torch.rand(2), expected)


def test_views_share_memory_and_results_do_not() -> None:
    x = torch.zeros(4, 6, device="cuda")
    x.t()[1:3].view(-1) if x.t()[1:3].is_contiguous() else x.t()[1:3].add_(1)
    x.view(torch.int32)[0, 0] = 0x3F800000
    assert x.sum().item() == 9.0 and x.unfold(1, 2, 2).shape == (4, 3, 2)
    torch.add(x, 1, out=x)
    made = torch.empty(0, device="cuda")
    torch.mul(x, 2, out=made)
    assert made.sum().item() == 2 * (9.0 + 24)


def test_a_step_as_on_the_host() -> None:
    torch.manual_seed(0)
    host = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten())
    host.append(nn.Linear(8 * 36, 5))
    gpu = copy.deepcopy(host).cuda()
    x = torch.randn(4, 3, 8, 8)
    for model, given in ((host, x), (gpu, x.cuda())):
        nn.functional.cross_entropy(model(given), given.new_tensor([0, 1, 2, 3]).long()).backward()
    for ours, theirs in zip(gpu.parameters(), host.parameters(), strict=True):
        assert ours.grad is not None and theirs.grad is not None
        assert torch.equal(ours.grad.cpu(), theirs.grad)


def test_backward_runs_in_a_thread_of_its_own() -> None:
    seen: list[int] = []

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: object, grad: Tensor) -> Tensor:
            seen.append(threading.get_ident())
            return grad * 2

    Double.apply(torch.ones(2, device="cuda", requires_grad=True)).sum().backward()
    assert seen and seen[0] != threading.get_ident()


def test_what_the_host_waits_for_is_logged() -> None:
    x = torch.ones(3, device="cuda")
    with logged() as events:
        (x * 2).sum()
    assert {event.kind for event in events} == {"alloc", "free", "op"}
    with logged() as events:
        x.sum().item()
        torch.cuda.synchronize()
        torch.tensor([1.0, 2.0], device="cuda")
    kinds = [event.kind for event in events]
    assert kinds.count("read") == kinds.count("sync") == kinds.count("upload") == 1


def test_streams_and_events() -> None:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        end.record()
    assert torch.cuda.current_stream() == torch.cuda.default_stream() != stream
    torch.cuda.current_stream().wait_stream(stream)
    assert start.elapsed_time(end) >= 0
