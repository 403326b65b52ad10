"""The oracle's status of an optimized model, in the audit's terms."""

from __future__ import annotations

from graphopt.verify import Report


def oracle_status(report: Report) -> str:
    """The oracle's status, with `special` if only inputs with NaN or infinities differ.

    Kernels of the blocked layout treat NaN differently from the plain ones, which is not a wrong rewrite.
    """
    return "special" if report.only_special else report.status
