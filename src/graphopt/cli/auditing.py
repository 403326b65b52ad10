"""`graphopt audit`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from graphopt.cli.arguments import Argument, Exit, Option
from graphopt.cli.console import check_place, progress, read_source, show, show_json, write_page
from graphopt.cli.sizes import parse_dims, parse_shapes
from graphopt.errors import UsageError

if TYPE_CHECKING:
    from graphopt.audit import Audit
    from graphopt.audit.corpus.report import CorpusReport


Levels = Annotated[
    list[str] | None, Option("--level", help="graphopt's levels; may be repeated. Default: basic, extended, all.")
]
Against = Annotated[
    list[str] | None,
    Option("--against", help="A peer to compare with; may be repeated; `none` for none. Default: all."),
]
Threads = Annotated[str, Option("--threads", help="Thread counts, like 1,2.")]
Rounds = Annotated[int | None, Option("--rounds", help="Rounds of timing; by the budget when not given.")]
Budget = Annotated[float, Option("--budget", help="Seconds of timing for each thread count.", min=0)]
Shape = Annotated[list[str] | None, Option("--shape", help="Shape of an input, like input=1,3,224,224.")]
Dim = Annotated[list[str] | None, Option("--dim", help="Size of a symbolic dimension, like batch=1.")]
NoVerify = Annotated[bool, Option("--no-verify", help="Do not ask the oracle.")]
Timeout = Annotated[float, Option("--timeout", help="Seconds that one optimizer may take.", min=0)]
AsJson = Annotated[bool, Option("--json", help="Report as JSON.")]
AsMarkdown = Annotated[bool, Option("--markdown", help="Report as Markdown.")]


def audit(
    model: Annotated[str, Argument(metavar="MODEL", help="A model (`-`: standard input).")],
    *,
    level: Levels = None,
    against: Against = None,
    threads: Threads = "1",
    rounds: Rounds = None,
    budget: Budget = 10.0,
    shape: Shape = None,
    dim: Dim = None,
    data: Annotated[str | None, Option(help="An .npz file with inputs (and labels) for the metric.")] = None,
    metric: Annotated[str | None, Option(help="module:function of (outputs, data) that gives a number.")] = None,
    no_verify: NoVerify = False,
    timeout: Timeout = 300.0,
    keep: Annotated[str | None, Option(help="A folder for the optimized models.")] = None,
    as_json: AsJson = False,
    as_markdown: AsMarkdown = False,
    html: Annotated[str | None, Option(help="Write a self-contained HTML report to this file, too.")] = None,
) -> None:
    """Compare optimizers on a model: what each does to it, what that costs, and what it is worth."""
    from graphopt.audit import Limits
    from graphopt.audit import audit as compare

    settings: dict[str, Any] = {
        "levels": tuple(level or ("basic", "extended", "all")),
        "against": peers(against),
        "threads": thread_counts(threads),
        "rounds": rounds,
        "budget": budget,
        "shapes": parse_shapes(shape or []),
        "dims": parse_dims(dim or []),
        "data": data,
        "metric": metric,
        "verify": not no_verify,
        "limits": Limits(timeout),
    }
    if model != "-" and Path(model).is_dir():
        raise UsageError(f"{model} is a folder; `graphopt corpus run` audits many models")
    check_place(html)
    given = read_source(model)
    with progress(f"auditing {model}") as told:
        found = compare(given, keep=keep, progress=told, **settings)
    if html is not None:
        write_page(html, audit_report(found, given))
    report(found, as_json=as_json, as_markdown=as_markdown)
    if not found.ok:
        raise Exit(1)


def audit_report(found: Audit, given: str | bytes) -> str:
    """The HTML report: the audit, and what graphopt's highest level did, drawn."""
    from graphopt.audit.explaining import explain_with_graphs
    from graphopt.audit.html import audit_html
    from graphopt.audit.settings import Settings
    from graphopt.rewrite import Level

    own = [row.name.removeprefix("graphopt ") for row in found.rows if row.tool == "graphopt"]
    levels = [Level[name.upper()] for name in own if name.upper() in Level.__members__]
    if not levels:
        return audit_html(found)
    explanation, drawing = explain_with_graphs(given, Settings(max(levels)))
    return audit_html(found, explanation, drawing)


def report(found: Audit | CorpusReport, *, as_json: bool, as_markdown: bool) -> None:
    """Print an audit in the form wanted."""
    if as_json:
        show_json(found.to_dict())
    elif as_markdown:
        sys.stdout.write(found.to_markdown())
    else:
        show(found)


def peers(names: Sequence[str] | None) -> list[str] | None:
    """Peer names as given, separated by commas too; None for all, `none` for none."""
    if names is None:
        return None
    found = [part for name in names for part in name.split(",") if part]
    return [] if found == ["none"] else found


def thread_counts(text: str) -> tuple[int, ...]:
    """Thread counts from text like `1,2`.

    Raises:
        UsageError: it is malformed.
    """
    try:
        counts = tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        counts = ()
    if not counts or min(counts) < 1:
        raise UsageError(f"threads {text!r}: expected counts like 1,2")
    return counts
