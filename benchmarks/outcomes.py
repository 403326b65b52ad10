"""The effects of the passes on every skeleton, stored in a file, and differences from an earlier file: for refactoring.

For each network and level: the bytes of the result, its operators, the rewrites of each pass and the reasons of passes
that declined. A change without effect shows no row.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.skeleton import load_skeleton, names

LEVELS = ("basic", "extended", "all")


def outcome(key: str, level: str) -> dict[str, Any]:
    """The effects of a level on a skeleton."""
    from graphopt import PassManager

    result = PassManager(level, explain=True, target="avx512").run(load_skeleton(key))
    data = result.model.SerializeToString(deterministic=True)
    return {
        "bytes": hashlib.sha256(data).hexdigest(),
        "ops": dict(sorted(Counter(node.op_type for node in result.model.graph.node).items())),
        "hits": dict(sorted(result.hits.items())),
        "reasons": dict(sorted(Counter(f"{miss.rule}: {miss.reason}" for miss in result.near_misses).items())),
    }


def run(keys: list[str] | None, file: Path, against: Path | None) -> int:
    """Record all outcomes and print what differs from an earlier record. Returns the number of differences."""
    old = json.loads(against.read_text()) if against is not None else {}
    found, differing = {}, 0
    for key in keys or names():
        for level in LEVELS:
            label = f"{key}@{level}"
            found[label] = outcome(key, level)
            difference = _difference(old[label], found[label]) if label in old else ""
            if difference:
                differing += 1
                print(f"{label}: {difference}", flush=True)
    file.write_text(json.dumps(found, indent=0))
    print(f"{len(found)} outcomes, {differing} differ")
    return differing


def _difference(before: dict[str, Any], after: dict[str, Any]) -> str:
    for what in ("ops", "hits", "reasons"):
        one, two = Counter(before[what]), Counter(after[what])
        if one != two:
            changes = ", ".join(
                f"{name} {one[name]} -> {two[name]}" for name in sorted(one | two) if one[name] != two[name]
            )
            return f"{what}: {changes}"
    return "bytes" if before["bytes"] != after["bytes"] else ""
