"""An explanation as an object for programs."""

from __future__ import annotations

from typing import Any

from remat_gen.explain.explain_other import Other, Outcome
from remat_gen.explain.explanation import Explained, Explanation


def explanation_json(found: Explanation) -> dict[str, Any]:
    """Return the explanation for programs; operations by name, times in microseconds."""
    now = found.retraced.replay
    return {
        "asked": found.asked,
        "plan": {
            "rung": str(found.retraced.rung) if found.retraced.rung else None,
            "budget_bytes": found.budget_bytes,
            "peak_bytes": now.peak_bytes,
            "time_us": round(now.time_us, 3),
            "eager_time_us": round(found.eager_time_us, 3),
        },
        "values": [_value_json(found, value) for value in found.values],
    }


def _value_json(found: Explanation, value: Explained) -> dict[str, Any]:
    source = value.source
    return {
        "name": value.name,
        "bytes": value.nbytes,
        "tensor": value.shape,
        "kind": value.kind,
        "decision": value.fate.value,
        "operation": value.made_by.name if value.made_by else None,
        "target": value.made_by.target if value.made_by else None,
        "source": f"{source.file}:{source.line}" if source else None,
        "rerun_time_us": value.time_us,
        "rerunnable": value.rerunnable,
        "pinned_by": value.pin or None,
        "reruns": value.reruns,
        "lives_us": [[round(a, 3), round(b, 3)] for a, b in value.lives_us],
        "at_peak": value.at_peak,
        "readers": [
            {"operation": r.operation, "backward": r.backward, "again": r.again}
            for r in value.readers
        ],
        "otherwise": _other_json(found, value.other),
    }


def _other_json(found: Explanation, other: Other | None) -> dict[str, Any] | None:
    if other is None:
        return None
    return {
        "alone": _outcome_json(found, other.alone),
        "within_budget": _outcome_json(found, other.settled or other.alone) if other.fits else None,
    }


def _outcome_json(found: Explanation, outcome: Outcome) -> dict[str, Any]:
    return {
        "peak_bytes": outcome.peak_bytes,
        "time_us": round(outcome.time_us, 3),
        "run_more": [found.operations[p].name for p in outcome.more],
        "run_less": [found.operations[p].name for p in outcome.less],
    }
