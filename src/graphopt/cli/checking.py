"""`graphopt check`."""

from __future__ import annotations

import sys
from typing import Annotated

from graphopt.cli.arguments import Argument, Exit, Option
from graphopt.cli.console import check_place, progress, show, show_json, write_page
from graphopt.cli.models import model_files
from graphopt.cli.sizes import parse_dims


def check(
    models: Annotated[list[str], Argument(metavar="MODEL...", help="Models, or folders of models.")],
    *,
    baseline: Annotated[str | None, Option(help="What the models were: a file that --save wrote.")] = None,
    fail_on: Annotated[
        str, Option(help="Some of numerics, nodes, bytes and slower, like slower=3%,nodes.")
    ] = "numerics",
    save: Annotated[str | None, Option(help="Write what was found to this file: the next baseline.")] = None,
    level: Annotated[str, Option(help="basic, extended, layout or all.")] = "basic",
    budget: Annotated[float, Option(help="Seconds of timing for each model, for slower.", min=0)] = 10.0,
    dim: Annotated[list[str] | None, Option(help="Size of a symbolic dimension, like batch=1.")] = None,
    junit: Annotated[str | None, Option(help="Write a JUnit report to this file.")] = None,
    as_json: Annotated[bool, Option("--json", help="Report as JSON.")] = False,
    as_markdown: Annotated[bool, Option("--markdown", help="Report as Markdown.")] = False,
) -> None:
    """See whether models are as good as they were, for a build or a commit hook. Exit code 1: something got worse."""
    from graphopt.audit.checking import FailOn, read_baseline
    from graphopt.audit.checking import check as judge

    conditions = FailOn.parse(fail_on)
    for place in (save, junit):
        check_place(place)
    past = read_baseline(baseline) if baseline is not None else None
    with progress("checking") as told:
        found = judge(
            model_files(models), conditions, level=level, baseline=past, budget=budget, dims=parse_dims(dim or []),
            progress=told,
        )  # fmt: skip
    if save is not None:
        write_page(save, found.to_json() + "\n")
    if junit is not None:
        write_page(junit, found.to_junit())
    if as_json:
        show_json(found.to_dict())
    elif as_markdown:
        sys.stdout.write(found.to_markdown())
    else:
        show(found)
    if not found.ok:
        raise Exit(1)
