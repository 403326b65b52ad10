"""Every pass of every peer against its equivalents in graphopt, or the reason why there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from graphopt.audit.markdown import table
from graphopt.peers import Peer, by_name
from graphopt.peers.reasons import BY_PEER
from graphopt.pipeline import Registry, registry

PEERS = {
    "onnxoptimizer": "onnxoptimizer",
    "onnxsim": "onnxsim",
    "onnxruntime": "ort-all",
    "onnxslim": "onnxslim",
    "onnxscript": "onnxscript",
}
"""The optimizers by the names that pass records use, with the peer that lists their passes."""


@dataclass(frozen=True, slots=True)
class Equivalent:
    """A pass of a peer and what graphopt has for it.

    Attributes:
        peer: the optimizer.
        theirs: its pass.
        ours: graphopt's passes that do the same, the closest first.
        reason: why there is none; "" when there is one.
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
        versions: the installed version of each optimizer; those that are not installed are left out.
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
        """How many passes have an equivalent."""
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
    """The table for the optimizers that are installed; each lists its passes in a process of its own.

    Args:
        known: graphopt's passes; those of the registry when None.

    Raises:
        UsageError: a peer cannot list its passes.
    """
    known = known or registry()
    claims = dict(_claims(known))
    found = Equivalents([], {})
    for name, peer_name in PEERS.items():
        peer = by_name(peer_name)
        if not peer.available():
            continue
        found.versions[name] = peer.version or ""
        found.rows += [_row(name, peer, theirs, claims.get((name, theirs), ()), known) for theirs in peer.passes()]
    return found


def _row(name: str, peer: Peer, theirs: str, claims: Sequence[str], known: Registry) -> Equivalent:
    own = peer.counterparts.get(theirs, "")
    ours = tuple(dict.fromkeys([*([own] if own in known else []), *claims]))
    return Equivalent(name, theirs, ours, "" if ours else BY_PEER[name].get(theirs, ""))


def _claims(known: Registry) -> Iterator[tuple[tuple[str, str], list[str]]]:
    """The equivalents that pass records name themselves."""
    found: dict[tuple[str, str], list[str]] = {}
    for name in known.names():
        for peer, theirs in known.rule_class(name).peers.items():
            found.setdefault((peer, theirs), []).append(name)
    yield from found.items()
