"""Generated modules that lie in a folder: load them beside their original, write them again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from remat_gen.capture.device.absent import AbsentDevice
from remat_gen.capture.device.kinds import kind_of, kind_of_plan
from remat_gen.capture.load.load import Loaded, load, load_fake, read_source
from remat_gen.capture.trace.resized_batch import at_batch
from remat_gen.ir.coding import has_conflict
from remat_gen.ir.errors import StalePlanError, UsageError
from remat_gen.ir.header import not_ours, read_header, text_sha256
from remat_gen.ir.plan import Plan, plan_text, read_plan
from remat_gen.plan.output import plan_path
from remat_gen.plan.planning import torch_version

OTHER_PLAN = "is not the plan that it was written from"


@dataclass(frozen=True, slots=True)
class Existing:
    """A generated module's file, its plan, and the file of the original.

    `given` is the original where it was handed over, not to be built from its file.
    """

    path: Path
    plan: Plan
    original: Path
    given: Loaded | None = None

    @classmethod
    def find(cls, path: Path, given: Loaded | None = None) -> Existing:
        """Read the header and the plan of a generated module.

        Raises:
            UsageError: the file is not ours, or its plan is not there.
        """
        text = read_source(path)
        if read_header(text) is None or has_conflict(text):
            raise UsageError(f"{path}: {not_ours(text)}")
        plan = read_plan(plan_path(path))
        if given is not None and given.model_name != plan.asked.model:
            raise UsageError(
                f"{path}: was generated from a {plan.asked.model}, not from a {given.model_name}"
            )
        return cls(path, plan, path.parent / plan.source.file, given)

    def load(self, *, fake: bool = False) -> Loaded:
        """Load the original as it was loaded for the plan; `fake` allocates nothing.

        Raises:
            UsageError: it cannot be, or a built model is needed and was not given.
        """
        loaded, batch = self._loaded(fake=fake), self.plan.asked.batch
        return loaded if batch is None else at_batch(loaded, batch)

    def _loaded(self, *, fake: bool) -> Loaded:
        asked = self.plan.asked
        if self.given is not None:
            return self.given
        if asked.live:
            raise UsageError(
                f"{self.path}: was generated from a built {asked.model}, which its file alone does "
                "not build; hand it over in Python: remat_gen.check(path, model, inputs), or verify"
            )
        if fake and self.absent is not None:
            return load_fake(self.original, asked.model, asked.inputs, self.absent)
        if self.lacks_device:
            raise UsageError(
                f"{self.path}: is planned for {self.plan.device}, and PyTorch sees no GPU here"
            )
        return load(self.original, asked.model, asked.inputs, self.device, fake=fake)

    def load_original(self, *, fake: bool = False) -> Loaded:
        """Load the original as it was loaded for the plan; `fake` allocates nothing.

        Raises:
            StalePlanError: it changed since.
        """
        asked, loaded = self.plan.asked, self.load(fake=fake)
        if loaded.source_sha256 != self.plan.source.sha256:
            raise StalePlanError(
                f"{self.path}: {self.original} changed since it was generated; run: {asked.command}"
            )
        return loaded

    def refuse_other_torch(self) -> None:
        """Refuse to compare with what another torch would trace."""
        planned_with = self.plan.versions.torch
        if planned_with != torch_version():
            raise UsageError(
                f"{self.path}: made with torch {planned_with}; torch {torch_version()} traces "
                f"differently, so they cannot be compared"
            )

    @property
    def has_other_plan(self) -> bool:
        """Tell whether the plan beside the module is not the one that it was written from."""
        header = read_header(read_source(self.path))
        own = header.plan_sha256 if header else ""
        return not text_sha256(plan_text(self.plan)).startswith(own)

    @property
    def lacks_device(self) -> bool:
        """Tell whether the plan is for a GPU, and there is none."""
        return not kind_of(self.device).count()

    @property
    def absent(self) -> AbsentDevice | None:
        """Return the device that was planned for without being there, if it was."""
        modelled = self.plan.modelled
        return AbsentDevice(modelled.device, modelled.capability) if modelled else None

    @property
    def device(self) -> str:
        """Return the kind of device that the plan is for."""
        return self.absent.kind if self.absent else kind_of_plan(self.plan.device).type
