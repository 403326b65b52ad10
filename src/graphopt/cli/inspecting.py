"""`graphopt inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from graphopt.cli.arguments import Argument, Option
from graphopt.cli.console import check_place, read_sources, show, show_json, write_page
from graphopt.cli.options import Json
from graphopt.errors import UsageError


def inspect(
    models: Annotated[list[str], Argument(metavar="MODEL...", help="Models; `-` reads standard input.")],
    *,
    html: Annotated[
        str | None, Option(help="Write an HTML page to this file: the graphs to explore, weights and attributes.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Describe a model: interface, operators, weights, memory, and requirements."""
    from graphopt.audit.inspecting import inspect as look

    if html is not None and len(models) > 1:
        raise UsageError("--html shows one model")
    check_place(html, *models)
    given = dict(zip(models, read_sources(models), strict=True))
    found = {name: look(source) for name, source in given.items()}
    if html is not None:
        from graphopt.audit.html import alone, inspection_html

        (name,) = models
        write_page(html, inspection_html(Path(name).name, found[name], alone(given[name])))
    if as_json:
        reports = [{"model": name, **each.to_dict()} for name, each in found.items()]
        show_json(reports if len(reports) > 1 else reports[0])
        return
    for name, each in found.items():
        show(*([] if len(found) == 1 else [name]), each)
