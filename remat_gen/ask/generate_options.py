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
        if self.compile and self.offload:
            raise UsageError("--compile and --offload exclude each other; give one of them")
        rungs = make_rungs(self.rungs)
        self._refuse_beside_rungs()
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
            in_flight=self._in_flight(),
            rungs=rungs,
            auto_rungs=self.rungs is not None and not rungs,
            fix=self._fix(),
            captured=self._captured(),
        )

    def _refuse_beside_rungs(self) -> None:
        others = {
            "--static": self.static,
            "--compile": self.compile,
            "--offload": self.offload,
            "--units": self.units,
            "--in-flight": self.in_flight,
            "--captured": self.captured,
        }
        clash = [option for option, value in others.items() if value]
        if self.rungs is not None and clash:
            raise UsageError(f"--rungs and {clash[0]} exclude each other; give one of them")

    def _captured(self) -> bool:
        """Return whether steps are captured.

        Raises:
            UsageError: values go to the host, which no CUDA graph does.
        """
        if self.captured and self.offload:
            raise UsageError("--captured and --offload exclude each other; give one of them")
        return self.captured

    def _fix(self) -> tuple[str, ...]:
        """Return the names of the inputs that are fixed, each once.

        Raises:
            UsageError: an option that was given makes other inputs, or has none with values.
        """
        others = {"--target": self.target, "--batch": self.batch, "--units": self.units}
        clash = [option for option, value in others.items() if value]
        if self.fix and clash:
            raise UsageError(f"--fix and {clash[0]} exclude each other; give one of them")
        return several(self.fix)

    def _units(self) -> tuple[str, ...]:
        """Return the patterns of units, each once.

        Raises:
            UsageError: an option that was given does not go with units.
        """
        others = {
            "--target": self.target,
            "--compile": self.compile,
            "--offload": self.offload,
            "--batch": self.batch,
            "--dynamic": self.dynamic,
        }
        clash = [option for option, value in others.items() if value]
        if self.units and clash:
            raise UsageError(f"--units and {clash[0]} exclude each other; give one of them")
        if self.fsdp is not None and not self.units:
            raise UsageError("--fsdp needs --units: the submodules that fully_shard is called on")
        patterns = several(self.units)
        if "auto" in patterns and len(patterns) > 1:
            raise UsageError("--units auto finds all units: give it alone")
        return patterns

    def _in_flight(self) -> int:
        """Return how many steps are in flight.

        Raises:
            UsageError: less than one, or with an option that does not know of several.
        """
        steps = make_count("--in-flight", self.in_flight) or 1
        others = {"--compile": self.compile, "--offload": self.offload}
        clash = [option for option, value in others.items() if value]
        if steps > 1 and clash:
            raise UsageError(f"--in-flight and {clash[0]} exclude each other; give one of them")
        return steps

    def _limit(self) -> Budget | DeviceMemory:
        optimizer = chosen(Optimizer, "optimizer", self.optimizer) if self.optimizer else None
        return make_limit(self.budget, self.device_memory, optimizer, self.headroom, self.target)
