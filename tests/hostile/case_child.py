"""Runs passes alone on golden cases with one or more things wrong; equal numbers give equal models."""

from __future__ import annotations

import json
import random
import resource
import sys
from pathlib import Path

import onnx

from graphopt.errors import GraphoptError, PassError
from graphopt.manager import PassManager
from graphopt.rewrite import Options
from graphopt.testing import Case, cases
from tests.hostile.mutants import change

GOLDEN = Path(__file__).parents[1] / "golden"
_MOST_BYTES = 8 << 30


def main(first: int, last: int) -> None:
    """Work on some numbers; one line of JSON with those whose pass raised. Each number is told before."""
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    files: dict[str, list[Path]] = {}
    for path in cases(GOLDEN):
        files.setdefault(path.parent.name, []).append(path)
    names, raised = sorted(files), []
    for number in range(first, last):
        rng = random.Random(f"case {number}")
        case = Case.read(rng.choice(files[names[number % len(names)]]))
        sys.stderr.write(f"{number} {case.path}\n")
        model = case.model()
        change(rng, model)
        found = _raised(case, model)
        if found is not None:
            raised.append((number, f"{case.path.parent.name}/{case.path.stem}", found))
    sys.stdout.write(json.dumps(raised) + "\n")


def _raised(case: Case, model: onnx.ModelProto) -> str | None:
    """What the pass of a case raised on a model; None if it fired, declined, or the model was refused."""
    settings = case.head.get("SETTINGS")
    options = Options(extra={case.passes: json.loads(settings)} if settings else {})
    manager = PassManager(passes=case.passes, target=case.target, numerics="fast", strict=True, options=options)
    try:
        manager.run(model)
    except PassError as error:
        cause = error.__cause__
        return None if isinstance(cause, GraphoptError) else f"{type(cause).__name__}: {error}"
    except (GraphoptError, UnicodeDecodeError, TypeError):
        return None  # what cannot be loaded has tests of its own
    return None


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
