"""Options shared by several commands, each declared once, with the same name, meaning and help everywhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from graphopt.cli.arguments import Argument, Exit, Option, OptionGroup
from graphopt.cli.console import show, show_json
from graphopt.cli.sizes import parse_dims, parse_shapes, parse_threads
from graphopt.errors import UsageError
from graphopt.records import dataclass

if TYPE_CHECKING:
    from graphopt.ir import ExternalData
    from graphopt.manager import PassManager
    from graphopt.verify import Feed

Models = Annotated[list[str], Argument(metavar="MODEL...", help="Models, or folders of models.")]
Files = Annotated[
    list[str],
    Argument(
        metavar="IN... OUT",
        help="The model and the file to write; `-`: standard input, output. Several: a folder OUT.",
    ),
]
Model = Annotated[str, Argument(metavar="MODEL", help="The model; `-` reads standard input.")]
Json = Annotated[bool, Option("--json", help="Report as JSON on standard output.")]
Markdown = Annotated[bool, Option("--markdown", help="Report as Markdown on standard output.")]
Html = Annotated[str | None, Option("--html", help="Also write a self-contained HTML report to this file.")]
Numerics = Annotated[str, Option("--numerics", help="exact, rounding or fast: for passes and for comparisons.")]
Target = Annotated[str | None, Option("--target", help="The machine for layout passes; default: host.")]
Opset = Annotated[int | None, Option("--opset", help="Convert the model to this opset first.")]
Timeout = Annotated[float, Option("--timeout", help="Time limit in seconds of one optimizer or comparison.", min=0)]
Patience = Annotated[
    float | None, Option("--timeout", help="Time limit in seconds of one comparison.", min=0, needs="verify")
]
Budget = Annotated[float, Option("--budget", help="Seconds of timing for each model and thread count.", min=0)]
Seed = Annotated[int, Option("--seed", help="Seed of generated inputs.", min=0, needs="verify")]
Data = Annotated[str | None, Option("--data", help="An .npz file with your own inputs, by name.", needs="verify")]
Verify = Annotated[bool, Option("--verify", help="Compare with the original; write no result that differs.")]
NoVerify = Annotated[bool, Option("--no-verify", help="Do not compare results.")]
Threads = Annotated[str, Option("--threads", help="Thread counts, like 1,2.")]
Against = Annotated[
    list[str] | None,
    Option("--against", help="A peer to compare with; may be repeated; `none` for none."),
]
Opaque = Annotated[
    str | None,
    Option("--opaque-weights", help="Do not read weights in files: `missing` only missing files, `all` any file."),
]


@dataclass(frozen=True, kw_only=True)
class Sizes(OptionGroup):
    """Sizes of inputs and of symbolic dimensions, for written models and for generated inputs."""

    shape: Annotated[list[str] | None, Option(help="Shape of an input, like input=1,3,224,224; may be repeated.")] = (
        None
    )
    dim: Annotated[list[str] | None, Option(help="Size of a symbolic dimension, like batch=1; may be repeated.")] = None

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of inputs, by name."""
        return parse_shapes(self.shape or [])

    @property
    def dims(self) -> dict[str, int]:
        """Sizes of symbolic dimensions, by name."""
        return parse_dims(self.dim or [])


@dataclass(frozen=True, kw_only=True)
class TimingOptions(OptionGroup):
    """Thread counts, rounds and duration of measurements."""

    threads: Threads = "1"
    rounds: Annotated[int | None, Option(help="Rounds of timing. Default: as the budget allows.", min=1)] = None
    budget: Budget = 10.0

    @property
    def thread_counts(self) -> tuple[int, ...]:
        """The thread counts."""
        return parse_threads(self.threads)


@dataclass(frozen=True, kw_only=True)
class Passes(OptionGroup):
    """The choice of passes."""

    level: Annotated[str, Option(help="basic, extended, layout or all.")] = "basic"
    passes: Annotated[str | None, Option(help="A pipeline, or pass names, in place of the level's.")] = None
    skip: Annotated[list[str] | None, Option(help="A pass to leave out; may be repeated.", commas=True)] = None
    numerics: Numerics = "rounding"
    machine: Target = None
    opset: Opset = None
    constant_initializers: Annotated[
        bool, Option("--constant-initializers", help="Initializers that are also inputs become constants.")
    ] = False

    def manager(self, sizes: Sizes | None = None, **more: Any) -> PassManager:
        """The pass manager.

        Args:
            sizes: the sizes that models get; None leaves them unchanged.
            **more: further settings of a `PassManager`.
        """
        from graphopt.manager import PassManager

        return PassManager(
            self.level, passes=self.passes, skip=self.skip or [], numerics=self.numerics, target=self.machine,
            opset=self.opset, shapes=sizes.shapes if sizes else None, dims=sizes.dims if sizes else None,
            constant_initializers=self.constant_initializers, **more,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Outside(OptionGroup):
    """The layout of weights in a separate file."""

    external_data: Annotated[
        str | None, Option(help="Put weights into this file beside OUT (`auto` names it after OUT and the data).")
    ] = None
    external_threshold: Annotated[
        int | None,
        Option(
            help="With --external-data: only tensors of at least this many bytes; default 16384.",
            min=0,
            needs="external_data",
        ),
    ] = None
    external_alignment: Annotated[
        int | None,
        Option(
            help="With --external-data: start tensors at multiples of this; default 64.",
            min=1,
            needs="external_data",
        ),
    ] = None

    def layout(self) -> ExternalData | None:
        """The requested layout; None if weights stay as they are."""
        threshold, alignment = self.external_threshold, self.external_alignment
        if self.external_data is None:
            return None
        from graphopt.ir import ExternalData

        layout = ExternalData(None if self.external_data == "auto" else self.external_data)
        return replace(
            layout,
            threshold=layout.threshold if threshold is None else threshold,
            alignment=layout.alignment if alignment is None else alignment,
        )


class _Report(Protocol):
    def to_dict(self) -> dict[str, Any]: ...

    def to_markdown(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class ReportForm(OptionGroup):
    """The form of a report."""

    as_json: Json = False
    as_markdown: Markdown = False

    def __post_init__(self) -> None:
        if self.as_json and self.as_markdown:
            raise UsageError("--json and --markdown exclude each other")

    def show(self, found: _Report, *, ok: bool = True) -> None:
        """Print a report in the requested form; exit code 1 if it reports a fault."""
        if self.as_json:
            show_json(found.to_dict())
        elif self.as_markdown:
            sys.stdout.write(found.to_markdown())
        else:
            show(found)
        if not ok:
            raise Exit(1)


def feed(path: str | None) -> Feed | None:
    """The arrays of a file, if one is given."""
    if path is None:
        return None
    from graphopt.audit.feeds import load_data

    return load_data(Path(path))


def peers(names: Sequence[str] | None) -> list[str] | None:
    """Peer names as given, also separated by commas; None for all, `none` for none.

    Raises:
        UsageError: `none` is given along with others.
    """
    if names is None:
        return None
    found = [part for name in names for part in name.split(",") if part]
    if "none" in found and len(found) > 1:
        raise UsageError(f"expected `none` or peers, found both: {', '.join(found)}")
    return [] if found == ["none"] else found
