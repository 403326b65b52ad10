"""The results of a pass audit."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from graphopt.showing import Shown

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

SCHEMA = 1

Verdict = Literal["same", "stronger", "weaker", "peer wrong", "ours wrong", "idle"]
"""`same`: neither finds what the other left; `stronger`, `weaker`: graphopt against the peer; `idle`: none fires."""

ORDER: tuple[Verdict, ...] = ("ours wrong", "weaker", "peer wrong", "stronger", "same", "idle")


@dataclass(slots=True)
class Side:
    """The result of one of the two passes on one model.

    Attributes:
        fired: whether it changed anything.
        hits: how often it fired; only known for graphopt.
        nodes: nodes afterwards.
        live: nodes afterwards that run in every inference.
        seconds: time of the pass; for a peer including reading and writing.
        status: `ok`, or how it failed.
        numbers: the oracle's status of its result; "" if it did not fire.
        message: the error.
        left: whether the other pass still finds something after this one.
    """

    fired: bool = False
    hits: int = 0
    nodes: int = 0
    live: int = 0
    seconds: float | None = None
    status: str = "ok"
    numbers: str = ""
    message: str = ""
    left: bool = False

    @property
    def wrong(self) -> bool:
        """Whether its result computes something else, or it gave none."""
        return self.status not in ("ok", "missing", "timeout") or self.numbers == "mismatch"


@dataclass(slots=True)
class PassRow:
    """A pass of a peer and its counterpart in graphopt, on one model.

    Attributes:
        model: the model.
        peer: the peer.
        peer_pass: its pass.
        own_pass: graphopt's passes with that purpose, as a pipeline; "" if there are none: then its level is compared.
        before: live nodes before both.
        ours: graphopt's side.
        theirs: the peer's side.
        isomorphic: whether both results are equal up to names; None if one of them did not fire.
        verdict: the conclusion.
        reason: its reason, unless it is obvious: near misses, or the error.
    """

    model: str
    peer: str
    peer_pass: str
    own_pass: str
    before: int
    ours: Side
    theirs: Side
    isomorphic: bool | None = None
    verdict: Verdict = "idle"
    reason: str = ""


@dataclass(slots=True)
class PassAudit(Shown):
    """Pass by pass, on one model or many.

    Attributes:
        models: the models.
        rows: one for each pass and model.
        skipped: passes of peers that were left out, with the reason.
        failures: models that could not be audited, with the reason.
        seconds: time of the audit.
    """

    models: list[str]
    rows: list[PassRow] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def verdicts(self) -> Counter[Verdict]:
        """How often each verdict was given."""
        return Counter(row.verdict for row in self.rows)

    @property
    def ok(self) -> bool:
        """Whether no pass of graphopt's was wrong."""
        return not any(row.verdict == "ours wrong" for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {"schema": SCHEMA, "verdicts": dict(self.verdicts()), **asdict(self)}

    def to_markdown(self) -> str:
        """As a Markdown table."""
        from graphopt.audit.passes.view import passes_to_markdown

        return passes_to_markdown(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from graphopt.audit.passes.view import render_passes

        yield from render_passes(self, options.max_width)
