"""Build a model whose tensors have shapes and no values: nothing is allocated."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch._subclasses.fake_tensor import FakeTensorMode

from remat_gen.capture.quiet import quiet


class FakeMode(FakeTensorMode):
    """A mode that deep copies of its tensors stay in.

    A module that copies another (`nn.Transformer` does it for every layer) otherwise copies the
    mode as well, and torch refuses to trace fake tensors of two modes.
    """

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)

    def __deepcopy__(self, _memo: object) -> FakeMode:
        """Return the mode itself."""
        return self


@contextlib.contextmanager
def without_values() -> Iterator[None]:
    """Make every tensor a fake one, without what torch says of that."""
    with quiet(), FakeMode():
        yield
