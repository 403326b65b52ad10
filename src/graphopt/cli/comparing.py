"""`graphopt verify` and `graphopt diff`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from graphopt.cli.arguments import Argument, Exit
from graphopt.cli.console import plain_table, progress, read_sources, show, show_json
from graphopt.cli.options import Data, Json, Numerics, Patience, Seed, Sizes, feed

if TYPE_CHECKING:
    from graphopt.audit.difference import Diff

First = Annotated[str, Argument(metavar="A", help="The original; `-` reads standard input.")]
Second = Annotated[str, Argument(metavar="B", help="The model to judge; `-` likewise.")]
_LISTED = 20


def verify(
    original: First,
    result: Second,
    *,
    numerics: Numerics = "rounding",
    sizes: Sizes,
    data: Data = None,
    seed: Seed = 0,
    timeout: Patience = None,
    as_json: Json = False,
) -> None:
    """Run two models on inputs that expose errors, without the runtime's optimizations. Exit code 1: they differ."""
    from graphopt.verify import SETS, compare

    given, (first, second) = feed(data), read_sources([original, result])
    with progress(f"comparing {original} and {result}"):
        report = compare(
            first, second, numerics=numerics, seed=seed, shapes=sizes.shapes, dims=sizes.dims,
            timeout=timeout, inputs=given, sets=None if given is None else SETS,
        )  # fmt: skip
    if not report.ok:
        _check_data(first, second)
    if as_json:
        show_json(report.to_dict())
    else:
        show(*report.parts())
    if not report.ok:
        raise Exit(1)


def _check_data(*models: str | bytes) -> None:
    """Reject models whose external data is missing or too short: no comparison was made for these.

    Raises:
        ModelError: naming the tensor and the file.
    """
    from pathlib import Path

    from graphopt.ir.external import check_places, folders_of
    from graphopt.ir.files import parse, read_bytes, told_of

    for model in models:
        if isinstance(model, bytes):
            check_places(parse(model, "standard input"), ())
        else:
            with told_of(Path(model)):
                check_places(parse(read_bytes(Path(model)), model), folders_of(Path(model)))


def diff(before: First, after: Second, as_json: Json = False) -> None:
    """Show the differences between two models, without running them. Exit code 1: they differ."""
    from graphopt.audit.difference import diff as difference

    found = difference(*read_sources([before, after]))
    if as_json:
        show_json(found.to_dict())
    else:
        show(*_differences(found))
    if not found.empty:
        raise Exit(1)


def _differences(found: Diff) -> list[Any]:
    from rich.text import Text

    from graphopt.audit.columns import size

    if found.empty:
        return ["no differences"]
    lines: list[Any] = []
    if found.ops:
        table = plain_table("operator", "before", "after", "change")
        for op, (old, new) in found.ops.items():
            table.add_row(op, str(old), str(new), f"{new - old:+d}", style="green" if new < old else "yellow")
        lines.append(table)
    sections = [
        ("interface", found.interface, "red"),
        ("nodes removed", found.removed, "red"),
        ("nodes added", found.added, "green"),
        ("nodes changed", [f"{c.before} -> {c.after}" for c in found.changed], "yellow"),
        ("constants removed", [f"{n}: {t}" for n, t in found.constants_removed.items()], "red"),
        ("constants added", [f"{n}: {t}" for n, t in found.constants_added.items()], "green"),
        ("constants changed", [f"{n}: {t}" for n, t in found.constants_changed.items()], "yellow"),
        ("opsets", [f"{d}: {a} -> {b}" for d, (a, b) in found.opsets.items()], "yellow"),
        ("metadata", found.metadata, "yellow"),
        ("other", found.other, "yellow"),
    ]
    for title, entries, style in sections:
        if entries:
            lines.append(Text(f"{title} ({len(entries)})", style="bold"))
            lines += [Text(f"  {entry}", style=style) for entry in entries[:_LISTED]]
            if len(entries) > _LISTED:
                lines.append(Text(f"  ... and {len(entries) - _LISTED} more; see --json", style="dim"))
    lines.append(f"constants: {size(found.bytes[0])} -> {size(found.bytes[1])}")
    return lines
