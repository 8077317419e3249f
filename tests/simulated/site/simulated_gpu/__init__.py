"""A simulated GPU: torch's CPU build believes in `cuda:0`, which is memory of the host.

The shared library (source/) registers what torch's CUDA library would: a device guard, hooks, a
generator of seed and offset, an allocator that counts as the caching allocator does, and a boxed
fallback that runs the CPU's kernels on the device's memory. `runtime` fills in the functions of
`torch._C` that `torch.cuda` calls, so that torch.cuda itself is torch's.

It is loaded before torch, in processes of its own: put `tests/simulated/site` into PYTHONPATH.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder

from simulated_gpu.build import built, why_not


class _AtImport(MetaPathFinder):
    """Load the library just before torch is imported, and the functions just before torch.cuda."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "torch":
            from simulated_gpu.library import load

            load(built())
        elif name == "torch.cuda":
            from simulated_gpu.runtime import fill_in

            fill_in(sys.modules["torch._C"])


def install() -> None:
    """Simulate a GPU in this process once it imports torch, where that can be done."""
    if why_not() is None:
        sys.meta_path.insert(0, _AtImport())
