"""Variables and rows of a linear model, collected one by one, and as scipy's arrays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

Floats: TypeAlias = NDArray[np.float64]
LinearTerm: TypeAlias = tuple[int, float]


@dataclass(slots=True)
class LinearModel:
    """Minimise costs · x with rows · x ≤ limits and 0 ≤ x ≤ 1; `whole` variables are 0 or 1."""

    costs: list[float] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)
    _index: dict[tuple[str | int, ...], int] = field(default_factory=dict)
    _rows: list[int] = field(default_factory=list)
    _columns: list[int] = field(default_factory=list)
    _factors: list[float] = field(default_factory=list)

    def add(self, *name: str | int, cost: float = 0.0, whole: bool = False) -> int:
        """Add a variable; return its index."""
        index = self._index[name] = len(self.costs)
        self.costs.append(cost)
        self.whole.append(whole)
        return index

    def at(self, *name: str | int) -> int:
        """Return the index of a variable that there is."""
        return self._index[name]

    def get(self, *name: str | int) -> int | None:
        """Return the index of a variable, None where there is none."""
        return self._index.get(name)

    def at_most(self, terms: Iterable[LinearTerm], limit: float) -> None:
        """Add the row: the sum of factor times variable over all terms is at most `limit`."""
        for column, factor in terms:
            self._rows.append(len(self.limits))
            self._columns.append(column)
            self._factors.append(factor)
        self.limits.append(limit)

    @property
    def term_count(self) -> int:
        """Return the number of terms of all rows."""
        return len(self._factors)

    def matrix(self) -> csr_array:
        """Return the rows."""
        places = np.array([self._rows, self._columns], dtype=np.intp)
        factors = np.array(self._factors, dtype=np.float64)
        return csr_array(
            (factors, (places[0], places[1])), shape=(len(self.limits), len(self.costs))
        )
