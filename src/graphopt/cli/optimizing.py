"""`graphopt optimize`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from graphopt.cli.arguments import Exit, Option
from graphopt.cli.console import check_place, progress, quiet, read_source, show_json, show_lines
from graphopt.cli.options import Data, Files, Json, Opaque, Outside, Passes, Patience, Seed, Sizes, Verify, feed
from graphopt.errors import ModelError, UsageError
from graphopt.printable import printable
from graphopt.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphopt.ir import ExternalData, Model
    from graphopt.manager import PassManager
    from graphopt.results import Result
    from graphopt.verify import Report


_UNUSABLE = 3
"""The exit code for an unusable model."""


def optimize(
    files: Files,
    *,
    chosen: Passes,
    sizes: Sizes,
    opaque_weights: Opaque = None,
    inline_functions: Annotated[
        bool,
        Option(
            "--inline-functions",
            help="Inline model-local functions, as the levels above basic always do.",
        ),
    ] = False,
    strict: Annotated[bool, Option("--strict", help="Stop when a pass fails, instead of undoing it.")] = False,
    verify: Verify = False,
    data: Data = None,
    seed: Seed = 0,
    timeout: Patience = None,
    outside: Outside,
    events: Annotated[bool, Option("--events", help="List every rewrite.")] = False,
    as_json: Json = False,
) -> None:
    """Optimize a model from file to file. OUT is written atomically at the end, or not at all."""
    pairs = pairs_of(files, "optimize")
    check_output(pairs, outside, data, as_json=as_json)
    layout = outside.layout()
    manager = chosen.manager(sizes, strict=strict, inline_functions=inline_functions, opaque_weights=opaque_weights)
    own, batch = feed(data), Batch(len(pairs) > 1)

    def judge(given: str | bytes, result: Result) -> Report:
        return manager.verification(given, result, seed=seed, inputs=own, timeout=timeout)

    for source, target in pairs:
        with batch.going_on(source):
            result = _optimize(manager, source, target, layout, judge if verify else None)
            batch.add(source, result.to_dict() if as_json else {})
            if not as_json:
                _report(result, source if batch.several else None, events=events, stderr=target == "-")
            if result.verification is not None and not result.verification.ok:
                batch.code = batch.code or 1
                say_unwritten(target, result.verification)
    batch.end(as_json=as_json)


@dataclass
class Batch:
    """The results for one model or for several in sequence.

    Attributes:
        several: whether there are several; then an error of one does not prevent the others.
        reports: one per model, for JSON.
        code: the exit code: 3 if a model was unusable, 1 if a result differs.
    """

    several: bool
    reports: list[dict[str, Any]] = field(default_factory=list)
    code: int = 0

    @contextmanager
    def going_on(self, source: str) -> Iterator[None]:
        """Report the error of one of several models, and continue."""
        try:
            yield
        except ModelError as error:
            if not self.several:
                raise
            said = " ".join(str(error).split())
            said = said if source in said else f"{source}: {said}"
            sys.stderr.write(f"graphopt: error: {printable(said)}\n")
            self.add(source, {"error": said})
            self.code = _UNUSABLE

    def add(self, source: str, report: dict[str, Any]) -> None:
        """Add the report of a model, with its name."""
        self.reports.append({"model": source, **report})

    def end(self, *, as_json: bool) -> None:
        """Print the reports if requested, and end with the exit code."""
        if as_json:
            show_json(self.reports if self.several else self.reports[0])
        if self.code:
            raise Exit(self.code)


def pairs_of(files: list[str], command: str) -> list[tuple[str, str]]:
    """The source and target of each model.

    Args:
        files: the sources, then the target: a file for one source, a folder for several.
        command: the name of the command.

    Raises:
        UsageError: there is only one file, or no folder, or two sources have the same target.
    """
    *sources, target = files
    if len(sources) == 1:
        return [(sources[0], target)]
    if not sources:
        raise UsageError(f"expected IN and OUT, found one file; see graphopt {command} --help")
    if not Path(target).is_dir():
        found = "a file" if Path(target).exists() else "nothing"
        raise UsageError(f"several models need a folder OUT, found {found} at {target}")
    names = [Path(source).name for source in sources]
    twice = [name for name in names if names.count(name) > 1]
    if twice or "-" in sources:
        raise UsageError(f"{twice[0] if twice else '-'}: several models need different names")
    return [(source, str(Path(target, name))) for source, name in zip(sources, names, strict=True)]


def _optimize(
    manager: PassManager, source: str, target: str, layout: ExternalData | None,
    judge: Callable[[str | bytes, Result], Report] | None,
) -> Result:  # fmt: skip
    given = read_source(source)
    with progress(f"optimizing {source}") as told:
        result = manager.run(given)
        if judge is not None:
            told("verifying", 0.5)
            result.verification = judge(given, result)
        if result.verification is None or result.verification.ok:
            told("writing", 0.9)
            write(result.view, target, layout)
    return result


def check_output(pairs: list[tuple[str, str]], outside: Outside, data: str | None, *, as_json: bool) -> None:
    """Reject an output that cannot be written, before any work.

    Raises:
        ModelError: the file cannot be created.
        UsageError: standard output is a terminal, or is needed for another output; one file is given for the weights of
            several models; or the inputs for the comparison would be replaced.
    """
    for _, target in pairs:
        if target != "-":
            check_place(target, data)
    if target == "-" and as_json:
        raise UsageError("--json and OUT `-` both write to standard output")
    if target == "-" and sys.stdout.isatty():
        raise UsageError("`-` writes a model to standard output, which is a terminal")
    if target == "-" and outside.external_data is not None:
        raise UsageError("--external-data needs a file OUT")
    if len(pairs) > 1 and outside.external_data not in (None, "auto"):
        raise UsageError(f"--external-data {outside.external_data}: several models need a file each; `auto` names them")


def say_unwritten(target: str, report: Report) -> None:
    """Say on standard error why a result was not written."""
    why = "the result differs" if report.status == "mismatch" else "the result cannot be compared"
    sys.stderr.write(f"graphopt: {target} is not written: {why}\n")


def write(view: Model, target: str, layout: ExternalData | None) -> None:
    """Write a model to a file, or to standard output for `-`.

    Raises:
        ModelError: it cannot be written.
    """
    if target == "-":
        sys.stdout.buffer.write(_serialized(view))
        sys.stdout.buffer.flush()
    else:
        view.save(Path(target), layout)


def _serialized(view: Model) -> bytes:
    from google.protobuf.message import EncodeError

    try:
        return view.flush().SerializeToString()
    except (EncodeError, ValueError):
        raise ModelError("the result is above 2 GiB, more than standard output takes: expected a file OUT") from None


def _report(result: Result, name: str | None, *, events: bool, stderr: bool) -> None:
    if not quiet():
        from graphopt.audit.running import run_lines

        title = [] if name is None else [(printable(name), "")]
        show_lines([*title, *run_lines(result, result.verification, events=events)], stderr=stderr)
