"""What became of one model of the zoo, and the file of all of them: one JSON object a line."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path


class Status(StrEnum):
    """What became of a model."""

    OK = "ok"
    REFUSED = "refused"  # with a reason, before anything was written
    FAILED = "failed"  # an error of ours, or a result that is not eager's
    TIMED_OUT = "timed out"
    NO_SUBJECT = "does not run"  # eager's own step fails: the zoo is at fault


@dataclass(frozen=True, slots=True)
class Record:
    """The outcome of one model. `error` says why it is not ok, `notes` what is remarkable.

    `share` is the budget in percent of eager's replayed peak: the one asked for, or the smallest
    feasible one. `eager_bytes` is eager's measured peak, `eager_predicted_bytes` what would count
    where no step is measured (0 in records from before it was kept). `off_bytes` is measured minus
    predicted peak, `equal` the verdict on the values.
    `units` are the patterns of what was planned, `planned_share` theirs of what backward needs.
    """

    key: str
    kind: str
    status: Status
    strategy: str
    operations: int = 0
    blocks: int = 0
    share: float = 0.0
    budget_bytes: int = 0
    predicted_bytes: int = 0
    measured_bytes: int = 0
    eager_bytes: int = 0
    eager_predicted_bytes: int = 0
    time_ratio: float = 0.0
    reruns: int = 0
    strict: bool = True
    equal: str = ""
    error: str = ""
    notes: str = ""
    seconds: float = 0.0
    units: tuple[str, ...] = ()
    planned_share: float = 1.0

    @property
    def library(self) -> str:
        """Return the part of the zoo."""
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        """Return the model's name within its part."""
        return self.key.partition("/")[2]

    @property
    def off_bytes(self) -> int:
        """Return measured minus predicted peak."""
        return self.measured_bytes - self.predicted_bytes

    @property
    def eager_off(self) -> float | None:
        """Return by what part of it eager's measured peak is not the predicted one."""
        if not (self.eager_bytes and self.eager_predicted_bytes):
            return None
        return abs(self.eager_predicted_bytes / self.eager_bytes - 1)

    def line(self) -> str:
        """Return the record as one line of JSON."""
        return json.dumps(asdict(self))


def parse(line: str) -> Record:
    """Read a record from its line."""
    fields = json.loads(line)
    found = {"status": Status(fields["status"]), "units": tuple(fields.get("units", ()))}
    return Record(**(fields | found))


def read_records(path: Path) -> dict[str, Record]:
    """Return the latest record of each model, in the order in which they first ran."""
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return {record.key: record for record in map(parse, lines)}


def append(path: Path, record: Record) -> None:
    """Add a record at the end of the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(record.line() + "\n")
