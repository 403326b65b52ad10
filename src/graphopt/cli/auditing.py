"""`graphopt audit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from graphopt.cli.arguments import Argument, Option
from graphopt.cli.console import check_place, progress, read_source, write_page
from graphopt.cli.options import (
    Against,
    Data,
    Html,
    NoVerify,
    Numerics,
    Opset,
    ReportForm,
    Seed,
    Sizes,
    Target,
    Timeout,
    TimingOptions,
    peers,
)
from graphopt.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from graphopt.audit import Audit
    from graphopt.ir import Source
    from graphopt.manager import PassManager

LEVELS = ("basic", "extended", "all")
Levels = Annotated[
    list[str] | None,
    Option("--level", help="graphopt's levels; may be repeated. Default: basic, extended, all.", commas=True),
]


def audit(
    model: Annotated[str, Argument(metavar="MODEL", help="A model (`-`: standard input).")],
    *,
    level: Levels = None,
    against: Against = None,
    numerics: Numerics = "rounding",
    machine: Target = None,
    opset: Opset = None,
    sizes: Sizes,
    data: Data = None,
    metric: Annotated[str | None, Option(help="module:function that maps (outputs, data) to a number.")] = None,
    seed: Seed = 0,
    measured: TimingOptions,
    no_verify: NoVerify = False,
    timeout: Timeout = 300.0,
    keep: Annotated[str | None, Option(help="A folder for the optimized models.")] = None,
    html: Html = None,
    form: ReportForm,
) -> None:
    """Compare optimizers on a model: what each changes, its cost and its speed-up."""
    from graphopt.audit import Limits
    from graphopt.audit import audit as compare
    from graphopt.manager import PassManager

    threads, shapes, dims, others = measured.thread_counts, sizes.shapes, sizes.dims, peers(against)
    if model != "-" and Path(model).is_dir():
        raise UsageError(f"{model} is a folder; `graphopt corpus run` audits many models")
    check_place(html, model, data)
    managers = {name: PassManager(name, numerics=numerics, target=machine) for name in level or LEVELS}
    given = PassManager(opset=opset).prepared(read_source(model))
    with progress(f"auditing {model}") as told:
        found = compare(
            given, managers, against=others, threads=threads, rounds=measured.rounds, budget=measured.budget,
            shapes=shapes, dims=dims, data=data, metric=metric, verify=not no_verify, seed=seed,
            limits=Limits(timeout), keep=keep, progress=told,
        )  # fmt: skip
    if html is not None:
        write_page(html, audit_report(found, given, managers))
    form.show(found, ok=found.ok)


def audit_report(found: Audit, given: Source, managers: Mapping[str, PassManager]) -> str:
    """The HTML report: the audit, and the graphs before and after graphopt's highest level with these settings."""
    from graphopt.audit.explaining import explain_with_graphs
    from graphopt.audit.html import audit_html

    name, manager = max(managers.items(), key=lambda each: each[1].level)
    explanation, drawing = explain_with_graphs(given, manager)
    return audit_html(found, explanation, drawing, f"graphopt {name}")
