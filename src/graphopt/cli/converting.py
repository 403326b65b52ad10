"""`graphopt convert`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

from graphopt.cli.arguments import Argument, Exit, Option
from graphopt.cli.console import progress, read_source, show, show_json
from graphopt.cli.optimizing import check_output, say_unwritten, write
from graphopt.cli.options import Json, Opaque, Outside, Patience
from graphopt.errors import UsageError

if TYPE_CHECKING:
    from graphopt.ir import Model
    from graphopt.opsets import Conversion


def convert(
    source: Annotated[str, Argument(metavar="IN", help="The model; `-` reads standard input.")],
    target: Annotated[str, Argument(metavar="OUT", help="The file to write; `-` writes standard output.")],
    *,
    opset: Annotated[int | None, Option(help="The version of the standard's operators, from 7 on.")] = None,
    runtime: Annotated[
        str | None, Option("--for", help="What it is for: tensorrt, coreml, openvino, ncnn or tract.")
    ] = None,
    ml_opset: Annotated[int | None, Option(help="The version of ai.onnx.ml; default: as it is.")] = None,
    opaque_weights: Opaque = None,
    verify: Annotated[bool, Option("--verify", help="Compare with the original; write nothing that differs.")] = False,
    timeout: Patience = None,
    outside: Outside,
    as_json: Json = False,
) -> None:
    """Bring a model to another opset, with the same results. OUT is written at the end, at once, or not at all."""
    from graphopt.opsets import convert_source

    check_output(target, outside, as_json=as_json)
    layout = outside.layout()
    if opset is None and ml_opset is None and runtime is None:
        raise UsageError("expected --opset with a version, or --for with a runtime")
    given = read_source(source)
    with progress(f"converting {source}") as told:
        conversion = convert_source(given, opset, ml_opset=ml_opset, runtime=runtime, opaque_weights=opaque_weights)
        if verify:
            told("verifying", 0.5)
            _verify(given, conversion.model, target, timeout)
        told("writing", 0.9)
        write(conversion.model, target, layout)
    if as_json:
        known = {"before": conversion.before, "after": conversion.described(), "written_out": conversion.written_out}
        show_json({"schema": 1, **known})
    else:
        show(_line(conversion), stderr=target == "-")


def _verify(given: str | bytes, model: Model, target: str, timeout: float | None) -> None:
    from graphopt.verify import compare
    from graphopt.verify.filling import both_filled

    before, after = both_filled(given, model) if model.unread() else (given, model.flush())
    report = compare(before, after, numerics="rounding", timeout=timeout)
    if not report.ok:
        sys.stderr.write(f"{report.summary()}\n")
        say_unwritten(target, report)
        raise Exit(1)


def _line(conversion: Conversion) -> Any:
    from rich.text import Text

    before, after = conversion.before, conversion.described()

    versions = [
        f"{domain or 'opset'} {version} -> {after['opsets'][domain]}"
        for domain, version in before["opsets"].items()
        if after["opsets"][domain] != version
    ]
    parts = [
        ", ".join(versions) or "nothing to convert",
        f"IR version {before['ir_version']} -> {after['ir_version']}",
        f"{before['nodes']} -> {after['nodes']} nodes",
    ]
    out = conversion.written_out
    if out:
        parts.append("written out: " + ", ".join(f"{count} {op}" for op, count in out.items()))
    return Text("; ".join(parts))
