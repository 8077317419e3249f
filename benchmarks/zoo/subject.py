"""A model of the zoo: the file that a user would write for it."""

from __future__ import annotations

from dataclasses import dataclass

_FILE = '''\
"""{kind}: {library} {name}, small, with random weights."""

import torch
from torch import nn
{imports}


def build_model() -> nn.Module:
    return {model}


def example_inputs():
    return {inputs}
'''


@dataclass(frozen=True, slots=True)
class Subject:
    """A model: `imports` are lines of code, `model` and `inputs` expressions.

    `kind` is what sort of model it is; each kind is sampled before a second of one is run. `units`
    are the patterns of what is planned where it is not the whole.
    """

    library: str
    name: str
    kind: str
    imports: str
    model: str
    inputs: str
    units: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Return the name that a record is found by."""
        return f"{self.library}/{self.name}"

    @property
    def file_name(self) -> str:
        """Return the name of the model's file, an identifier and `.py`."""
        return f"{self.name.replace('-', '_').replace('.', '_')}.py"

    def text(self) -> str:
        """Return the model's file."""
        return _FILE.format(
            kind=self.kind,
            library=self.library,
            name=self.name,
            imports=self.imports,
            model=self.model,
            inputs=self.inputs,
        )


def images(size: int, batch: int = 4, channels: int = 3) -> str:
    """Return the expression of a batch of square images."""
    return f"(torch.randn({batch}, {channels}, {size}, {size}),)"


def kinds_in_turn(subjects: tuple[Subject, ...], at_once: int = 2) -> list[Subject]:
    """Return the subjects so that some of each kind come before more of any."""
    seen: dict[str, int] = {}
    rounds = []
    for subject in subjects:
        seen[subject.kind] = seen.get(subject.kind, 0) + 1
        rounds.append((seen[subject.kind] - 1) // at_once)
    return [subjects[i] for i in sorted(range(len(subjects)), key=lambda i: (rounds[i], i))]
