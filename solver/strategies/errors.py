"""What a published strategy cannot do, in words of numbers."""

from __future__ import annotations


class TooLargeError(ValueError):
    """A graph has more operations than a strategy can search at the effort given."""

    def __init__(self, strategy: str, operations: int, limit: int) -> None:
        super().__init__(
            f"{strategy} searches up to {limit} operations, this graph has {operations}"
        )
        self.strategy = strategy
        self.operations = operations
        self.limit = limit
