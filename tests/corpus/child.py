"""A run in a process of its own, which a test may kill or interrupt: `python -m tests.corpus.child FOLDER STORE`."""

from __future__ import annotations

import sys

from graphopt.audit.corpus import run_corpus, running
from tests.corpus.models import COUNTING, quick, slowly

running.audit_one = quick if len(sys.argv) < 4 else slowly
outcome = run_corpus([sys.argv[1]], sys.argv[2], COUNTING, jobs=2)
sys.exit(7 if outcome.stopped else 0)
