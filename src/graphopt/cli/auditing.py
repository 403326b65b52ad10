"""`graphopt audit`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphopt.cli.console import check_place, progress, read_source, show, show_json
from graphopt.errors import ModelError, UsageError
from graphopt.system.files import write_text

if TYPE_CHECKING:
    from graphopt.audit import Audit
    from graphopt.audit.corpus import Corpus


def audit(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL...", help="A model (`-`: standard input); several, or folders, for a summary."),
    ],
    *,
    level: Annotated[
        list[str] | None, typer.Option(help="graphopt's levels; may be repeated. Default: basic, extended, all.")
    ] = None,
    against: Annotated[
        list[str] | None, typer.Option(help="A peer to compare with; may be repeated; `none` for none. Default: all.")
    ] = None,
    threads: Annotated[str, typer.Option(help="Thread counts, like 1,2.")] = "1",
    rounds: Annotated[int | None, typer.Option(help="Rounds of timing; by the budget when not given.")] = None,
    budget: Annotated[float, typer.Option(help="Seconds of timing for each thread count.", min=0)] = 10.0,
    shape: Annotated[list[str] | None, typer.Option(help="Shape of an input, like input=1,3,224,224.")] = None,
    dim: Annotated[list[str] | None, typer.Option(help="Size of a symbolic dimension, like batch=1.")] = None,
    data: Annotated[str | None, typer.Option(help="An .npz file with inputs (and labels) for the metric.")] = None,
    metric: Annotated[str | None, typer.Option(help="module:function of (outputs, data) that gives a number.")] = None,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Do not ask the oracle.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds that one optimizer may take.", min=0)] = 300.0,
    keep: Annotated[str | None, typer.Option(help="A folder for the optimized models.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Report as JSON.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Report as Markdown.")] = False,
    jobs: Annotated[int, typer.Option(help="With several models: how many to work on at once.", min=1)] = 1,
    store: Annotated[
        str | None, typer.Option(help="With several models: keep audits here, and resume from here.")
    ] = None,
    html: Annotated[str | None, typer.Option(help="Write a self-contained HTML report to this file, too.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Compare optimizers on a model: what each does to it, what that costs, and what it is worth."""
    from graphopt.audit import Limits
    from graphopt.audit import audit as compare
    from graphopt.audit.feeds import parse_dims, parse_shapes

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
    if len(models) > 1 or Path(models[0]).is_dir():
        if html is not None or keep is not None:
            raise UsageError("--html and --keep are for one model")
        _audit_corpus(models, settings, jobs=jobs, store=store, as_json=as_json, as_markdown=as_markdown, quiet=quiet)
        return
    check_place(html)
    given = read_source(models[0])
    with progress(f"auditing {models[0]}", quiet=quiet) as told:
        found = compare(given, keep=keep, progress=told, **settings)
    if html is not None:
        write_text(html, audit_report(found, given))
    report(found, as_json=as_json, as_markdown=as_markdown)
    if not found.ok:
        raise typer.Exit(1)


def _audit_corpus(
    names: list[str], settings: dict[str, Any], *, jobs: int, store: str | None, as_json: bool, as_markdown: bool,
    quiet: bool,
) -> None:  # fmt: skip
    from graphopt.audit.contestants import contestants
    from graphopt.audit.corpus import audit_corpus

    contestants(None, settings["levels"], settings["against"])  # what is wrong for all is said once
    files = model_files(names)
    with progress(f"auditing {len(files)} models", quiet=quiet) as told:
        found = audit_corpus(files, store=store, jobs=jobs, progress=told, **settings)
    report(found, as_json=as_json, as_markdown=as_markdown)
    if not found.ok:
        raise typer.Exit(1)
    if found.failures and not found.audits:
        raise ModelError(f"no model could be audited; the first: {next(iter(found.failures.values()))}")


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


def report(found: Audit | Corpus, *, as_json: bool, as_markdown: bool) -> None:
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


def model_files(names: list[str]) -> list[str]:
    """The files named, and those in the folders named.

    Raises:
        ModelError: a folder holds no model.
    """
    files: list[str] = []
    for name in names:
        if not Path(name).is_dir():
            files.append(name)
            continue
        # Folders may vanish meanwhile, or be closed to us: they hold no model for us then.
        inside = sorted(
            str(Path(folder, file)) for folder, _, files in os.walk(name) for file in files if file.endswith(".onnx")
        )
        if not inside:
            raise ModelError(f"{name}: no .onnx file in this folder")
        files += inside
    return files
