"""`graphopt check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from graphopt.cli.arguments import Option
from graphopt.cli.console import check_place, progress, write_page
from graphopt.cli.models import model_files
from graphopt.cli.options import Data, Models, Passes, ReportForm, Seed, Sizes, Timeout, TimingOptions
from graphopt.errors import UsageError
from graphopt.system.files import destination


def check(
    models: Models,
    *,
    baseline: Annotated[str | None, Option(help="The earlier results: a file that --save wrote.")] = None,
    fail_on: Annotated[
        str, Option(help="Some of numerics, nodes, bytes and slower, like slower=3%,nodes.")
    ] = "numerics",
    save: Annotated[str | None, Option(help="Write the results to this file: the next baseline.")] = None,
    chosen: Passes,
    sizes: Sizes,
    data: Data = None,
    seed: Seed = 0,
    measured: TimingOptions,
    timeout: Timeout = 300.0,
    junit: Annotated[str | None, Option(help="Write a JUnit report to this file.")] = None,
    form: ReportForm,
) -> None:
    """Check that models have not become worse, for a build or a commit hook. Exit code 1: something became worse."""
    from graphopt.audit.checking import FailOn, read_baseline
    from graphopt.audit.checking import check as judge

    conditions = FailOn.parse(fail_on)
    if conditions.of_the_past and baseline is None and save is None:  # any model would pass
        raise UsageError(f"--fail-on {fail_on} compares models with a baseline; expected --baseline, or --save first")
    files = model_files(models)
    check_place(save, *files, data)  # the new baseline may replace the old one
    check_place(junit, *files, data, baseline)
    if save is not None and junit is not None and destination(Path(save)) == destination(Path(junit)):
        raise UsageError(f"--save and --junit both write {junit}")
    past = read_baseline(baseline) if baseline is not None else None
    with progress("checking") as told:
        found = judge(
            files, conditions, chosen.manager(), baseline=past, threads=measured.thread_counts,
            rounds=measured.rounds, budget=measured.budget, shapes=sizes.shapes, dims=sizes.dims, data=data, seed=seed,
            timeout=timeout, progress=told,
        )  # fmt: skip
    if save is not None:
        write_page(save, found.to_json() + "\n")
    if junit is not None:
        write_page(junit, found.to_junit())
    form.show(found, ok=found.ok)
