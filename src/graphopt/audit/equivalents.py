"""Each pass of each peer with its equivalents in graphopt, or the reason why there is none."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from graphopt.audit.markdown import table
from graphopt.peers import by_name
from graphopt.peers.reasons import BY_PEER
from graphopt.pipeline import Registry, registry

PEERS = {
    "onnxoptimizer": "onnxoptimizer",
    "onnxsim": "onnxsim",
    "onnxruntime": "ort-all",
    "onnxslim": "onnxslim",
    "onnxscript": "onnxscript",
}
"""The optimizers by the names that passes use (of their distributions), with the peer that lists their passes."""

BUILT_ON_IT = {"onnxoptimizer": ("onnxsim",)}
"""Optimizers that contain all passes of another."""


@dataclass(frozen=True, slots=True)
class Equivalent:
    """A pass of a peer and graphopt's equivalents.

    Attributes:
        peer: the optimizer.
        theirs: its pass.
        ours: graphopt's passes that do the same, the closest first.
        reason: why there is none; "" if there is one.
    """

    peer: str
    theirs: str
    ours: tuple[str, ...]
    reason: str

    @property
    def accounted(self) -> bool:
        """Whether there is an equivalent or a reason."""
        return bool(self.ours or self.reason)


@dataclass(slots=True)
class Equivalents:
    """The whole table.

    Attributes:
        rows: one for each pass of a peer, in the peer's order.
        versions: the version of each installed optimizer.
    """

    rows: list[Equivalent]
    versions: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {"versions": self.versions, "rows": [asdict(row) for row in self.rows]}

    def to_markdown(self) -> str:
        """As one Markdown table for each peer."""
        parts = [
            "# Passes of other optimizers, and graphopt's",
            "Written by `graphopt passes --peers --markdown`. " + self.summary(),
        ]
        for peer, version in self.versions.items():
            rows = [row for row in self.rows if row.peer == peer]
            parts.append(f"## {peer} {version}")
            parts.append(table(("pass", "graphopt", "why there is none"), map(_cells, rows)).replace("--:", "---"))
        return "\n\n".join(parts) + "\n"

    def summary(self) -> str:
        """The number of passes that have an equivalent."""
        found: Counter[str] = Counter()
        for row in self.rows:
            found[row.peer] += bool(row.ours)
        total = Counter(row.peer for row in self.rows)
        counts = ", ".join(f"{peer} {found[peer]} of {total[peer]}" for peer in self.versions)
        missing = [f"{row.peer}: {row.theirs}" for row in self.rows if not row.accounted]
        return f"With an equivalent: {counts}." + (f" Without a reason: {', '.join(missing)}." if missing else "")


def _cells(row: Equivalent) -> tuple[str, str, str]:
    return row.theirs, ", ".join(row.ours), row.reason


def equivalents(known: Registry | None = None) -> Equivalents:
    """The table for the installed optimizers; each lists its passes in a separate process.

    Args:
        known: graphopt's passes; those of the registry if None.

    Raises:
        UsageError: a peer cannot list its passes.
    """
    known = known or registry()
    table = equivalent_passes(known)
    found = Equivalents([], {})
    for name, peer_name in PEERS.items():
        peer = by_name(peer_name)
        if not peer.available():
            continue
        found.versions[name] = peer.version or ""
        for theirs in peer.passes():
            ours = table.get((name, theirs), ())
            found.rows.append(Equivalent(name, theirs, ours, "" if ours else BY_PEER[name].get(theirs, "")))
    return found


def equivalent_passes(known: Registry | None = None) -> dict[tuple[str, str], tuple[str, ...]]:
    """For each pass of an optimizer the equivalent passes of graphopt, one with the same name first.

    This inverts what the passes declare (`Rule.peers`).

    Args:
        known: graphopt's passes; those of the registry if None.
    """
    known = known or registry()
    found: dict[tuple[str, str], list[str]] = {}
    for rule in known.rules():
        for peer, theirs in rule.equivalents():
            for each in (peer, *BUILT_ON_IT.get(peer, ())):
                found.setdefault((each, theirs), []).append(rule.name)
    return {key: tuple(sorted(dict.fromkeys(ours), key=key[1].__ne__)) for key, ours in found.items()}
