"""Bytes in their greatest common unit: what is decided does not depend on the scale of bytes."""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from remat_gen.solver.law.problem import Problem


def in_units(problem: Problem) -> tuple[Problem, int]:
    """Return the problem with all bytes divided by their greatest common divisor, and that."""
    sizes = [value.nbytes for value in problem.values]
    unit = gcd(*sizes, *(operation.workspace_bytes for operation in problem.operations)) or 1
    values = tuple(replace(value, nbytes=value.nbytes // unit) for value in problem.values)
    operations = tuple(
        replace(operation, workspace_bytes=operation.workspace_bytes // unit)
        for operation in problem.operations
    )
    link = problem.link and replace(problem.link, bytes_per_us=problem.link.bytes_per_us / unit)
    return replace(problem, values=values, operations=operations, link=link), unit
