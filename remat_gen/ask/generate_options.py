"""The options of `generate` as they are written, and the one way from them to a request.

The command line, `pyproject.toml` and Python call the options the same; what they mean, and which
exclude each other, is said here and in `remat_gen.ask.request`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from remat_gen.ask.budget import Budget, Optimizer
from remat_gen.ask.choice import chosen, several
from remat_gen.ask.pin_patterns import make_pins
from remat_gen.ask.request import (
    DeviceMemory,
    Request,
    Strategy,
    make_count,
    make_device,
    make_dynamic,
    make_limit,
)
from remat_gen.ask.rung_texts import make_rungs
from remat_gen.capture.units.sharding import parse_sharding
from remat_gen.ir.errors import UsageError
from remat_gen.solver.law.search_types import Effort

_EXCLUDED = {
    "compile": ("offload",),
    "rungs": ("static", "compile", "offload", "units", "in_flight", "captured"),
    "units": ("target", "compile", "offload", "batch", "dynamic"),
    "in_flight": ("compile", "offload"),
    "fix": ("target", "batch", "units"),
    "captured": ("offload",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateOptions:
    """What was written; None and the defaults stand for what was not.

    `model` is the name of the class or function that builds it, `inputs` that of the function that
    makes the example.
    """

    budget: str | None = None
    device_memory: str | None = None
    optimizer: str | None = None
    headroom: str | None = None
    model: str | None = None
    inputs: str | None = None
    device: str = "auto"
    target: str | None = None
    strategy: str = Strategy.AUTO.value
    effort: str = Effort.NORMAL.value
    dynamic: Sequence[str] | None = None
    static: bool = False
    keep: Sequence[str] | None = None
    recompute: Sequence[str] | None = None
    force: bool = False
    reprofile: bool = False
    fresh: bool = False
    compile: bool = False
    offload: bool = False
    batch: int | None = None
    units: Sequence[str] | None = None
    fsdp: int | str | None = None
    in_flight: int | None = None
    rungs: str | None = None
    fix: Sequence[str] | None = None
    captured: bool = False

    def request(self, model_file: Path, output: Path | None, *, live: str | None = None) -> Request:
        """Return the request for a file; `live` is the class of a model that was built already.

        Raises:
            UsageError: an option is none, or two exclude each other.
        """
        self._refuse_clashes()
        rungs = make_rungs(self.rungs)
        return Request(
            model_file=model_file,
            limit=self._limit(),
            output=output,
            model=live or self.model,
            inputs=self.inputs,
            device=make_device(self.device, self.target),
            target=self.target or "",
            strategy=chosen(Strategy, "strategy", self.strategy),
            effort=chosen(Effort, "effort", self.effort),
            dynamic=make_dynamic(several(self.dynamic), static=self.static),
            pins=make_pins(several(self.keep), several(self.recompute)),
            force=self.force,
            reprofile=self.reprofile,
            fresh=self.fresh,
            live=live is not None,
            compiled=self.compile,
            offload=self.offload,
            batch=make_count("--batch", self.batch),
            units=self._units(),
            fsdp=parse_sharding("" if self.fsdp is None else str(self.fsdp)),
            in_flight=make_count("--in-flight", self.in_flight) or 1,
            rungs=rungs,
            auto_rungs=self.rungs is not None and not rungs,
            fix=several(self.fix),
            captured=self.captured,
        )

    def _refuse_clashes(self) -> None:
        given = {"rungs": self.rungs is not None, "in_flight": self.in_flight not in (None, 1)}
        for option, others in _EXCLUDED.items():
            clash = [other for other in others if getattr(self, other)]
            if clash and given.get(option, getattr(self, option)):
                one, other = (f"--{name.replace('_', '-')}" for name in (option, clash[0]))
                raise UsageError(f"{one} and {other} exclude each other; give one of them")

    def _units(self) -> tuple[str, ...]:
        """Return the patterns of units, each once.

        Raises:
            UsageError: what says more about units is given without, or `auto` with others.
        """
        if self.fsdp is not None and not self.units:
            raise UsageError("--fsdp needs --units: the submodules that fully_shard is called on")
        patterns = several(self.units)
        if "auto" in patterns and len(patterns) > 1:
            raise UsageError("--units auto finds all units: give it alone")
        return patterns

    def _limit(self) -> Budget | DeviceMemory:
        optimizer = chosen(Optimizer, "optimizer", self.optimizer) if self.optimizer else None
        return make_limit(self.budget, self.device_memory, optimizer, self.headroom, self.target)
