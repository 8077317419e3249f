"""A difference of plans in words: for a terminal, for a pull request, for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, TypeAlias

from remat_gen.ir.byte_text import size
from remat_gen.ir.plan import Plan
from remat_gen.review.difference import BlockDifference, Difference
from remat_gen.terminal.printing import listed

_SHOWN = 12  # names in a list; more are counted
Spell: TypeAlias = Callable[[str], str]


def as_text(found: Difference) -> str:
    """Return the difference for a terminal."""
    lines = list(_headline(found))
    for block in found.blocks:
        lines += ["", _blocks(block)]
        lines += [f"  {what:<21}{names}" for what, names in _changes(block, str)]
    rest = [f"{what:<23}{names}" for what, names in _rest(found, str)]
    lines += ["", *rest] if rest else []
    for name, rung in found.rungs.items():
        lines += ["", f"rung {name}", as_text(rung).rstrip("\n")]
    return "\n".join(lines) + "\n"


def as_markdown(found: Difference) -> str:
    """Return the difference for a pull request."""
    rows = [f"| {what} | {old} | {new} |" for what, old, new in _rows(found)]
    lines = ["| | before | after |", "|---|---:|---:|", *rows, ""]
    if found.schedule_is_same:
        lines += ["The schedule is the same.", ""]
    if found.blocks:
        lines += ["| block | change | |", "|---|---|---|"]
        for block in found.blocks:
            name = _code(_blocks(block))
            for what, names in _changes(block, _code):
                lines.append(f"| {name} | {what} | {names} |")
                name = ""
        lines.append("")
    lines += [f"- {what}: {names}" for what, names in _rest(found, _code)]
    for name, rung in found.rungs.items():
        lines += ["", f"**Rung {_code(name)}**", "", as_markdown(rung).rstrip("\n")]
    return "\n".join(lines).rstrip() + "\n"


def as_json(found: Difference) -> dict[str, Any]:
    """Return the difference for programs."""
    return {
        "same": found.empty,
        "before": _figures(found.old),
        "after": _figures(found.new),
        "blocks": [asdict(block) for block in found.blocks],
        "freed_earlier": list(found.earlier),
        "freed_later": list(found.later),
        "operations_added": list(found.added),
        "operations_gone": list(found.gone),
        "rungs": {name: as_json(rung) for name, rung in found.rungs.items()},
        "rungs_added": list(found.new_rungs),
        "rungs_gone": list(found.gone_rungs),
    }


def _figures(plan: Plan) -> dict[str, Any]:
    return {
        "budget_bytes": plan.asked.budget_bytes,
        "peak_bytes": plan.predicted.peak_bytes,
        "time_ratio": round(plan.predicted.time_ratio, 6),
        "reruns": plan.predicted.reruns,
        "strategy": plan.solver.strategy,
        "sent_bytes": plan.predicted.sent_bytes,
        "compiled_parts": plan.compiled.parts if plan.compiled else 0,
    }


def _rows(found: Difference) -> list[tuple[str, str, str]]:
    old, new = found.old, found.new
    was, now = old.predicted.time_ratio, new.predicted.time_ratio
    return [
        ("budget", size(old.asked.budget_bytes), size(new.asked.budget_bytes)),
        ("activation peak", size(old.predicted.peak_bytes), size(new.predicted.peak_bytes)),
        ("time against eager", f"× {was:.3f}", f"× {now:.3f}"),
        ("run again", str(old.predicted.reruns), str(new.predicted.reruns)),
        ("strategy", old.solver.strategy, new.solver.strategy),
        *([("host", _sent(old), _sent(new))] if old.offload or new.offload else []),
        *([("compiled", _compiled(old), _compiled(new))] if old.compiled or new.compiled else []),
    ]


def _compiled(plan: Plan) -> str:
    """Say how much of a step is compiled."""
    if plan.compiled is None:
        return "nothing"
    return f"{plan.compiled.operations} operations in {plan.compiled.parts} parts"


def _sent(plan: Plan) -> str:
    """Say how much goes to the host."""
    if not plan.predicted.sent_values:
        return "nothing"
    return f"{plan.predicted.sent_values} values, {size(plan.predicted.sent_bytes)}"


def _headline(found: Difference) -> Iterator[str]:
    if found.schedule_is_same:
        yield "the schedule is the same"
    yield from (
        f"{what:<23}{old} → {new}" if old != new else f"{what:<23}{old}"
        for what, old, new in _rows(found)
    )


def _blocks(block: BlockDifference) -> str:
    first, *others = block.blocks
    return f"{first} … {others[-1]} ({len(block.blocks)} blocks)" if others else first


def _changes(block: BlockDifference, spell: Spell) -> list[tuple[str, str]]:
    sizes = (("newly retained", block.retained), ("no longer retained", block.dropped))
    return [(what, _sized(names, spell)) for what, names in sizes if names] + _lists(
        spell,
        ("newly run again", block.rerun),
        ("no longer run again", block.spared),
        ("newly sent to the host", block.sent),
        ("no longer sent", block.unsent),
    )


def _rest(found: Difference, spell: Spell) -> list[tuple[str, str]]:
    return _lists(
        spell,
        ("freed earlier", found.earlier),
        ("freed later", found.later),
        ("operations added", found.added),
        ("operations gone", found.gone),
        ("rungs added", found.new_rungs),
        ("rungs gone", found.gone_rungs),
    )


def _lists(spell: Spell, *lists: tuple[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(what, listed([*map(spell, names)], _SHOWN)) for what, names in lists if names]


def _sized(sizes: Mapping[str, int], spell: Spell) -> str:
    names = listed([f"{spell(name)} ({size(n)})" for name, n in sizes.items()], _SHOWN)
    return f"{names}: {size(sum(sizes.values()))}" if len(sizes) > 1 else names


def _code(name: str) -> str:
    """Return a name as code in Markdown, also inside of a table."""
    return f"`{name.replace('`', '').replace('|', '¦')}`"
