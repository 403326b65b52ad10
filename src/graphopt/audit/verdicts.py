"""The oracle's word on an optimized model, in the audit's terms."""

from __future__ import annotations

from graphopt.verify import Report


def oracle_status(report: Report) -> str:
    """The oracle's status, with `special` where nothing but inputs with NaN or infinities differs.

    Kernels of the blocked layout treat NaN otherwise than the plain ones, which is not a wrong rewrite.
    """
    others = {case.status for case in report.cases if case.set != "special"}
    breaking = any(difference.breaking for difference in report.interface)
    if report.status == "mismatch" and others and "mismatch" not in others and not breaking:
        return "special"
    return report.status
