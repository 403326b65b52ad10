"""The oracle's word on an optimized model, in the audit's terms."""

from __future__ import annotations

from graphopt.verify import Report


def oracle_status(report: Report) -> str:
    """The oracle's status, with `special` where nothing but inputs with NaN or infinities differs.

    Kernels of the blocked layout treat NaN otherwise than the plain ones, which is not a wrong rewrite.
    """
    return "special" if report.only_special else report.status
