"""`graphopt inspect`."""

from __future__ import annotations

from typing import Annotated

from graphopt.cli.arguments import Argument, Option
from graphopt.cli.console import read_source, show, show_json


def inspect(
    models: Annotated[list[str], Argument(metavar="MODEL...", help="Models; `-` reads standard input.")],
    *,
    as_json: Annotated[bool, Option("--json", help="Report as JSON.")] = False,
) -> None:
    """Say what a model is: interface, operators, weights, memory, and what it takes to run it."""
    from graphopt.audit.inspecting import inspect as look

    found = {name: look(read_source(name)) for name in models}
    if as_json:
        reports = [{"model": name, **each.to_dict()} for name, each in found.items()]
        show_json(reports if len(reports) > 1 else reports[0])
        return
    for name, each in found.items():
        show(*([] if len(found) == 1 else [name]), each)
