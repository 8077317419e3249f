"""The Boolean variables of a block's model: K[v] retained, X[p,s] re-run in stage s or before."""

from __future__ import annotations

from collections.abc import Iterable

import z3

from remat_gen.solver.blocks.block_option import operations_for
from remat_gen.solver.blocks.local_block import LocalBlock


class Variables:
    """Variables for the operations that backward may need again, and for their values.

    Stages are numbered s = 0, 1, …; `stages[s]` is the backward operation t that reads forward
    values. A re-run before any other backward operation could wait for the next of these.
    """

    def __init__(self, block: LocalBlock, context: z3.Context) -> None:
        self.block, self.context = block, context
        self.stages = [
            t for t, o in enumerate(block.backward) if any(block.decided(v) for v in o.inputs)
        ]
        self.last = len(self.stages) - 1
        self.operations = operations_for(block, {v for o in block.backward for v in o.inputs})
        self.producer = block.producers()
        made = [v for p in self.operations for v in block.forward[p].outputs]
        self.values = [v for v in made if block.decided(v)]
        self.readers = {
            v: [p for p in self.operations if v in block.forward[p].inputs] for v in self.values
        }
        reads = [block.backward[t].inputs for t in self.stages]
        self.last_read = {
            v: max((s for s, read in enumerate(reads) if v in read), default=-1)
            for v in self.values
        }
        self.kept = {v: z3.Bool(f"K{v}", context) for v in self.values}
        self.ran = {
            (p, s): z3.Bool(f"X{p}_{s}", context)
            for p in self.operations
            for s in range(self.last + 1)
        }

    def own(self, values: Iterable[int]) -> list[int]:
        return [v for v in values if v in self.kept]

    def there(self, v: int, s: int) -> z3.BoolRef:
        """Return that `v` was retained, or made again in stage `s` or before."""
        return z3.Or(self.kept[v], self.ran[self.producer[v], s])

    def still_to_run(self, p: int, s: int) -> list[z3.BoolRef]:
        """Return the literals of: operation p is re-run after stage `s` (-1: at any stage)."""
        literals = [self.ran[p, self.last]]
        return literals if s < 0 else [*literals, z3.Not(self.ran[p, s])]
