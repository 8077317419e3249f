"""Read a JSON file of a user's: whatever is wrong with it, the error names the file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from remat_gen.ir.errors import GraphError, UsageError


@contextlib.contextmanager
def errors_name(path: Path, *, missing: str = "no such file") -> Iterator[None]:
    """Name the file in what reading and parsing it raises.

    Raises:
        UsageError: it is not there (`missing` says so), cannot be read, or holds something else.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise UsageError(f"{path}: {missing}") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is no JSON: not UTF-8 text") from error
    except GraphError as error:
        raise UsageError(f"{path}: {error}") from error
