"""The benchmarks as commands: `python -m benchmarks --help`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.zoo import DRESSES

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)
Models = Annotated[list[str] | None, typer.Argument(help="names of the zoo, or dress/name; all when left out")]
Dress = Annotated[str | None, typer.Option(help=f"only one of {', '.join(DRESSES)}")]
Tools = Annotated[list[str] | None, typer.Option("--tool", help="only these tools; earlier results of others stay")]
Gaps = Annotated[bool, typer.Option(help="leave out what was measured here at this revision")]
Fresh = Annotated[bool, typer.Option(help="forget earlier results instead of filling gaps")]


@app.command()
def export(
    names: Models = None, dress: Dress = None, jobs: int = 2, limit: float = 900.0, *, force: bool = False
) -> None:
    """Export the zoo to benchmarks/models (needs the extra `bench`)."""
    from benchmarks.export import export_all

    export_all(names, [dress] if dress else list(DRESSES), jobs, force=force, limit=limit)


@app.command()
def refill(names: Models = None, *, force: bool = False) -> None:
    """Refill the committed skeletons and write them to benchmarks/models: the zoo without torch."""
    from benchmarks.export import model_path
    from benchmarks.skeleton import load_skeleton
    from benchmarks.skeleton import names as all_names

    for key in all_names():
        dress, _, name = key.partition("/")
        path = model_path(dress, name)
        if (not names or name in names or key in names) and (force or not path.exists()):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(load_skeleton(key).SerializeToString())


@app.command()
def skeletons(keys: Models = None, *, force: bool = False) -> None:
    """Make the skeletons of all exports, or of those called dress/name."""
    from benchmarks.skeleton_make import make_all

    make_all(keys, force=force)


@app.command()
def reports(names: Models = None) -> None:
    """Run other optimizers on the models of users' reports (tests/reports), and write docs/reports.md."""
    from benchmarks.reports import run

    run(names)


@app.command()
def optimizers(
    models: Models = None, dress: Dress = None, tool: Tools = None, repeats: int = 3, *, fresh: Fresh = False
) -> None:
    """Measure time, peak memory and remaining nodes of every tool on every model."""
    from benchmarks.optimizers import run

    run(models, dress, tool, repeats, fresh=fresh)


@app.command()
def against(
    tree: Path, models: Models = None, level: list[str] | None = None, mode: list[str] | None = None,
    seconds: float = 5.0,
) -> None:  # fmt: skip
    """Compare the optimization time with the graphopt of another source tree, with `seconds` for each row.

    `level` and `mode` select levels and modes: `file` (from path to path) and `memory` (of a ModelProto).
    """
    from benchmarks.against import run

    run(tree, models, level, mode, seconds)


@app.command()
def counts(places: str | None = None) -> None:
    """Count repeated or long code, with the bounds; `places` lists the places of one count."""
    from benchmarks.counts import show

    show(places)


@app.command()
def outcomes(models: Models = None, file: Path = Path("outcomes.json"), against: Path | None = None) -> None:
    """Record the effects of the passes on every skeleton; with `against`, print differences from an earlier record."""
    from benchmarks.outcomes import run

    raise typer.Exit(bool(run(models, file, against)))


@app.command()
def latency(
    models: Models = None, dress: Dress = None, threads: list[int] | None = None, budget: float = 8.0,
    variant: list[str] | None = None, *, fresh: Fresh = False,
) -> None:  # fmt: skip
    """Measure run time and session start of every tool's output, with `budget` seconds per model and thread count.

    `variant` selects outputs, as `graphopt_all@none`; the export under onnxruntime's optimizer, `raw@all`, is always
    measured.
    """
    from benchmarks.latency import run

    run(models, dress, tuple(threads or (1, 2)), budget, fresh=fresh, only=variant)


@app.command()
def dresses(models: Models = None, seconds: float = 3.0, *, fresh: Fresh = False) -> None:
    """Count the remaining nodes of each network's three exports after graphopt and its peers; time graphopt's results.

    Each network is timed for `seconds`, 0 for no timing; counts of peers are reused unless `fresh`.
    """
    from benchmarks.dresses import run

    run(models, fresh=fresh, seconds=seconds)


@app.command()
def conversion(tool: Tools = None, target: list[int] | None = None, sample: int = 0, *, kept: bool = False) -> None:
    """Convert every operator case of the standard to every opset by each converter; writes a part of docs/convert.md.

    `target` selects opsets, and `sample` is the number of randomly drawn conversions. Verdicts are stored, so that an
    interrupted run can be continued; with `kept` only stored verdicts are counted.
    """
    from benchmarks.conversion import TOOLS, run, write

    write(run(tool or TOOLS, target or (), sample, kept=kept))


@app.command()
def conversion_networks(models: Models = None, target: list[int] | None = None) -> None:
    """Convert every network of the zoo to other opsets and back, and compare numbers and graphs; stores the results."""
    from benchmarks.conversion_networks import run

    run(models, target)


@app.command()
def attention(models: Models = None, seconds: float = 12.0) -> None:
    """Measure the gain of `Attention` of opset 23 over the result of `all`, on one thread."""
    from benchmarks.attention import run

    for row in run(models, seconds):
        print(row, flush=True)


@app.command()
def conversion_exports() -> None:
    """Count the nodes that `basic` leaves in exports converted to newer opsets, and in newer exports of the same."""
    from benchmarks.conversion_networks import raised_exports

    for row in raised_exports():
        print(row, flush=True)


@app.command()
def conversion_raised(models: Models = None, target: list[int] | None = None, level: str = "extended") -> None:
    """Count the nodes that a level leaves in networks of opset 13, as they are and after conversion to newer opsets."""
    from benchmarks.conversion_networks import raised
    from benchmarks.skeleton import names

    for row in raised(models or names("dynamo"), target or (17, 20, 23), level):
        print(row, flush=True)


@app.command()
def winograd(models: Models = None, threads: list[int] | None = None, budget: float = 15.0) -> None:
    """Measure run time, session start and size with and without Winograd convolutions; writes docs/winograd.md."""
    from benchmarks.winograd import run

    run(models, tuple(threads or (1, 2)), budget)


@app.command()
def quantized(
    networks: Models = None,
    scheme: list[str] | None = None,
    budget: float = 3.0,
    threads: int = 1,
    *,
    gaps: Gaps = False,
) -> None:
    """Measure run time and deviation of quantized networks against the runtime's best level; `budget` seconds each."""
    from benchmarks.quantized import NETWORKS, run
    from benchmarks.schemes import SCHEMES

    run(networks or NETWORKS, scheme or SCHEMES, budget, threads, fresh=not gaps)


@app.command()
def families(
    keys: Models = None, family: list[str] | None = None, budget: float = 1.5, threads: int = 1, *, gaps: Gaps = False
) -> None:
    """Measure float networks by family against the runtime's best level and OpenVINO; writes docs/families.md.

    `keys` are names as dress/name, `family` selects families.
    """
    from benchmarks.families import run

    run(keys, family, budget, threads, fresh=not gaps)


@app.command()
def bench(minutes: float = 115.0, only: list[str] | None = None, *, fresh: Fresh = False) -> None:
    """Run all parts in sequence, each within its share of the minutes; an interrupted run is continued."""
    from benchmarks.bench import run

    run(minutes, only, fresh=fresh)


@app.command()
def margins(seconds: float = 2.0) -> None:
    """Plan networks by the rates of other machines, with and without their margin; writes a part of docs/layout.md."""
    from benchmarks.margins import run

    run(seconds)


@app.command()
def ties(networks: Models = None, scheme: list[str] | None = None) -> None:
    """Count where single operators of quantized networks round differently than before; `quantized` must run first."""
    from benchmarks.quantized import NETWORKS, count_ties

    count_ties(networks or NETWORKS, scheme or ("u8s8", "s8s8pc"))


@app.command()
def slow_networks(old: Path | None = None, seconds: float = 2.0, *, fresh: Fresh = False) -> None:
    """Measure the gain of other forms of slow operators in whole networks over an older graphopt, for docs/atlas.md."""
    from benchmarks.slow_networks import run

    run(old=old, fresh=fresh, seconds=seconds)


@app.command()
def atlas(seconds: float = 0.15, *, fresh: Fresh = False) -> None:
    """Compare each operator with the machine's limits, and with its other form; writes docs/atlas.md."""
    from benchmarks.atlas import run

    run(fresh=fresh, seconds=seconds)


@app.command()
def first(models: Models = None, tool: Tools = None, rounds: int = 5) -> None:
    """Measure first calls in new processes, from file to file with imports, and the runtime's own optimizer."""
    from benchmarks.first import run

    run(models, tool, rounds)


@app.command()
def scaling(mix: list[str] | None = None, size: list[int] | None = None, tool: Tools = None, repeats: int = 1) -> None:
    """Measure the time on synthetic graphs from 1,000 to 200,000 nodes."""
    from benchmarks.scaling import SIZES, run

    run(mix, tuple(size) if size else SIZES, tool, repeats)


@app.command()
def corpus(
    folder: Path, count: list[int] | None = None, jobs: int = 2, *, pool: bool = False, engines: bool = False,
    rehearsal: Path | None = None,
) -> None:  # fmt: skip
    """Audit many small models, written to a folder: rate and memory; then the overhead of the engine and the store.

    With a store of real records as `rehearsal`, run very many models whose audits take no time.
    """
    from benchmarks.corpus import overhead, rehearse, scale, simulate

    counts = count or [250, 500, 1000, 2000]
    if rehearsal is not None:
        for number in count or [100_000]:
            rehearse(rehearsal, folder, number, jobs, pool=pool)
        return
    if not engines:
        scale(folder, counts, jobs, pool=pool)
        return
    store = folder / f"store-{counts[-1]}"
    overhead(store, 3_000, jobs)
    simulate(store, folder, [10_000, 100_000])


@app.command()
def growth(
    family: list[str] | None = None, size: int = 2_000, level: list[str] | None = None, repeats: int = 4
) -> None:  # fmt: skip
    """Measure time and memory of families of extreme graphs at one size and at twice that size."""
    from benchmarks.growth import run

    run(family, size, level or ["basic", "all"], repeats)


@app.command()
def denormals(network: list[str] | None = None, seconds: float = 20.0) -> None:
    """Measure networks in which folding gives denormal weights: counts, the bound, and times before and after."""
    from benchmarks.denormals import run

    print(run(network, seconds))


@app.command()
def large(tool: Tools = None, limit: float = 900.0) -> None:
    """Measure a model above two gigabytes, from path to path."""
    from benchmarks.large import run

    run(tool, limit)


@app.command()
def unrolling(repeats: int = 300) -> None:
    """Compare loops with their unrolled forms: run time and session start."""
    from benchmarks.unrolling import run

    run(repeats)


@app.command()
def profile(keys: Models = None, level: str = "all", nodes: int = 10_000) -> None:
    """Count attempts, hits and seconds of each rule of graphopt, over all skeletons."""
    from benchmarks.profiling import run

    run(keys, level, nodes)


@app.command()
def stages(models: Models = None, dress: Dress = None) -> None:
    """Measure the stages of an optimization, on every model that `optimizers` measured."""
    from benchmarks.stages import run

    run(models, dress)


@app.command()
def pass_audit(models: Models = None, *, fresh: Fresh = False) -> None:
    """Compare each pass of the peers with its counterpart; writes docs/pass-audit.md."""
    from benchmarks.pass_audit import run

    print(run(models, fresh=fresh))


@app.command()
def onnxoptimizer_passes() -> None:
    """Compare each of onnxoptimizer's passes with graphopt's of the same name; writes docs/onnxoptimizer.md."""
    from benchmarks.onnxoptimizer_passes import run

    print(run())


@app.command()
def firing(source: list[str] | None = None) -> None:
    """Count where each pass fires, how often, and the nodes that it removes; writes docs/pass-use.md."""
    from benchmarks.firing import run

    print(run(source))


@app.command()
def footprint(rounds: int = 5, *, install: bool = True) -> None:
    """Measure the cost of an installation, import and command, beside other optimizers; writes docs/footprint.md."""
    from benchmarks.footprint import run

    run(rounds, install=install)


@app.command()
def table() -> None:
    """Write docs/benchmarks.md from the results."""
    from benchmarks.table import write

    print(write())


if __name__ == "__main__":
    app()
