"""Finding what optimizers get wrong: random models, verdicts, and failing models reduced."""

from __future__ import annotations

from graphopt.fuzzing.findings import Finding, SessionReport
from graphopt.fuzzing.session import fuzz

__all__ = ["Finding", "SessionReport", "fuzz"]
