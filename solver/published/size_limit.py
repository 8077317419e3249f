"""What a published strategy cannot do, in words of numbers."""

from __future__ import annotations

from dataclasses import dataclass

from remat_gen.solver.law.problem import Problem


class TooLargeError(ValueError):
    """A graph has more operations than a strategy can search at the effort given."""

    def __init__(self, strategy: str, operations: int, limit: int) -> None:
        super().__init__(
            f"{strategy} searches up to {limit} operations, this graph has {operations}"
        )
        self.strategy = strategy
        self.operations = operations
        self.limit = limit


@dataclass(frozen=True, slots=True)
class SizeLimit:
    """The most operations that a strategy searches.

    Bare graphs have fewer: all nodes may run again in all stages, those of forward too.
    """

    bare: int
    training: int

    def check(self, strategy: str, problem: Problem) -> None:
        """Refuse what is larger.

        Raises:
            TooLargeError: the problem has more operations.
        """
        limit = self.training if problem.forward_count else self.bare
        if len(problem.operations) > limit:
            raise TooLargeError(strategy, len(problem.operations), limit)
