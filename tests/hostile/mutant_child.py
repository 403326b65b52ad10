"""Infers the types of mutants in processes that may die: one after the other, each going on behind the last one's end."""

from __future__ import annotations

import json
import os
import sys

from graphopt.analysis import ShapeAnalysis, infer_node, infer_types
from graphopt.errors import GraphoptError
from graphopt.ir import Model
from tests.hostile.mutants import mutant


def main(first: int, last: int) -> None:
    """Work on the mutants of some numbers; one line of JSON with those that ended a process or raised, and a count."""
    mutant(first)  # the models are built once, before the first fork
    ended: list[tuple[int, str]] = []
    raised: list[tuple[int, str]] = []
    refused = number = 0
    while first < last:
        inlet, outlet = os.pipe()
        process = os.fork()
        if not process:
            os.close(inlet)
            _work(first, last, outlet)
        os.close(outlet)
        number = first
        with os.fdopen(inlet) as lines:
            for line in lines:
                if line.startswith("refused"):
                    refused += 1
                elif line.startswith("raised"):
                    raised.append((number, line.strip()))
                else:
                    number = int(line)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if not status:
            break
        ended.append((number, f"{mutant(number)[0]}: {status}"))
        first = number + 1
    sys.stdout.write(json.dumps({"ended": ended, "raised": raised, "refused": refused}) + "\n")


def _work(first: int, last: int, outlet: int) -> None:
    for number in range(first, last):
        os.write(outlet, f"{number}\n".encode())
        name, model = mutant(number)
        try:
            view = Model.load(model) if model is not None else None
        except (GraphoptError, UnicodeDecodeError, TypeError):
            view = None  # what cannot even be loaded has tests of its own
        if view is None:
            os.write(outlet, b"refused\n")
            continue
        try:
            _infer(view)
        except (GraphoptError, UnicodeDecodeError):  # names that are no text have tests of their own
            os.write(outlet, b"refused\n")
        except Exception as error:
            os.write(outlet, f"raised {name} {type(error).__name__}: {error}".replace("\n", " ")[:300].encode() + b"\n")
    os._exit(0)


def _infer(view: Model) -> None:
    infer_types(view)
    ShapeAnalysis(view)
    for node in view.nodes():
        infer_node(node)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
