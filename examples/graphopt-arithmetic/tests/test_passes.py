"""The golden cases; with BLESS=1 in the environment, the results of the passes are written into them."""

import os
from pathlib import Path

import pytest

from graphopt.testing import Case, cases, run_case

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("path", cases(GOLDEN), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_case(path):
    run_case(Case.read(path), bless="BLESS" in os.environ)
