"""`graphopt convert`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

from graphopt.cli.arguments import Argument, Exit, Option
from graphopt.cli.console import progress, read_source, show, show_json
from graphopt.cli.optimizing import check_output, external, write
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
    verify: Annotated[bool, Option("--verify", help="Compare with the original; write nothing that differs.")] = False,
    external_data: Annotated[
        str | None, Option(help="Put weights into this file beside OUT (`auto` names it OUT.data).")
    ] = None,
    external_threshold: Annotated[
        int | None, Option(help="With --external-data: only tensors of at least this many bytes; default 16384.")
    ] = None,
    external_alignment: Annotated[
        int | None, Option(help="With --external-data: start tensors at multiples of this; default 64.")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Report as JSON on standard output.")] = False,
) -> None:
    """Bring a model to another opset, with the same results. OUT is written at the end, at once, or not at all."""
    from graphopt.opsets import convert_source

    check_output(target, as_json=as_json, external_data=external_data)
    outside = external(external_data, external_threshold, external_alignment)
    if opset is None and ml_opset is None and runtime is None:
        raise UsageError("expected --opset with a version, or --for with a runtime")
    given = read_source(source)
    with progress(f"converting {source}") as told:
        conversion = convert_source(given, opset, ml_opset=ml_opset, runtime=runtime)
        model = conversion.model
        if verify:
            told("verifying", 0.5)
            _verify(given, model, target)
        told("writing", 0.9)
        write(model, target, outside)
    if as_json:
        show_json(
            {
                "schema": 1,
                "before": conversion.before,
                "after": conversion.described(),
                "written_out": conversion.written_out,
            }
        )
    else:
        show(_line(conversion), stderr=target == "-")


def _verify(given: str | bytes, model: Model, target: str) -> None:
    from graphopt.verify import compare

    report = compare(given, model.flush(), numerics="rounding")
    if not report.ok:
        why = "the result differs" if report.status == "mismatch" else "nothing can be said of the result"
        sys.stderr.write(f"{report.summary()}\ngraphopt: {target} is not written: {why}\n")
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
