"""`graphopt audit-passes`."""

from __future__ import annotations

from typing import Annotated

from graphopt.cli.arguments import Option
from graphopt.cli.console import progress
from graphopt.cli.models import model_files
from graphopt.cli.options import Against, Models, NoVerify, ReportForm, Sizes, Timeout, peers


def audit_passes(
    models: Models,
    *,
    against: Against = None,
    only: Annotated[
        list[str] | None, Option("--pass", help="Only this pass, theirs or ours; may be repeated.", commas=True)
    ] = None,
    sizes: Sizes,
    no_verify: NoVerify = False,
    timeout: Timeout = 120.0,
    form: ReportForm,
) -> None:
    """Compare each pass of a peer with its counterpart here, alone, on the same graph. Exit code 1: ours is wrong."""
    from graphopt.audit.passes import PEERS, PassConditions, audit_many, audit_passes

    files = model_files(models)
    conditions = PassConditions(
        tuple(peers(against) or PEERS), tuple(only or ()), shapes=sizes.shapes, dims=sizes.dims,
        timeout=timeout, verify=not no_verify,
    )  # fmt: skip
    with progress("auditing passes") as told:
        if len(files) == 1:
            found = audit_passes(files[0], conditions, progress=told)
        else:
            found = audit_many(files, conditions, progress=told)
    form.show(found, ok=found.ok)
