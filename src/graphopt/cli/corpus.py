"""`graphopt corpus`: audits of many models."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from graphopt.cli.arguments import Argument, Exit, Option
from graphopt.cli.auditing import LEVELS, Levels
from graphopt.cli.console import check_place, progress, quiet, show, show_json, write_page
from graphopt.cli.options import (
    Against,
    Html,
    Json,
    NoVerify,
    Numerics,
    ReportForm,
    Seed,
    Sizes,
    Target,
    Timeout,
    TimingOptions,
    peers,
)
from graphopt.errors import UsageError
from graphopt.system.extras import version_of

if TYPE_CHECKING:
    from graphopt.audit.corpus.changes import Comparison
    from graphopt.audit.corpus.pool import Engine
    from graphopt.audit.corpus.store import Campaign, Store

MARGIN = 0.05
StoreGiven = Annotated[str, Argument(metavar="STORE", help="The file that `corpus run` wrote.")]
Release = Annotated[str | None, Option("--release", help="The release. Default: the newest.")]
OldStore = Annotated[str | None, Option("--against", help="A store of another release, or the same, to show changes.")]
OldRelease = Annotated[
    str | None, Option("--against-release", help="The release in that store. Default: the newest.", needs="against")
]
Margin = Annotated[
    float, Option("--margin", help="The fraction by which a model may be slower, like 0.05.", min=0, needs="against")
]
StorePath = Annotated[str, Option("--store", help="The file with all records; created if missing.")]


def run(
    sources: Annotated[
        list[str],
        Argument(
            metavar="SOURCE...", help="Files, folders, patterns, lists (a .txt file with a source a line), and URLs."
        ),
    ],
    *,
    store: StorePath,
    jobs: Annotated[int, Option(help="The number of models audited in parallel on this machine.", min=1)] = 1,
    no_latency: Annotated[
        bool, Option("--no-latency", help="Count, check and compare results; measure no latency.")
    ] = False,
    scheduler: Annotated[
        str,
        Option(help="A scheduler of Dask, like tcp://host:8786; `local` starts one here, `none` does without Dask."),
    ] = "",
    shard: Annotated[str, Option(help="i/n: part i of n, for batch queues.")] = "1/1",
    release: Annotated[str, Option(help="The name of this run in reports. Default: graphopt's version.")] = "",
    level: Levels = None,
    against: Against = None,
    measured: TimingOptions,
    numerics: Numerics = "rounding",
    machine: Target = None,
    sizes: Sizes,
    seed: Seed = 0,
    no_verify: NoVerify = False,
    timeout: Timeout = 300.0,
    memory: Annotated[
        float | None, Option(help="Memory limit of one process, in GiB. Default: half of the machine's.", min=0)
    ] = None,
    largest: Annotated[float | None, Option(help="Size limit of a model in GiB, with external data.", min=0)] = None,
    disk: Annotated[
        float | None,
        Option(help="GiB that models behind URLs may occupy on each machine. Default: half of the free space.", min=0),
    ] = None,
    as_json: Json = False,
) -> None:
    """Audit all models without a record for these settings and versions. Exit code 3: some are left."""
    from graphopt.audit.corpus import CorpusSettings, run_corpus
    from graphopt.audit.rivals import installed

    given = peers(against)
    settings = CorpusSettings(
        levels=tuple(level or LEVELS), against=tuple(installed() if given is None else given), timed=not no_latency,
        threads=measured.thread_counts, rounds=measured.rounds, budget=measured.budget, shapes=sizes.shapes,
        dims=sizes.dims, verify=not no_verify, seed=seed, numerics=numerics, target=machine or "", seconds=timeout,
        memory=_bytes(memory), largest=_bytes(largest),
    )  # fmt: skip
    with progress("reading models") as told:
        found = run_corpus(
            sources, store, settings, engine=_engine(scheduler, jobs), release=release, shard=_shard(shard),
            disk=_bytes(disk), progress=told,
        )  # fmt: skip
    if as_json:
        show_json(found.to_dict())
    elif not quiet():
        sys.stdout.write(f"{found}\n")
    if found.stopped:
        raise Exit(130)
    if found.unsettled:
        raise Exit(3)


def show_report(
    store: StoreGiven,
    *,
    release: Release = None,
    against: OldStore = None,
    against_release: OldRelease = None,
    margin: Margin = MARGIN,
    releases: Annotated[
        bool, Option("--releases", help="Show the results of each contestant in each release of STORE.")
    ] = False,
    html: Html = None,
    table: Annotated[str | None, Option(help="Also write all records to this .parquet or .csv file.")] = None,
    form: ReportForm,
) -> None:
    """Show the results of one release: by optimizer, pass and operator, and changes. Exit code 1: some are wrong."""
    from graphopt.audit.corpus import Store
    from graphopt.audit.corpus.page import corpus_html
    from graphopt.audit.corpus.report import campaign_of, releases_of, report_of
    from graphopt.audit.corpus.tables import rows, write_table

    check_place(html, store)
    check_place(table, store)
    with Store(store) as opened:
        campaign = campaign_of(opened, release)
        found = report_of(opened, campaign)
        if against is not None:
            found.changes = _compared(opened, campaign, against, against_release, margin)
        if releases:
            found.releases = releases_of(opened)
        if table is not None:
            write_table(table, rows(opened.records(campaign), campaign.release))
        if html is not None:
            write_page(html, corpus_html(found, opened.records(campaign)))
    form.show(found, ok=found.ok)


def gate(
    store: StoreGiven,
    *,
    against: Annotated[str, Option(help="The store of the previous release; may be the same store.")],
    release: Release = None,
    against_release: OldRelease = None,
    margin: Margin = MARGIN,
    repeat: Annotated[int, Option(help="How often to repeat measurements that seem slower.", min=0)] = 2,
    as_json: Json = False,
) -> None:
    """Decide whether a release is acceptable. Exit code 1: a model is wrong, fails, or is slower beyond the margin."""
    from graphopt.audit.corpus import Store
    from graphopt.audit.corpus.changes import confirm
    from graphopt.audit.corpus.report import campaign_of
    from graphopt.audit.corpus.view import render_changes

    with Store(store, write=repeat > 0, there=True) as opened:
        campaign = campaign_of(opened, release)

        def compare() -> Comparison:
            return _compared(opened, campaign, against, against_release, margin)

        found = confirm(opened, compare(), repeat, compare)
    if as_json:
        show_json(asdict(found))
    else:
        show(*render_changes(found))
    if found.breaking:
        raise Exit(1)


def merge(
    store: Annotated[str, Argument(metavar="STORE", help="The file to merge into; created if missing.")],
    others: Annotated[list[str], Argument(metavar="OTHER...", help="Stores, one of each shard.")],
) -> None:
    """Merge the stores of shards into one; a record that exists already is not counted twice."""
    from graphopt.audit.corpus import Store

    with Store(store, write=True) as opened:
        for other in others:
            with Store(other) as theirs:
                taken = opened.merge(theirs)
            if not quiet():
                sys.stdout.write(f"{other}: {taken:,} new records\n")


def _compared(store: Store, campaign: Campaign, old: str, release: str | None, margin: float) -> Comparison:
    from graphopt.audit.corpus import Store
    from graphopt.audit.corpus.changes import compare
    from graphopt.audit.corpus.report import campaign_of

    if Path(old).resolve() == store.path.resolve():
        return compare(store, campaign_of(store, release, but=campaign), store, campaign, margin)
    with Store(old) as opened:
        return compare(opened, campaign_of(opened, release), store, campaign, margin)


def _engine(scheduler: str, jobs: int) -> Callable[[], Engine]:
    """The engine: Dask if it is installed, unless the option says otherwise."""
    from graphopt.audit.corpus.fleet import Fleet
    from graphopt.audit.corpus.pool import WorkerPool

    if scheduler == "none" or (not scheduler and version_of("distributed") is None):
        return lambda: WorkerPool(jobs)

    def start() -> Engine:
        fleet = Fleet(jobs, None if scheduler in ("", "local") else scheduler)
        if not quiet() and sys.stderr.isatty() and version_of("bokeh") is not None:  # Dask needs it to draw its page
            sys.stderr.write(f"Dask's page about its work: {fleet.dashboard}\n")
        return fleet

    return start


def _bytes(gibibytes: float | None) -> int | None:
    if gibibytes is not None and not isfinite(gibibytes):
        raise UsageError(f"expected a number of GiB, found {gibibytes}")
    return None if gibibytes is None else int(gibibytes * 2**30)


def _shard(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal()):
        raise UsageError(f"shard {text!r}: expected i/n, like 3/10")
    return int(part), int(parts)
