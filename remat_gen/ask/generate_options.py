# ruff: noqa: RUF009  (what is called makes a field)
"""The options of `generate`, each said once, and the one way from them to a request.

The command line, `pyproject.toml` and Python call the options the same; what they mean, and which
exclude each other, is said here and in `remat_gen.ask.request`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from remat_gen.ask.budget import Budget, Optimizer, parse_budget, parse_size
from remat_gen.ask.choice import chosen, several
from remat_gen.ask.pin_patterns import make_pins
from remat_gen.ask.request import (
    DEFAULT_HEADROOM,
    FAKE,
    DeviceMemory,
    Request,
    Strategy,
    make_count,
    make_dynamic,
)
from remat_gen.ask.rung_texts import make_rungs
from remat_gen.capture.units.sharding import parse_sharding
from remat_gen.ir.errors import UsageError
from remat_gen.solver.law.search_types import Effort

OPTION = "option"  # the key of a field's metadata that has it
_EXCLUDED = {
    "compile": ("offload",),
    "rungs": ("static", "compile", "offload", "units", "in_flight", "captured"),
    "units": ("target", "compile", "offload", "batch", "dynamic"),
    "in_flight": ("compile", "offload"),
    "fix": ("target", "batch", "units"),
    "captured": ("offload",),
}
EFFORTS = f"{'|'.join(effort.value for effort in Effort)} [normal]"
_STRATEGIES = [*Strategy][:5]  # what fits the line


def option(metavar: str, text: str, default: Any = None) -> Any:
    """Return a field with what the command line's help says of it."""
    said = typer.Option(metavar=metavar, help=text, show_default=False)
    return field(default=default, metadata={OPTION: said})


def _flag(name: str, text: str, *, hidden: bool = False) -> Any:
    return field(default=False, metadata={OPTION: typer.Option(name, help=text, hidden=hidden)})


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateOptions:
    """What was written; None and the defaults stand for what was not, in the order of the help.

    `model` is the name of the class or function that builds it, `inputs` that of the function that
    makes the example.
    """

    budget: str | None = option("SIZE", "For activations: 6GB, 1.5GiB, or 70% of eager's peak.")
    device_memory: str | None = option("SIZE", "Or: what the whole step may take, 24GB.")
    optimizer: Optimizer | None = option("NAME", f"{'|'.join(Optimizer)} [adamw]")
    headroom: str | None = option("SIZE", "Left free of --device-memory [1GB; GPU: + 5%].")
    model: str | None = option("NAME", "Class or function [build_model].")
    inputs: str | None = option("NAME", "Function [example_inputs].")
    device: str = option("NAME", "auto|cpu|cuda|fake [auto]", "auto")
    target: str | None = option("NAME", "Not here: h200|h100|a100|rtx4090, or FILE.toml.")
    strategy: Strategy = option("NAME", f"{'|'.join(_STRATEGIES)}|… [auto]", Strategy.AUTO)
    effort: Effort = option("NAME", EFFORTS, Effort.NORMAL)
    dynamic: list[str] | None = option("NAME:DIM", "May be smaller than in the example: x:0,y:0.")
    static: bool = _flag("--static", "Plan for the example's shapes only.")
    fix: list[str] | None = option("NAME", "An input of the same numbers in each step: edges.")
    keep: list[str] | None = option("NAME", "Retain what is called so: 'h.*.attn.probs'.")
    recompute: list[str] | None = option("NAME", "Run it again in backward. Both repeatable.")
    units: list[str] | None = option("PATH", "Plan submodules alone: 'h.*', or auto. Repeatable.")
    fsdp: str | None = option("N[:DTYPE]", "Count what FSDP2 over N processes holds.")
    in_flight: int | None = option("N", "Micro-batches that wait for backward [1].")
    rungs: str | None = option("TEXT", "Plan shorter steps, too: auto, or 'length<=384, …'.")
    force: bool = _flag("--force", "Overwrite what is not ours.")
    reprofile: bool = _flag("--reprofile", "Measure costs again.")
    fresh: bool = _flag("--fresh", "Keep no existing schedule.")
    compile: bool = _flag("--compile", "Compile what fuses, part by part.")
    offload: bool = _flag("--offload", "Values may go to the host, too.")
    captured: bool = _flag(  # a step that waits for its launches is told of it
        "--captured", "Steps are captured: count the GPU's time alone.", hidden=True
    )
    batch: int | None = option("N", "Plan for a batch of N [the example's].")

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
            device=self._device(),
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

    def _device(self) -> str:
        """Return the device that is asked for: with a target it is fake.

        Raises:
            UsageError: a target is missing, or goes with a device that is there.
        """
        if self.target and self.device not in ("auto", FAKE):
            raise UsageError(
                f"--target {self.target} plans for a device that need not be here: leave out "
                f"--device {self.device}, or --target to measure it"
            )
        if self.device == FAKE and not self.target:
            raise UsageError(
                "--device fake plans for a device that is not here: name it, as in --target h200"
            )
        return FAKE if self.target else self.device

    def _limit(self) -> Budget | DeviceMemory:
        """Read the options that limit memory; exactly one of the two ways must be used.

        Without either it is the memory of the target.

        Raises:
            UsageError: none or both are, or a size is none.
        """
        optimizer = chosen(Optimizer, "optimizer", self.optimizer) if self.optimizer else None
        memory, headroom = self.device_memory, self.headroom
        if self.budget is None and memory is None and self.target:
            from remat_gen.capture.profile.targets import find_target

            nbytes = find_target(self.target).memory_bytes
            memory = str(nbytes) if nbytes % 10**9 else f"{nbytes // 10**9}GB"
        if memory is None and (optimizer or headroom):
            raise UsageError("--optimizer and --headroom belong to --device-memory")
        if self.budget is not None and memory is not None:
            raise UsageError("--budget and --device-memory exclude each other; give one of them")
        if self.budget is not None:
            return parse_budget(self.budget)
        if memory is None:
            raise UsageError(
                "give --budget 6GB (or 70%, of the eager activation peak), or --device-memory 24GB"
            )
        parse_size(memory, "--device-memory")
        if headroom not in (None, "0"):
            parse_size(headroom or "", "--headroom")
        return DeviceMemory(memory, optimizer or Optimizer.ADAMW, headroom or DEFAULT_HEADROOM)
