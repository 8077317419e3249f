"""What can go wrong, by what the user can do about it. Only the command line prints these."""


def said(error: BaseException) -> str:
    """Return what an error says; nothing where that fails, as it may for a class of the user's."""
    try:
        return str(error)
    except Exception:
        return ""


class Interruption(BaseException):
    """A signal that ends a run; the text says what had been done by then, "" for nothing."""

    def __init__(self, signal: int, done: str = "") -> None:
        super().__init__(done)
        self.signal = signal


class RematError(Exception):
    """Base of all errors that a user can act on; `exit_code` is the command line's."""

    exit_code = 2


class UsageError(RematError):
    """The request cannot be carried out as it was written: a file, a name or an option is wrong."""


class NoSuchLengthError(UsageError):
    """Forward has no such input, or that has no such dimension."""


class TraceError(RematError):
    """The model cannot be traced; the message names the user's file, line and operation."""


class RefusedKernelError(TraceError):
    """Eager runs a kernel there that no plan has; the message says which, and not where."""


class UnwrittenSizeError(TraceError):
    """No source can say what a size is at other lengths; the message does not say where."""


class ProfileError(RematError):
    """An operation cannot be measured, nor anything after it; the message names it."""


class InfeasibleBudgetError(RematError):
    """No schedule of the strategy fits the budget.

    `smallest_bytes` is the smallest budget feasible for `strategy`, set by `operation`.
    """

    exit_code = 3

    def __init__(self, message: str, smallest_bytes: int, strategy: str, operation: str) -> None:
        super().__init__(message)
        self.smallest_bytes = smallest_bytes
        self.strategy = strategy
        self.operation = operation


class StalePlanError(RematError):
    """A committed plan or file no longer belongs to its source."""

    exit_code = 1


class VerificationError(RematError):
    """The generated module and the original differ, or the peak exceeds the budget."""

    exit_code = 4


class EmitError(RematError):
    """A schedule could not be printed: a defect of remat-gen, please report it."""


class UnlikeStepError(EmitError):
    """A step of what was planned is not the model's; `reason` says where, and by how much."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"a step of what was planned is not the model's: {reason}. Nothing was written: this "
            "is a defect of remat-gen, please report it with the model"
        )
        self.reason = reason


class GraphError(RematError):
    """A graph, costs or plan that contradict themselves."""
