"""`graphopt convert`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from graphopt.cli.arguments import Option
from graphopt.cli.console import progress, read_source, show
from graphopt.cli.optimizing import Batch, check_output, pairs_of, say_unwritten, write
from graphopt.cli.options import Data, Files, Json, Opaque, Outside, Patience, Seed, Sizes, Verify, feed
from graphopt.errors import UsageError
from graphopt.printable import printable

if TYPE_CHECKING:
    from graphopt.ir import Model, Source
    from graphopt.opsets import Conversion
    from graphopt.verify import Feed, Report


def convert(
    files: Files,
    *,
    opset: Annotated[int | None, Option(help="The version of the standard operator set, at least 7.")] = None,
    runtime: Annotated[
        str | None, Option("--for", help="The target: tensorrt, coreml, openvino, ncnn or tract.")
    ] = None,
    ml_opset: Annotated[int | None, Option(help="The version of ai.onnx.ml. Default: unchanged.")] = None,
    sizes: Sizes,
    opaque_weights: Opaque = None,
    verify: Verify = False,
    data: Data = None,
    seed: Seed = 0,
    timeout: Patience = None,
    outside: Outside,
    as_json: Json = False,
) -> None:
    """Convert a model to another opset, with the same results. OUT is written atomically at the end, or not at all."""
    from graphopt.opsets import convert_source

    pairs = pairs_of(files, "convert")
    check_output(pairs, outside, data, as_json=as_json)
    layout, own = outside.layout(), feed(data)
    if opset is None and ml_opset is None and runtime is None:
        raise UsageError("expected --opset with a version, or --for with a runtime")
    batch = Batch(len(pairs) > 1)

    def bring(source: str, target: str) -> tuple[Conversion, Report | None]:
        given = read_source(source)
        with progress(f"converting {source}") as told:
            conversion = convert_source(
                given, opset, ml_opset=ml_opset, runtime=runtime, opaque_weights=opaque_weights, shapes=sizes.shapes,
                dims=sizes.dims,
            )  # fmt: skip
            told("verifying" if verify else "writing", 0.5)
            report = _compared(given, conversion.model, sizes, own=own, seed=seed, timeout=timeout) if verify else None
            if report is None or report.ok:
                write(conversion.model, target, layout)
        return conversion, report

    for source, target in pairs:
        with batch.going_on(source):
            conversion, report = bring(source, target)
            batch.add(source, _as_dict(conversion, report) if as_json else {})
            if report is not None and not report.ok:
                batch.code = batch.code or 1
                show(*report.parts(), stderr=True)
                say_unwritten(target, report)
            elif not as_json:
                show(_line(conversion, source if batch.several else None), stderr=target == "-")
    batch.end(as_json=as_json)


def _compared(
    given: str | bytes, model: Model, sizes: Sizes, *, own: Feed | None, seed: int, timeout: float | None
) -> Report:
    from graphopt.ir.interface import load_fixed
    from graphopt.verify import SETS, compare
    from graphopt.verify.filling import both_filled

    before: Source = given
    if sizes.shape or sizes.dim:
        before = load_fixed(given, sizes.shapes, sizes.dims, opaque=model.opaque).flush()
    before, after = both_filled(before, model) if model.unread() else (before, model.flush())
    sets = None if own is None else SETS
    return compare(before, after, numerics="rounding", seed=seed, sets=sets, inputs=own, timeout=timeout)


def _as_dict(conversion: Conversion, report: Report | None) -> dict[str, Any]:
    known = {"before": conversion.before, "after": conversion.described(), "written_out": conversion.written_out}
    return {"schema": 1, **known, "verification": None if report is None else report.to_dict()}


def _line(conversion: Conversion, name: str | None) -> Any:
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
    return Text(("" if name is None else f"{printable(name)}: ") + "; ".join(parts))
