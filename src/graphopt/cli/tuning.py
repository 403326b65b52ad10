"""`graphopt tune`."""

from __future__ import annotations

from typing import Annotated, Any

from graphopt.cli.arguments import Argument, Option
from graphopt.cli.console import plain_table, progress, show, show_json
from graphopt.cli.options import Json
from graphopt.errors import UsageError


def tune(
    passes: Annotated[
        list[str] | None, Argument(metavar="[PASS]...", help="Passes to measure for. Default: all.")
    ] = None,
    *,
    layout: Annotated[bool, Option("--layout", help="The same as convert_layout_nchwc.")] = False,
    shown: Annotated[bool, Option("--show", help="Show the rates in use; measure nothing.")] = False,
    reset: Annotated[bool, Option("--reset", help="Discard this machine's measured rates.")] = False,
    as_json: Json = False,
) -> None:
    """Measure this machine for the passes that choose by cost; later runs use the measured rates."""
    from graphopt.pipeline.tuning import tuner, tuners
    from graphopt.system import tuned
    from graphopt.system.machine import host

    target = host()
    names = list(passes or []) + (["convert_layout_nchwc"] if layout else [])
    if shown and reset:
        raise UsageError("--show and --reset exclude each other")
    names = names or list(tuners())
    makers = {name: tuner(name) for name in dict.fromkeys(names)}
    if reset:
        tuned.forget(makers, target)
    elif not shown:
        for name, maker in makers.items():
            with progress(f"measuring for {name}") as told:
                tuned.keep(name, target, maker.measure(target, told))
    found = {name: tuned.figures(name, target) for name in makers}
    if as_json:
        path = tuned.place(target)
        show_json({"target": str(target), "file": str(path) if path else None, "passes": found})
        return
    for name, maker in makers.items():
        origin = "measured here" if found[name] is not None else "built in"
        show(_table(f"{name}, {target}, {origin}", maker.rows(found[name], target)))
    if any(found.values()):
        show(f"kept in {tuned.place(target)}")


def _table(title: str, rows: list[tuple[str, ...]]) -> Any:
    table = plain_table(*rows[0], title=title, title_justify="left", title_style="bold")
    table.columns[0].no_wrap = True
    for row in rows[1:]:
        table.add_row(*row)
    return table
