"""remat-gen: activation rematerialisation as source code.

`generate`, `generate_stages`, `check`, `verify`, `diff`, `sweep` and `fit` are the commands as
functions: `remat_gen.api`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remat_gen.api import check as check
    from remat_gen.api import diff as diff
    from remat_gen.api import fit as fit
    from remat_gen.api import generate as generate
    from remat_gen.api import generate_stages as generate_stages
    from remat_gen.api import sweep as sweep
    from remat_gen.api import verify as verify
    from remat_gen.capture.device.captured_step import capture_step as capture_step
    from remat_gen.ir.errors import InfeasibleBudgetError as InfeasibleBudgetError
    from remat_gen.ir.errors import RematError as RematError

__version__ = "0.1.0"

_HERE = Path(__file__).parent
if not (_HERE / "ir").is_dir():  # a checkout, whose other floors stand beside this one
    __path__.append(str(_HERE.parent))

_PLACES = {  # of what stands not in `api`
    "capture_step": "remat_gen.capture.device.captured_step",
    "RematError": "remat_gen.ir.errors",
    "InfeasibleBudgetError": "remat_gen.ir.errors",
}
__all__ = [
    "InfeasibleBudgetError",
    "RematError",
    "capture_step",
    "check",
    "diff",
    "fit",
    "generate",
    "generate_stages",
    "sweep",
    "verify",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: `remat-gen --help` must not wait for it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES.get(name, "remat_gen.api")), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
