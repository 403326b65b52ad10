"""Finding what optimizers get wrong: random models, verdicts, and failing models reduced."""

from __future__ import annotations

from graphopt.fuzzing.findings import Finding, Report
from graphopt.fuzzing.session import fuzz

__all__ = ["Finding", "Report", "fuzz"]
