"""What a forward does besides computing: a planned one would not, so it is refused."""

from __future__ import annotations

from remat_gen.ir.errors import TraceError

DRAWS = (
    "forward draws random numbers of Python or NumPy, or sets their seed, which a planned step "
    "would not do: draw them with torch"
)

INSTEAD = "make it a buffer, return it, or pass it as an argument"
ONCE = "make it in __init__(), or run the model once in build_model(), under torch.no_grad()"


class DrawError(TraceError):
    """Forward draws random numbers on the host."""

    def __init__(self, reason: str = DRAWS, name: str = "") -> None:
        TraceError.__init__(self, reason)
        self.name = name  # none


class KeptError(TraceError):
    """Forward keeps something, by the `name` of it, where a planned one would not."""

    def __init__(self, reason: str, name: str) -> None:
        TraceError.__init__(self, reason)
        self.name = name
