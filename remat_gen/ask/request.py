"""What a user asks for, and the command that asks for it again."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from remat_gen.ask.budget import (
    Breakdown,
    Budget,
    Optimizer,
    Resident,
    break_down,
    parse_size,
)
from remat_gen.ask.pin_patterns import Pins
from remat_gen.capture.load.shell_words import shell_command
from remat_gen.capture.units.sharding import NOT_SHARDED, Sharding
from remat_gen.ir.errors import UsageError
from remat_gen.ir.rung import Rung
from remat_gen.solver.law.search_types import Effort

_USUAL = {"device": "auto", "strategy": "auto", "effort": "normal", "in_flight": 1}
DEFAULT_HEADROOM = ""  # what is usual on the device
FAKE = "fake"  # the device of tensors without values


class Strategy(StrEnum):
    """How a schedule is searched; the first is the default. The solver has the same names."""

    AUTO = "auto"
    ROCKMATE = "rockmate"
    ROTOR = "rotor"
    CHECKMATE = "checkmate"
    CHECKMATE_LP = "checkmate-lp"
    OGC = "ogc"
    CHEN_SQRT = "chen-sqrt"
    CHEN_GREEDY = "chen-greedy"
    GRIEWANK = "griewank"
    PER_LAYER = "per-layer"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """The other way to say a budget: what the whole step may take on the device."""

    text: str
    optimizer: Optimizer = Optimizer.ADAMW
    headroom: str = DEFAULT_HEADROOM

    def break_down(self, resident: Resident, usual_headroom: Callable[[int], int]) -> Breakdown:
        """Subtract what is no activation; `usual_headroom` goes by the device's bytes.

        Raises:
            UsageError: a size is none, or nothing is left.
        """
        nbytes = parse_size(self.text, "--device-memory")
        headroom = usual_headroom(nbytes)
        if self.headroom != DEFAULT_HEADROOM:
            headroom = 0 if self.headroom == "0" else parse_size(self.headroom, "--headroom")
        return break_down(nbytes, resident, self.optimizer, headroom)


@dataclass(frozen=True, slots=True)
class Request:
    """A call of `generate`. `output` is None for stdout; `limit` is what --budget or
    --device-memory said; `dynamic` are the dimensions that may be smaller than the example's
    (`ids:0`), None where the batch is looked for. `fresh` keeps nothing of an existing schedule.
    `target` is the device that is planned for without being there. `live` where a built model, of
    class `model`, was given; `compiled` where parts of blocks shall be; `offload` where values may
    go to the host. `batch` is that of the step, where it is not the example's. `units` are the
    patterns of submodules that are planned, where the rest stays eager; `fsdp` is how FSDP2
    shards them and the model. `in_flight` steps hold their activations at once. `rungs` are the
    steps that get schedules of their own, chosen where `auto_rungs`. `fix` are the inputs whose
    numbers are the same in each step. `captured` steps are replayed as a CUDA graph."""

    model_file: Path
    limit: Budget | DeviceMemory
    output: Path | None
    model: str | None = None
    inputs: str | None = None
    device: str = "auto"
    target: str = ""
    strategy: Strategy = Strategy.AUTO
    effort: Effort = Effort.NORMAL
    dynamic: tuple[str, ...] | None = None
    pins: Pins = Pins()  # noqa: RUF009  (frozen)
    force: bool = False
    reprofile: bool = False
    fresh: bool = False
    live: bool = False
    compiled: bool = False
    offload: bool = False
    batch: int | None = None
    units: tuple[str, ...] = ()
    fsdp: Sharding = NOT_SHARDED
    in_flight: int = 1
    rungs: tuple[Rung, ...] = ()
    auto_rungs: bool = False
    fix: tuple[str, ...] = ()
    captured: bool = False

    @property
    def target_word(self) -> str:
        """Return the target as it is asked for from the model's folder."""
        if not self.target.endswith(".toml"):
            return self.target
        return relative(Path(self.target), self.model_file.parent)

    def command(self) -> str:
        """Return the command, or the call in Python, with paths as seen from the model's folder."""
        return self._call() if self.live else shell_command(self._words())

    def _call(self) -> str:
        """Return the call that hands over a built model: flags last."""
        asked = sorted(self._asked(), key=lambda option: option[1] is True)
        said = [f"{n}={[*v] if isinstance(v, tuple) else repr(v)}" for n, v in asked]
        given = ", ".join(one for one in said if not one.startswith("model="))
        return f"remat_gen.generate({self.model}(…), inputs, {given})"

    def _words(self) -> list[str]:
        words = ["remat-gen", self.model_file.name]
        for name, value in self._asked():
            option = "-o" if name == "output" else f"--{name.replace('_', '-')}"
            for one in value if isinstance(value, tuple) else (value,):
                words += [option] if one is True else [option, str(one)]
        return words

    def _asked(self) -> Iterator[tuple[str, Any]]:
        """Yield the options that are not as usual."""
        limit, rungs = self.limit, ", ".join(map(str, self.rungs))
        memory = None if isinstance(limit, Budget) else limit
        options = {
            "budget": None if memory else limit.text,
            "device_memory": memory and memory.text,
            "optimizer": memory and memory.optimizer.value,
            "headroom": memory and memory.headroom,
            "model": self.model,
            "inputs": self.inputs,
            "batch": self.batch,
            "device": self.device,
            "target": self.target and self.target_word,
            "strategy": self.strategy.value,
            "effort": self.effort.value,
            "dynamic": self.dynamic,
            "static": self.dynamic == (),
            "keep": self.pins.keep,
            "recompute": self.pins.recompute,
            "fix": self.fix,
            "units": self.units,
            "fsdp": str(self.fsdp),
            "in_flight": self.in_flight,
            "rungs": "auto" if self.auto_rungs else re.sub(r" ([<>]=) ", r"\1", rungs),
            "compile": self.compiled,
            "offload": self.offload,
            "captured": self.captured,
            "output": relative(self.output, self.model_file.parent) if self.output else "-",
        }
        yield from ((n, v) for n, v in options.items() if v and v != _USUAL.get(n))


def make_count(option: str, count: int | None) -> int | None:
    """Return how many are asked for.

    Raises:
        UsageError: less than 1.
    """
    if count is not None and count < 1:
        raise UsageError(f"{option} {count}: give at least 1")
    return count


def make_dynamic(dims: Sequence[str] | None, *, static: bool) -> tuple[str, ...] | None:
    """Read the options that say what may vary.

    Raises:
        UsageError: both are given.
    """
    if dims and static:
        raise UsageError("--dynamic and --static exclude each other; give one of them")
    return tuple(dims) if dims else () if static else None


def default_output(model_file: Path, part: str = "") -> Path:
    """Return `model_remat.py` beside `model.py`, by a name that Python can import."""
    stem = re.sub(r"\W", "_", model_file.stem)
    return model_file.parent / f"{stem}{part}_remat.py"


def relative(path: Path, folder: Path) -> str:
    """Return a path as seen from a folder, with forward slashes."""
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()
