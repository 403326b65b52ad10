"""`graphopt audit-passes`."""

from __future__ import annotations

import sys
from typing import Annotated

from graphopt.cli.arguments import Argument, Exit, Option
from graphopt.cli.auditing import peers
from graphopt.cli.console import progress, show, show_json
from graphopt.cli.models import model_files
from graphopt.cli.sizes import parse_dims


def audit_passes(
    models: Annotated[list[str], Argument(metavar="MODEL...", help="Models, or folders of models.")],
    *,
    against: Annotated[list[str] | None, Option(help="Peers; default: onnxoptimizer and ort-all.")] = None,
    only: Annotated[list[str] | None, Option("--pass", help="Only this pass, theirs or ours; may be repeated.")] = None,
    dim: Annotated[list[str] | None, Option(help="Size of a symbolic dimension for the oracle.")] = None,
    no_verify: Annotated[bool, Option("--no-verify", help="Do not ask the oracle.")] = False,
    timeout: Annotated[float, Option(help="Seconds that one run may take.", min=0)] = 120.0,
    as_json: Annotated[bool, Option("--json", help="Report as JSON.")] = False,
    as_markdown: Annotated[bool, Option("--markdown", help="Report as Markdown.")] = False,
) -> None:
    """Compare each pass of a peer with its counterpart here, alone, on the same graph. Exit code 1: ours is wrong."""
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
        raise Exit(1)
