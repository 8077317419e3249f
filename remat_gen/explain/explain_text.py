"""An explanation in words for a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from remat_gen.explain.explain_other import Other, Outcome
from remat_gen.explain.explanation import Explained, Explanation, Fate
from remat_gen.ir.byte_text import size
from remat_gen.terminal.printing import listed, word_table

_NAMED = 6  # operations in a list; more are counted
_SAME = 1e-5  # of eager's step: less is no difference; costs are known to three digits
_WORTH_A_SEARCH = 1e-3  # of eager's step: less is less than what times differ from step to step
ROWS = 40  # values in a table; more are counted
_FATES = {
    Fate.OUTSIDE: "there before the step and after it: no part of the plan",
    Fate.OUTPUT: "returned by the model, so held until the step ends",
    Fate.GRADIENT: "a gradient: made once, freed after its last use",
    Fate.TRANSIENT: "freed in forward: backward does not need it",
    Fate.RETAINED: "retained from forward to backward",
    Fate.RERUN: "run again in backward",
    Fate.OFFLOADED: "sent to the host in forward, fetched in backward",
}


def details(found: Explanation, value: Explained) -> Group:
    """Return all that is known about one value."""
    table = word_table(_lines(found, value), width=len("needed by"))
    title = ", ".join(filter(None, [value.name, size(value.nbytes), value.shape, _steps(found)]))
    return Group(Text(title, style="bold"), table)


def overview(found: Explanation) -> Group:
    """Return several values, one a row, with the figures of the other choice alone.

    Where values of forward are among them, gradients and parameters are only counted.
    """
    shown = found.shown
    table = Table(box=None, pad_edge=False, header_style="")
    table.add_column(", ".join(filter(None, ["value", _steps(found)])), overflow="fold")
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("decision", no_wrap=True)
    if any(value.other for value in shown):
        table.add_column("otherwise: peak", justify="right", no_wrap=True)
        table.add_column("time", justify="right", no_wrap=True)
    for value in shown[:ROWS]:
        changes = _changes(found, value.other.alone) if value.other else ()
        table.add_row(Text(value.name), size(value.nbytes), value.fate.value, *changes)
    return Group(table, *map(Text, _omitted(found, shown)))


def _steps(found: Explanation) -> str:
    """Name the steps that are explained, where it is not all of them."""
    return f"in steps with {found.retraced.rung}" if found.retraced.rung else ""


def _omitted(found: Explanation, shown: Sequence[Explained]) -> Iterator[str]:
    rest, others = len(shown) - ROWS, len(found.values) - len(shown)
    if rest > 0:
        yield f"and {rest} more (--json has all)"
    if others:
        yield f"and {others} gradients and parameters (--json has all)"


def _changes(found: Explanation, outcome: Outcome) -> tuple[str, str]:
    now = found.retraced.replay
    more = outcome.peak_bytes - now.peak_bytes
    time = 100 * (outcome.time_us - now.time_us) / max(found.eager_time_us, 1e-9)
    peak = f"+{size(more)}" if more > 0 else size(more) if more else "the same"
    return peak, f"{time:+.2f} %"


def _lines(found: Explanation, value: Explained) -> Iterator[tuple[str, str]]:
    yield "decision", _FATES[value.fate] + f" ({value.reruns} times)" * (value.reruns > 1)
    if value.pin:
        yield "pinned", f"by {value.pin}"
    if value.source:
        yield "your line", f"{value.source.file}:{value.source.line}  {value.source.text}"
    if value.made_by:
        share = f"{100 * value.time_us / max(found.eager_time_us, 1e-9):.2f} % of eager's step"
        yield "made by", f"{value.made_by.target}, {_ms(value.time_us)}: {share}"
    if value.lives_us:
        spans = ", ".join(f"{a / 1000:.3g} … {b / 1000:.3g}" for a, b in value.lives_us)
        where = "there" if value.at_peak else "not there"
        total = found.retraced.replay.time_us / 1000
        yield "lives", f"{spans} ms of {total:.3g} ms; {where} at the peak"
    yield from _needs(value)
    yield from _otherwise(found, value)


def _needs(value: Explained) -> Iterator[tuple[str, str]]:
    groups = (
        ("forward", [r for r in value.readers if not r.backward and not r.again]),
        ("re-runs", [r for r in value.readers if not r.backward and r.again]),
        ("backward", [r for r in value.readers if r.backward]),
    )
    label = "needed by"
    for what, readers in groups:
        if readers:
            yield label, f"{what}: {listed([reader.operation for reader in readers], _NAMED)}"
            label = ""


def _otherwise(found: Explanation, value: Explained) -> Iterator[tuple[str, str]]:
    if value.fate is Fate.RETAINED and value.other is None:
        yield "otherwise", _impossible(value)
    if value.other is None:
        return
    sends = bool(found.retraced.replay.travelled)
    other = "sent to the host instead" if sends else "run again instead"
    verb = other if value.fate is Fate.RETAINED else "retained instead"
    yield (
        "otherwise",
        f"{verb}{_with(found, value, value.other)}:\n{_figures(found, value.other.alone)}",
    )
    yield from _settled(found, value.other)
    yield "so", _verdict(found, value.other)


def _impossible(value: Explained) -> str:
    if value.rerunnable is False:
        return "it cannot be run again: a second run would give other numbers or change a buffer"
    return "nothing in backward reads it before it is freed"


def _with(found: Explanation, value: Explained, other: Other) -> str:
    """Name what runs more often with it, or what need not any more."""
    own = value.made_by.name if value.made_by else ""
    stays = value.fate is not Fate.RETAINED
    changed = other.alone.less if stays else other.alone.more
    names = [n for p in dict.fromkeys(changed) if (n := found.operations[p].name) != own]
    if not names:
        return ""
    if stays:
        return f" (and {listed(names, _NAMED)} need not run again)"
    return f" (and with it {listed(names, _NAMED)})"


def _figures(found: Explanation, outcome: Outcome) -> str:
    now, eager = found.retraced.replay, max(found.eager_time_us, 1e-9)
    return (
        f"peak {size(now.peak_bytes)} → {size(outcome.peak_bytes)}, "
        f"time × {now.time_us / eager:.3f} → × {outcome.time_us / eager:.3f}"
    )


def _settled(found: Explanation, other: Other) -> Iterator[tuple[str, str]]:
    over = other.alone.peak_bytes - found.budget_bytes
    if over > 0:
        yield "", f"that is {size(over)} over the budget of {size(found.budget_bytes)}"
    if not other.fits:
        yield "", "and no schedule that keeps to it was found within the budget"
    if other.settled is None:
        return
    alone, settled = other.alone, other.settled
    more = _beyond(found, settled.more, alone.more)
    less = _beyond(found, settled.less, alone.less)
    done = [f"running {listed(more, _NAMED)} again as well"] * bool(more)
    done += [f"not running {listed(less, _NAMED)} again"] * bool(less)
    how = " and ".join(done) or "another order"
    yield "", f"within the budget, {how}:\n{_figures(found, settled)}"


def _beyond(found: Explanation, these: Sequence[int], those: Sequence[int]) -> list[str]:
    return [found.operations[p].name for p in dict.fromkeys(these) if p not in those]


def _verdict(found: Explanation, other: Other) -> str:
    if not other.fits:
        return "the plan's choice is needed for the budget"
    outcome = other.settled or other.alone
    extra = outcome.time_us - found.retraced.replay.time_us
    share = extra / max(found.eager_time_us, 1e-9)
    if abs(share) < _SAME:
        return "both choices take the same time"
    if share > 0:
        most = "up to " if other.settled else ""  # a better repair than the one found may exist
        return f"the plan's choice saves {most}{_ms(extra)} of each step"
    hint = ": try --effort thorough" if -share >= _WORTH_A_SEARCH else ""
    return f"the other choice would save {_ms(-extra)} of each step{hint}"


def _ms(time_us: float) -> str:
    return f"{time_us / 1000:.3g} ms"
