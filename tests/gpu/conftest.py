"""On the simulated GPU each call is timed once."""

import contextlib

with contextlib.suppress(ModuleNotFoundError):
    from simulated_gpu.timed_once import timed_once as timed_once
