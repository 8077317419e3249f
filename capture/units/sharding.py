"""How FSDP2 shards a model: what a plan counts, and in which precision it computes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from remat_gen.ir.errors import UsageError

_DTYPES = "bfloat16", "float16", "float32", "float64"
_WRITTEN = re.compile(r"(\d+)(?::(\w+))?(?::(\w+))?")


@dataclass(frozen=True, slots=True)
class Sharding:
    """FSDP2 over so many `processes`; 0 where the model is not sharded.

    `parameters` and `reduction` are the dtypes of a MixedPrecisionPolicy by torch's names: in which
    parameters are gathered, and gradients reduced; "" stands for the model's own.
    """

    processes: int = 0
    parameters: str = ""
    reduction: str = ""

    def __str__(self) -> str:
        """Return it as `--fsdp` has it: 8, 8:bfloat16, 8:bfloat16:float32; "" for none."""
        parts = (str(self.processes or ""), self.parameters, self.reduction)
        return ":".join(part for part in parts if part)

    def __bool__(self) -> bool:
        return self.processes > 0


NOT_SHARDED = Sharding()


def parse_sharding(text: str) -> Sharding:
    """Read what `--fsdp` was given.

    Raises:
        UsageError: it is no number of processes, or names no dtype.
    """
    if not text:
        return NOT_SHARDED
    match = _WRITTEN.fullmatch(text)
    dtypes = [dtype for dtype in (match.groups()[1:] if match else ()) if dtype]
    if match is None or not set(dtypes) <= set(_DTYPES):
        raise UsageError(
            f"--fsdp {text}: give the number of processes, and with a MixedPrecisionPolicy the "
            f"dtypes of parameters and of the reduction, as in 8:bfloat16:float32"
        )
    if int(match[1]) < 1:
        raise UsageError(f"--fsdp {text}: give at least 1")
    return Sharding(int(match[1]), *dtypes)
