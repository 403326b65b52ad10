"""Audits of many models: the task for one model, engines that run it, a store that loses nothing, and reports."""

from __future__ import annotations

from graphopt.audit.corpus.record import CorpusSettings, Record, Reference
from graphopt.audit.corpus.running import CorpusOutcome, run_corpus
from graphopt.audit.corpus.store import Store
from graphopt.audit.corpus.task import audit_one

__all__ = ["CorpusOutcome", "CorpusSettings", "Record", "Reference", "Store", "audit_one", "run_corpus"]
