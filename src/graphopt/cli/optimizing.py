"""`graphopt optimize`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from graphopt.cli.arguments import Argument, Exit, Option
from graphopt.cli.console import progress, quiet, read_source, show, show_json
from graphopt.cli.sizes import parse_dims, parse_shapes
from graphopt.errors import ModelError, UsageError

if TYPE_CHECKING:
    from graphopt.ir import ExternalData, Model
    from graphopt.manager import PassManager, Result


def optimize(
    files: Annotated[
        list[str],
        Argument(
            metavar="IN... OUT",
            help="The model and the file to write; `-`: standard input, output. Several: a folder OUT.",
        ),
    ],
    *,
    level: Annotated[str, Option(help="basic, extended, layout or all.")] = "basic",
    passes: Annotated[str | None, Option(help="A pipeline, or pass names, in place of the level's.")] = None,
    skip: Annotated[list[str] | None, Option(help="A pass to leave out; may be repeated.")] = None,
    numerics: Annotated[str, Option(help="exact, rounding or fast.")] = "rounding",
    machine: Annotated[str | None, Option("--target", help="The machine for layout passes; default: host.")] = None,
    verify: Annotated[bool, Option("--verify", help="Compare with the original; write nothing that differs.")] = False,
    strict: Annotated[bool, Option("--strict", help="End when a pass fails, instead of undoing it.")] = False,
    shape: Annotated[list[str] | None, Option(help="Fix an input's shape, like input=1,3,224,224.")] = None,
    dim: Annotated[list[str] | None, Option(help="Fix a symbolic dimension, like batch=1.")] = None,
    opset: Annotated[int | None, Option(help="Bring the model to this opset first.")] = None,
    inline_functions: Annotated[
        bool, Option("--inline-functions", help="Replace calls of model-local functions by their bodies.")
    ] = False,
    external_data: Annotated[
        str | None, Option(help="Put weights into this file beside OUT (`auto` names it OUT.data).")
    ] = None,
    external_threshold: Annotated[
        int | None, Option(help="With --external-data: only tensors of at least this many bytes; default 16384.")
    ] = None,
    external_alignment: Annotated[
        int | None, Option(help="With --external-data: start tensors at multiples of this; default 64.")
    ] = None,
    events: Annotated[bool, Option("--events", help="List every rewrite.")] = False,
    as_json: Annotated[bool, Option("--json", help="Report as JSON on standard output.")] = False,
) -> None:
    """Optimize a model from file to file. OUT is written at the end, at once, or not at all."""
    from graphopt.manager import PassManager

    pairs = _pairs(files)
    check_output(files[-1], as_json=as_json, external_data=external_data)
    manager = PassManager(
        level, passes=passes, skip=skip or [], numerics=numerics, target=machine, strict=strict,
        shapes=parse_shapes(shape or []), dims=parse_dims(dim or []), inline_functions=inline_functions, opset=opset,
    )  # fmt: skip
    outside = external(external_data, external_threshold, external_alignment)
    reports, failed = [], False
    for source, target in pairs:
        result = _optimize(manager, source, target, outside, verify=verify)
        report = result.verification
        if as_json:
            reports.append(result.to_dict())
        else:
            _report(result, source if len(pairs) > 1 else None, events=events, stderr=target == "-")
        if report is not None and not report.ok:
            failed = True
            why = "the result differs" if report.status == "mismatch" else "nothing can be said of the result"
            sys.stderr.write(f"graphopt: {target} is not written: {why}\n")
    if as_json:
        show_json(reports if len(reports) > 1 else reports[0])
    if failed:
        raise Exit(1)


def _pairs(files: list[str]) -> list[tuple[str, str]]:
    """What is read, and where what becomes of it goes."""
    *sources, target = files
    if len(sources) == 1:
        return [(sources[0], target)]
    if not sources:
        raise UsageError("expected IN and OUT, found one file; see graphopt optimize --help")
    if not Path(target).is_dir():
        raise UsageError(f"several models need a folder OUT, and {target} is none")
    names = [Path(source).name for source in sources]
    twice = [name for name in names if names.count(name) > 1]
    if twice or "-" in sources:
        raise UsageError(f"{twice[0] if twice else '-'}: several models need a name of their own each")
    return [(source, str(Path(target, name))) for source, name in zip(sources, names, strict=True)]


def _optimize(manager: PassManager, source: str, target: str, outside: ExternalData | None, *, verify: bool) -> Result:
    given = read_source(source)
    with progress(f"optimizing {source}") as told:
        result = manager.run(given)
        if verify:
            told("verifying", 0.5)
            result.verification = manager.verification(given, result)
        if result.verification is None or result.verification.ok:
            told("writing", 0.9)
            write(result.view, target, outside)
    return result


def check_output(target: str, *, as_json: bool, external_data: str | None) -> None:
    """Refuse an output that cannot be written before anything is done.

    Raises:
        UsageError: standard output is a terminal, or is wanted for something else.
    """
    if target == "-" and as_json:
        raise UsageError("--json and OUT `-` both want standard output")
    if target == "-" and sys.stdout.isatty():
        raise UsageError("`-` writes a model to standard output, which is a terminal")
    if target == "-" and external_data is not None:
        raise UsageError("--external-data needs a file OUT")


def external(location: str | None, threshold: int | None, alignment: int | None) -> ExternalData | None:
    """How weights are laid out outside of the file, from the options; None where they stay as they are.

    Raises:
        UsageError: the options do not go together.
    """
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


def write(view: Model, target: str, outside: ExternalData | None) -> None:
    """Write a model to a file, or for `-` to standard output.

    Raises:
        ModelError: it cannot be written there.
    """
    if target == "-":
        sys.stdout.buffer.write(_serialized(view))
        sys.stdout.buffer.flush()
    else:
        view.save(Path(target), outside)


def _serialized(view: Model) -> bytes:
    from google.protobuf.message import EncodeError

    try:
        return view.flush().SerializeToString()
    except (EncodeError, ValueError):
        raise ModelError(
            "the result is above 2 GiB, more than standard output can carry: expected a file OUT"
        ) from None


def _report(result: Result, name: str | None, *, events: bool, stderr: bool) -> None:
    if not quiet():
        from graphopt.audit.running import render_run

        title = [] if name is None else [name]
        show(*title, *render_run(result, result.verification, events=events), stderr=stderr)
