"""The three forms of a pass and the record that they share."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from graphopt.errors import PassError
from graphopt.ir import Graph, Model, Node, Value
from graphopt.match import CompiledPattern, Match, Mismatch, compile_pattern

if TYPE_CHECKING:
    from graphopt.rewrite.rewriter import Rewriter

FAMILIES = ("elimination", "folding", "fusion", "layout", "algorithm")


class Numerics(IntEnum):
    """How far the results of a rewritten model may be from the original's."""

    EXACT = 0
    """Bit-equal."""
    ROUNDING = 1
    """Reassociation: equal but for the last bits; NaN and infinities as before."""
    FAST = 2
    """Approximations."""

    def __str__(self) -> str:
        return self.name.lower()


class Level(IntEnum):
    """What a model may use after optimization."""

    BASIC = 0
    """Standard ONNX operators at the model's own opset: runs anywhere."""
    EXTENDED = 1
    """Adds `com.microsoft` and newer fused operators that ONNX Runtime's CPU provider has."""
    LAYOUT = 2
    """Adds the blocked NCHWc layout for one target."""
    ALL = 3
    """Everything."""

    def __str__(self) -> str:
        return self.name.lower()


class Fired:
    """The outcome of a rewrite that took place; truthy, unlike `Mismatch` and None."""

    def __repr__(self) -> str:
        return "FIRED"


FIRED = Fired()
Outcome = Fired | Mismatch | None
"""`FIRED`; a `Mismatch` with the reason of a near miss; None when the rule has nothing to say."""


class Rule:
    """What every pass states about itself.

    Attributes:
        name: the pass name, in onnxoptimizer's manner (`eliminate_…`, `fuse_A_into_B`, `fold_…`, `convert_…`).
        family: one of `FAMILIES`; taken from the module's folder unless given.
        level: the lowest level that includes it.
        numerics: how exact it is.
        opsets: standard opsets it knows, like `13-` or `7-12`; all when empty.
        default: whether the levels include it; otherwise it runs only when named.
        peers: which pass of which other optimizer does the same, by the optimizer's name.
    """

    name: ClassVar[str]
    family: ClassVar[str] = ""
    level: ClassVar[Level] = Level.BASIC
    numerics: ClassVar[Numerics] = Numerics.EXACT
    opsets: ClassVar[str] = ""
    default: ClassVar[bool] = True
    peers: ClassVar[dict[str, str]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "family" not in cls.__dict__:
            folders = [part for part in cls.__module__.split(".") if part in FAMILIES]
            cls.family = folders[-1] if folders else "custom"

    @classmethod
    def summary(cls) -> str:
        """The first line of the documentation."""
        return inspect.getdoc(cls).splitlines()[0] if inspect.getdoc(cls) else ""  # type: ignore[union-attr]

    @classmethod
    def knows_opset(cls, opset: int) -> bool:
        """Whether the rule is written for a standard opset."""
        low, high = _opset_range(cls.opsets)
        return low <= opset <= high


@lru_cache
def _opset_range(text: str) -> tuple[int, int]:
    low, dash, high = text.partition("-")
    try:
        first = int(low) if low else 1
        last = int(high) if high else (10**6 if dash or not low else first)
    except ValueError:
        raise PassError(f"opsets {text!r}: expected something like '13-', '7-12' or '9'") from None
    return first, last


class OpRule(Rule):
    """A pass that looks at one node of certain operators at a time.

    Attributes:
        ops: dispatch keys: `Conv`, `com.microsoft::FusedConv`.
    """

    ops: ClassVar[tuple[str, ...]] = ()

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Rewrite `node` through `rw` and return what that returned, or decline.

        Args:
            node: a node whose `op` is one of `ops`.
            rw: the gate through which the graph is changed.

        Returns:
            The outcome of `rw.replace`, a `Mismatch` that says why not, or None when this is not its business.
        """
        raise NotImplementedError


class PatternRule(Rule):
    """A pass that is a pattern, conditions that a pattern cannot say, and a replacement."""

    _compiled: CompiledPattern | None = None

    def pattern(self, op: Any, *variables: Any) -> Any:
        """The pattern, traced once: calls on `op` read as ONNX; parameters are variables."""
        raise NotImplementedError

    def rewrite(self, m: Match, rw: Rewriter) -> Value | Sequence[Value | None] | Fired:
        """Build what takes the place of the last operator's output, or of each of its outputs.

        Args:
            m: what the pattern bound, by name.
            rw: the gate through which operators are made.

        Returns:
            The replacement; `FIRED` where the rule changed the graph through the gate by itself.

        Raises:
            Decline: something that the pattern cannot say does not hold. Where the pattern fits in another way too (the
                operands of an `Add` the other way round, an alternative), that is tried then.
        """
        raise NotImplementedError

    @property
    def compiled(self) -> CompiledPattern:
        """The compiled pattern, made at first use."""
        cls = type(self)
        if "_compiled" not in cls.__dict__ or cls._compiled is None:
            cls._compiled = compile_pattern(self.pattern, name=cls.name)
        return cls._compiled

    @property
    def ops(self) -> tuple[str, ...]:
        """Dispatch keys of the root."""
        return self.compiled.roots


class GraphPass(Rule):
    """A pass that needs the whole graph.

    Attributes:
        late: whether it waits, in a `repeat`, for a round in which the passes before it change nothing.
    """

    late: ClassVar[bool] = False

    def run(self, graph: Graph, rw: Rewriter) -> None:
        """Rewrite one graph; called for every graph of the model, inner ones first."""
        raise NotImplementedError

    def run_model(self, model: Model, rw: Rewriter) -> None:
        """Rewrite a model; by default each of its graphs."""
        for graph in self.entered(model, rw):
            self.run(graph, rw)

    def entered(self, model: Model, rw: Rewriter) -> Iterator[Graph]:
        """The graphs of a model, inner ones first, without those that go away meanwhile; the gate builds into each."""
        for graph in reversed(list(model.graphs())):
            if graph.owner is None or not graph.owner.removed:
                rw.enter(graph, self.name)
                yield graph
