"""An audit as plain data; the schema is documented in `docs/audit.md`."""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite
from typing import Any

from graphopt.audit.record import SCHEMA, Audit, Row


def audit_to_dict(audit: Audit) -> dict[str, Any]:
    """Everything but the files."""
    return {
        "schema": SCHEMA,
        "model": audit.model,
        "baseline": audit.baseline,
        "threads": list(audit.threads),
        "inputs": audit.inputs,
        "metric": audit.metric,
        "machine": audit.machine.to_dict(),
        "notes": audit.notes,
        "seconds": audit.seconds,
        "ok": audit.ok,
        "rows": [_row(row) for row in audit.rows],
    }


def _row(row: Row) -> dict[str, Any]:
    data = asdict(row)
    data["ok"] = row.ok
    data["latency"] = {str(threads): spread for threads, spread in data["latency"].items()}
    data["speedup"] = {
        str(threads): {**asdict(spread), "verdict": spread.verdict()} for threads, spread in row.speedup.items()
    }
    for name in ("max_abs", "max_rel", "metric"):
        if data[name] is not None and not isfinite(data[name]):
            data[name] = str(data[name])  # JSON has no infinity
    return data
