"""Reports as one HTML file that works offline, and representations for notebooks."""

from __future__ import annotations

from graphopt.audit.html.drawing import alone, side_by_side
from graphopt.audit.html.report import audit_html, explanation_html, inspection_html

__all__ = ["alone", "audit_html", "explanation_html", "inspection_html", "side_by_side"]
