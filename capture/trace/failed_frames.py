"""What the frames of a failed trace hold goes at once (docs/findings/trace.md)."""

from __future__ import annotations

import gc
import traceback

import torch


def drop_frames(error: BaseException) -> None:
    """Let go of all that the frames of a failed trace hold, and leave the dispatcher as it is.

    A guard of `torch.func` among it puts the dispatcher back to where it was amid the trace when
    it is collected, whenever that is: from then on operators would not see `vmap`.
    """
    included = torch._C._dispatch_tls_local_include_set()
    excluded = torch._C._dispatch_tls_local_exclude_set()
    with torch._C._ForceDispatchKeyGuard(included, excluded):
        raised: BaseException | None = error
        while raised is not None:
            traceback.clear_frames(raised.__traceback__)
            raised = raised.__cause__ or raised.__context__
        gc.collect(1)  # with so few collections nothing of a trace is older
