"""Pass by pass: each pass of a peer against its counterpart in graphopt, alone, on the same graph."""

from __future__ import annotations

from graphopt.audit.passes.conduct import OTHER_PURPOSE, PEERS, PassConditions, audit_many, audit_passes
from graphopt.audit.passes.record import PassAudit, PassRow, Side, Verdict

__all__ = [
    "OTHER_PURPOSE",
    "PEERS",
    "PassAudit",
    "PassConditions",
    "PassRow",
    "Side",
    "Verdict",
    "audit_many",
    "audit_passes",
]
