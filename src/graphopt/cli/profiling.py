"""`graphopt profile`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from graphopt.cli.arguments import Argument, Option
from graphopt.cli.console import progress, read_sources, show, show_json
from graphopt.cli.options import Data, Json, Seed, Sizes, Threads, feed
from graphopt.cli.sizes import parse_threads

if TYPE_CHECKING:
    from graphopt.audit.profile import Profile


def profile(
    models: Annotated[list[str], Argument(metavar="MODEL...", help="One model, or several to compare.")],
    *,
    only: Annotated[
        list[str] | None, Option(help="levels, alone, denormals or threads; may be repeated.", commas=True)
    ] = None,
    threads: Threads = "1",
    top: Annotated[int, Option(help="The number of operators to time alone.", min=0)] = 12,
    rounds: Annotated[int, Option(help="The most interleaved rounds under the profiler.", min=2)] = 15,
    budget: Annotated[float, Option(help="Seconds of these for each level, and of other measurements.", min=0)] = 6.0,
    sizes: Sizes,
    data: Data = None,
    seed: Seed = 0,
    no_graphopt: Annotated[bool, Option("--no-graphopt", help="Only ONNX Runtime's levels.")] = False,
    as_json: Json = False,
) -> None:
    """Show where a model's time goes: each operator at each level, alone and in the model, threads, denormals.

    If several thread counts are given, the thread table has all of them; all other parts use the first.
    """
    from graphopt.audit.profile import PARTS
    from graphopt.audit.profile import profile as measured

    counts = parse_threads(threads)
    thread_counts = counts if len(counts) > 1 else None
    given, shapes, dims = feed(data), sizes.shapes, sizes.dims
    found = []
    for model, source in zip(models, read_sources(models), strict=True):
        with progress(f"profiling {model}") as told:
            found.append(
                measured(
                    source, parts=tuple(only) if only else PARTS, threads=counts[0],
                    thread_counts=thread_counts, graphopt=not no_graphopt, top=top, rounds=rounds, budget=budget,
                    shapes=shapes, dims=dims, data=given, seed=seed, progress=told,
                )
            )  # fmt: skip
    if as_json:
        show_json([each.to_dict() for each in found] if len(found) > 1 else found[0].to_dict())
        return
    show(*found)
    if len(found) > 1 and found[0].levels:
        show(_side_by_side(found))


def _side_by_side(found: list[Profile]) -> Any:
    from rich.table import Table

    from graphopt.audit.columns import spread

    table = Table(title="Side by side", title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("level")
    for each in found:
        table.add_column(each.model, justify="right")
    for level in found[0].levels:
        cells = []
        for each in found:
            own = next((one for one in each.levels if one.name == level.name), None)
            share = f" (reorders {100 * own.hidden / own.kernels:.0f}%)" if own is not None and own.hidden else ""
            cells.append(spread(own.latency) + share if own is not None else "-")
        table.add_row(level.name, *cells)
    return table
