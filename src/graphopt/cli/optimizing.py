"""`graphopt optimize`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphopt.cli.console import plain_table, progress, read_source, show, show_json
from graphopt.errors import ModelError, UsageError

if TYPE_CHECKING:
    from graphopt.ir import ExternalData
    from graphopt.manager import Result
    from graphopt.verify import Report


def optimize(
    source: Annotated[str, typer.Argument(metavar="IN", help="The model; `-` reads standard input.")],
    target: Annotated[str, typer.Argument(metavar="OUT", help="The file to write; `-` writes standard output.")],
    *,
    level: Annotated[str, typer.Option(help="basic, extended, layout or all.")] = "basic",
    passes: Annotated[str | None, typer.Option(help="A pipeline, or pass names, in place of the level's.")] = None,
    skip: Annotated[list[str] | None, typer.Option(help="A pass to leave out; may be repeated.")] = None,
    numerics: Annotated[str, typer.Option(help="exact, rounding or fast.")] = "rounding",
    machine: Annotated[
        str | None, typer.Option("--target", help="The machine for layout passes; default: host.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare with the original; write nothing that differs.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="End when a pass fails, instead of undoing it.")] = False,
    shape: Annotated[list[str] | None, typer.Option(help="Fix an input's shape, like input=1,3,224,224.")] = None,
    dim: Annotated[list[str] | None, typer.Option(help="Fix a symbolic dimension, like batch=1.")] = None,
    inline_functions: Annotated[
        bool, typer.Option("--inline-functions", help="Replace calls of model-local functions by their bodies.")
    ] = False,
    external_data: Annotated[
        str | None, typer.Option(help="Put weights into this file beside OUT (`auto` names it OUT.data).")
    ] = None,
    external_threshold: Annotated[
        int | None, typer.Option(help="With --external-data: only tensors of at least this many bytes; default 16384.")
    ] = None,
    external_alignment: Annotated[
        int | None, typer.Option(help="With --external-data: start tensors at multiples of this; default 64.")
    ] = None,
    events: Annotated[bool, typer.Option("--events", help="List every rewrite.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Report as JSON on standard output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Report nothing.")] = False,
) -> None:
    """Optimize a model from file to file. OUT is written at the end, at once, or not at all."""
    from graphopt.audit.feeds import parse_dims, parse_shapes
    from graphopt.manager import PassManager

    if target == "-" and as_json:
        raise UsageError("--json and OUT `-` both want standard output")
    if target == "-" and sys.stdout.isatty():
        raise UsageError("`-` writes a model to standard output, which is a terminal")
    if target == "-" and external_data is not None:
        raise UsageError("--external-data needs a file OUT")
    manager = PassManager(
        level, passes=passes, skip=skip or [], numerics=numerics, target=machine, strict=strict,
        shapes=parse_shapes(shape or []), dims=parse_dims(dim or []), inline_functions=inline_functions,
    )  # fmt: skip
    outside = _external(external_data, external_threshold, external_alignment)
    given = read_source(source)
    with progress(f"optimizing {source}", quiet=quiet) as told:
        result = manager.run(given)
        report = None
        if verify:
            told("verifying", 0.5)
            report = manager.verification(given, result)
        if report is None or report.ok:
            told("writing", 0.9)
            _write(result, target, outside)
    _report(result, report, events=events, as_json=as_json, quiet=quiet, stderr=target == "-")
    if report is not None and not report.ok:
        why = "the result differs" if report.status == "mismatch" else "nothing can be said of the result"
        sys.stderr.write(f"graphopt: {target} is not written: {why}\n")
        raise typer.Exit(1)


def _external(location: str | None, threshold: int | None, alignment: int | None) -> ExternalData | None:
    if location is None:
        if threshold is not None or alignment is not None:
            raise UsageError("--external-threshold and --external-alignment need --external-data")
        return None
    if (threshold or 0) < 0 or (alignment if alignment is not None else 1) < 1:
        raise UsageError(f"a threshold >= 0 and an alignment >= 1 expected, found {threshold} and {alignment}")
    from graphopt.ir import ExternalData

    layout = ExternalData(None if location == "auto" else location)
    return replace(
        layout,
        threshold=layout.threshold if threshold is None else threshold,
        alignment=layout.alignment if alignment is None else alignment,
    )


def _write(result: Result, target: str, outside: ExternalData | None) -> None:
    if target == "-":
        sys.stdout.buffer.write(_serialized(result))
        sys.stdout.buffer.flush()
    else:
        result.save(Path(target), outside)


def _serialized(result: Result) -> bytes:
    from google.protobuf.message import EncodeError

    try:
        return result.model.SerializeToString()
    except (EncodeError, ValueError):
        raise ModelError(
            "the result is above 2 GiB, more than standard output can carry: expected a file OUT"
        ) from None


def _report(result: Result, report: Report | None, *, events: bool, as_json: bool, quiet: bool, stderr: bool) -> None:
    from graphopt.terminal import Lines

    if as_json:
        show_json(_as_dict(result, report))
    elif not quiet:
        show(*_rendered(result, report, events=events), stderr=stderr)
    elif report is not None and not report.ok:
        show(Lines(report.summary()), stderr=True)


def _as_dict(result: Result, report: Report | None) -> dict[str, Any]:
    from dataclasses import asdict

    def census(of: Any) -> dict[str, Any]:
        return {"nodes": of.nodes, "ops": dict(of.ops), "initializers": of.initializers, "bytes": of.bytes}

    return {
        "schema": 1,
        "pipeline": result.pipeline,
        "seconds": result.seconds,
        "before": census(result.before),
        "after": census(result.after),
        "passes": result.hits,
        "zeroed": result.zeroed,
        "events": [asdict(event) for event in result.events],
        "failures": [{"pass": f.rule, "node": str(f.node), "error": str(f.error)} for f in result.failures],
        "verification": report.to_dict() if report is not None else None,
    }


def _rendered(result: Result, report: Report | None, *, events: bool) -> list[Any]:
    from rich.text import Text

    from graphopt.audit.columns import size
    from graphopt.terminal import Lines

    before, after = result.before, result.after
    lines: list[Any] = [
        Text(
            f"{before.nodes} -> {after.nodes} nodes, constants {size(before.bytes)} -> {size(after.bytes)}, "
            f"{len(result.events)} rewrites in {result.seconds:.2f} s",
            style="bold",
        )
    ]
    ops = [op for op in {**before.ops, **after.ops} if before.ops.get(op, 0) != after.ops.get(op, 0)]
    if ops:
        table = plain_table("operator", "before", "after")
        for op in sorted(ops, key=lambda op: after.ops.get(op, 0) - before.ops.get(op, 0)):
            table.add_row(op, str(before.ops.get(op, 0)), str(after.ops.get(op, 0)))
        lines.append(table)
    if result.hits:
        table = plain_table("pass", "fired")
        for name, hits in result.hits.items():
            table.add_row(name, str(hits))
        lines.append(table)
    if events:
        lines += [Text(str(event)) for event in result.events]
    if result.zeroed:
        bound = max(event.bound for event in result.events)
        lines.append(
            Text(
                f"{result.zeroed:,} weights too small to matter set to zero: no operator's "
                f"output changes by more than {bound:.1e} times its largest input"
            )
        )
    lines += [Text(f"pass {f.rule} failed at {f.node} and was undone: {f.error}", "yellow") for f in result.failures]
    if report is not None:
        lines.append(Lines(f"verified: {report.summary()}", style="green" if report.ok else "red"))
    return lines
