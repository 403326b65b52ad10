"""The fuzzer: random models, verdicts on the results of optimizers, and reduced failing models."""

from __future__ import annotations

from graphopt.fuzzing.findings import Finding, SessionReport
from graphopt.fuzzing.session import fuzz

__all__ = ["Finding", "SessionReport", "fuzz"]
