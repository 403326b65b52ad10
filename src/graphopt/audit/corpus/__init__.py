"""Audits of many models: one task, an engine that does it wherever, a store that loses nothing, and what it says."""

from __future__ import annotations

from graphopt.audit.corpus.record import CorpusSettings, Record, Reference
from graphopt.audit.corpus.running import CorpusOutcome, run_corpus
from graphopt.audit.corpus.store import Store
from graphopt.audit.corpus.task import audit_one

__all__ = ["CorpusOutcome", "CorpusSettings", "Record", "Reference", "Store", "audit_one", "run_corpus"]
