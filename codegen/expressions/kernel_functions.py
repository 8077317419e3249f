"""Kernels with many settings become functions of the generated file, whose defaults are usual.

A gradient of a convolution takes eleven arguments, of which a model's layers differ in two or
three. Its function takes the tensors, and those by name; it makes the same call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function that calls a kernel: `batch_norm_backward(d_y, x, weight, …)`.

    `arguments` are the kernel's, in order, each with the text of its default, its only value where
    it is `fixed` (or how it follows from another), or None where each call has its own.
    """

    name: str
    function: str
    arguments: Mapping[str, str | None]
    fixed: frozenset[str]
    sizes: frozenset[str]  # lengths, where the others without a default are tensors
    keywords: frozenset[str]  # what the kernel takes by name only

    @property
    def parameters(self) -> tuple[str, ...]:
        """Return the function's parameters, those without a default first."""
        free = [name for name in self.arguments if name not in self.fixed]
        return tuple(sorted(free, key=lambda name: self.arguments[name] is not None))

    def call(self, given: Mapping[str, str]) -> str:
        """Write the arguments of a call of the function, for those of the kernel."""
        words, in_turn = [], True
        for name in self.parameters:
            if given[name] == self.arguments[name]:
                in_turn = False
            else:
                words.append(given[name] if in_turn else f"{parameter(name)}={given[name]}")
        return ", ".join(words)

    def source(self) -> str:
        """Write the function."""
        free = ", ".join(map(self._parameter, self.parameters))
        handed = (
            f"{name}={value}" if name in self.keywords else value
            for name, default in self.arguments.items()
            for value in [str(default) if name in self.fixed else parameter(name)]
        )
        call = f"{self.function}({', '.join(handed)})"
        of = self.function.removeprefix("torch.").removesuffix(".default")
        doc = f'"""Call {of}: what is left out is as in most calls here."""'
        return f"def {self.name}({free}) -> Any:\n    {doc}\n    return {call}"

    def _parameter(self, name: str) -> str:
        default = self.arguments[name]
        kind = "int" if name in self.sizes else "Tensor"
        return f"{parameter(name)}: {f'Any = {default}' if default else kind}"


def parameter(name: str) -> str:
    """Return what a kernel's argument is called: no keyword, nor what Python has a meaning for."""
    return {"input": "x", "self": "x"}.get(name, name.lower())
