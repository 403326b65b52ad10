"""`graphopt fuzz`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from graphopt.cli.arguments import Exit, Option
from graphopt.cli.console import check_place, quiet, show, show_json, write_page
from graphopt.cli.options import Html, Json, Numerics, Target, peers
from graphopt.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphopt.fuzzing import SessionReport


def fuzz(
    *,
    level: Annotated[
        list[str] | None,
        Option(
            help="Levels, `alone` for single passes, `convert` for opsets, `none`. Default: the first four.",
            commas=True,
        ),
    ] = None,
    peer: Annotated[list[str] | None, Option(help="Another optimizer to test; may be repeated.")] = None,
    only: Annotated[
        list[str] | None,
        Option("--pass", help="Run this pass alone, on models that it fires on; may be repeated.", commas=True),
    ] = None,
    numerics: Numerics = "rounding",
    machine: Target = None,
    ops: Annotated[str, Option(help="Operators to draw from, like Conv,Relu. Default: all.")] = "",
    minutes: Annotated[float | None, Option(help="The duration in minutes.", min=0)] = None,
    models: Annotated[int | None, Option(help="The number of models. Default: 1000.", min=1)] = None,
    seed: Annotated[str, Option(help="The seed of all models: equal seeds give equal models.")] = "0",
    first: Annotated[int, Option(help="The index of the first model.", min=0)] = 0,
    corpus: Annotated[
        str | None, Option(help="A folder for reduced models, from which the same session can be resumed.")
    ] = None,
    jobs: Annotated[int, Option(help="The number of parallel processes.", min=1)] = 1,
    keep_whole: Annotated[bool, Option("--keep-whole", help="Do not reduce failing models.")] = False,
    reasons: Annotated[bool, Option("--reasons", help="Also count why passes declined.")] = False,
    passes_until: Annotated[
        int,
        Option(
            help="Choose golden cases until each pass fired this often, and declined a tenth as often per reason.",
            min=0,
        ),
    ] = 0,
    after: Annotated[
        list[str] | None,
        Option(
            help="An earlier session's report (--json), from whose counts --passes-until continues; may be repeated.",
            needs="passes_until",
        ),
    ] = None,
    thin: Annotated[int, Option(help="Have levels and peers take turns: each judges one of this many.", min=1)] = 1,
    sow: Annotated[str, Option(help="Golden cases that models begin with, like fuse_gelu/fires_erf.")] = "",
    as_json: Json = False,
    html: Html = None,
) -> None:
    """Find faults of optimizers on random models, reduce them and name the pass. Exit code 1: graphopt had a fault."""
    from graphopt.fuzzing import fuzz as run
    from graphopt.fuzzing.subjects import DEFAULT, KNOWN

    check_place(html)
    levels = DEFAULT if level is None else tuple(name for name in level if name != "none")
    for name in levels:
        if name not in KNOWN:
            raise UsageError(f"unknown level {name!r}; expected some of {', '.join(KNOWN)}, none")
    others = peers(peer) or []
    if not levels and not others and not only:
        raise UsageError("nothing to test: name a level, a pass or a peer")
    with _live() as told:
        found = run(
            levels=levels, peers=others, passes=only or (), ops=[op for op in ops.split(",") if op], minutes=minutes,
            models=models, seed=seed, first=first, corpus=corpus, jobs=jobs, reduce=not keep_whole, explain=reasons,
            until=passes_until, after=after or (), thin=thin, sow=[case for case in sow.split(",") if case],
            numerics=numerics, target=machine, progress=told,
        )  # fmt: skip
    if html is not None:
        write_page(html, found.to_html())
    if as_json:
        show_json(found.to_dict())
    else:
        show(found)
    if not found.ok:
        raise Exit(1)


@contextmanager
def _live() -> Iterator[Callable[[SessionReport], None]]:
    """A table of verdicts that is updated during the session, if standard error is a terminal."""
    from graphopt.fuzzing.views import verdict_table
    from graphopt.printable import console

    out = console(stderr=True)
    if quiet() or not out.is_terminal:
        yield lambda report: None
        return
    from rich.live import Live

    with Live(console=out, refresh_per_second=2, transient=True) as live:
        yield lambda report: live.update(verdict_table(report))
