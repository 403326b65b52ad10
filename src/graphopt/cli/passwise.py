"""`graphopt audit-passes`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from graphopt.cli.auditing import model_files, peers
from graphopt.cli.console import progress, show, show_json


def audit_passes(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Models, or folders of models.")],
    *,
    against: Annotated[list[str] | None, typer.Option(help="Peers; default: onnxoptimizer and ort-all.")] = None,
    only: Annotated[
        list[str] | None, typer.Option("--pass", help="Only this pass, theirs or ours; may be repeated.")
    ] = None,
    dim: Annotated[list[str] | None, typer.Option(help="Size of a symbolic dimension for the oracle.")] = None,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Do not ask the oracle.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds that one run may take.", min=0)] = 120.0,
    as_json: Annotated[bool, typer.Option("--json", help="Report as JSON.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Report as Markdown.")] = False,
) -> None:
    """Compare each pass of a peer with its counterpart here, alone, on the same graph. Exit code 1: ours is wrong."""
    from graphopt.audit.feeds import parse_dims
    from graphopt.audit.passes import PEERS, PassConditions, audit_many, audit_passes

    files = model_files(models)
    conditions = PassConditions(
        tuple(peers(against) or PEERS), tuple(only or ()), dims=parse_dims(dim or []), timeout=timeout,
        verify=not no_verify,
    )  # fmt: skip
    with progress("auditing passes") as told:
        if len(files) == 1:
            found = audit_passes(files[0], conditions, progress=told)
        else:
            found = audit_many(files, conditions, progress=told)
    if as_json:
        show_json(found.to_dict())
    elif as_markdown:
        sys.stdout.write(found.to_markdown())
    else:
        show(found)
    if not found.ok:
        raise typer.Exit(1)
