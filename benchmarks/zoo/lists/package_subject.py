"""A model of a package: what its file is made of."""

from __future__ import annotations

from subject import Subject


def subject(package: str, name: str, kind: str, imports: str, model: str, inputs: str) -> Subject:
    return Subject("packages", f"{package}.{name}", kind, imports, model, inputs)


def of(package: str, kind: str, module: str, rows: dict[str, tuple[str, str]]) -> list[Subject]:
    """Return a package's models: the arguments of each, and its inputs."""
    return [
        subject(
            package,
            name,
            kind,
            f"from {module} import {name.partition('.')[0]}",
            f"{name}({arguments})",
            inputs,
        )
        for name, (arguments, inputs) in rows.items()
    ]
