"""The three forms of a pass, and the record that they share."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

from graphopt.errors import PassError, UsageError
from graphopt.ir import Graph, Model, Node, Value
from graphopt.match import CompiledPattern, Match, OpBuilder, compile_pattern
from graphopt.match.makers import CONSTANTS, Ways
from graphopt.naming import pass_name

if TYPE_CHECKING:
    from graphopt.rewrite.rewriter import Rewriter

FAMILIES = ("elimination", "folding", "fusion", "layout", "algorithm")
CUSTOM = "custom"
"""The family of a pass that states none; in pipelines, all families except `FAMILIES`."""


class _Choice(IntEnum):
    """An enumeration whose members may be given by name, in lower or upper case."""

    def __str__(self) -> str:
        return self.name.lower()

    @classmethod
    def of(cls, value: str | int) -> Self:
        """The member with a name or number.

        Raises:
            UsageError: there is none.
        """
        return cls(value)  # type: ignore[arg-type]  # `_missing_` accepts names

    @classmethod
    def _missing_(cls, value: object) -> _Choice:
        found = cls.__members__.get(str(value).upper())
        if found is None:
            what, names = cls.__name__.lower(), ", ".join(map(str, cls))
            raise UsageError(f"unknown {what} {value!r}; expected one of {names}")
        return found


class Numerics(_Choice):
    """How much the results of a rewritten model may differ from the original's."""

    EXACT = 0
    """Bit-equal."""
    ROUNDING = 1
    """Reassociation: equal except for the last bits; NaN and infinities as before."""
    FAST = 2
    """Approximations."""


class Level(_Choice):
    """The operators that a model may use after optimization."""

    BASIC = 0
    """Standard ONNX operators at the model's own opset: runs anywhere."""
    EXTENDED = 1
    """Adds `com.microsoft` operators and newer fused operators of ONNX Runtime's CPU provider."""
    LAYOUT = 2
    """Adds the blocked NCHWc layout for one target."""
    ALL = 3
    """Everything."""


class Fired:
    """The outcome of a rewrite that took place; truthy, unlike None."""

    def __repr__(self) -> str:
        return "FIRED"


FIRED = Fired()
Outcome = Fired | None
"""`FIRED`, or None if the rule does not apply. A near miss is raised as `Decline`."""


class Rule(ABC):
    """The metadata that every pass declares.

    One instance serves all runs with the same settings, possibly in several threads: it must not keep state of a model.

    Attributes:
        name: the pass name in onnxoptimizer's manner (`eliminate_…`, `fuse_A_into_B`, `fold_…`, `convert_…`); by
            default that of the class in snake case: `FuseAIntoB` is `fuse_a_into_b`.
        family: one of `FAMILIES`: the folder of its module or, if that is none of them, any name that is given.
        level: the lowest level that includes it.
        numerics: how exact it is.
        finite: whether `numerics` holds for finite numbers only: NaN and infinities may differ, for example if a zero
            weight is no longer multiplied with an infinity, or a product no longer overflows in between.
        opsets: supported standard opsets, like `13-` or `7-12`; all if empty.
        default: whether the levels include it; otherwise it runs only if named.
        needs: groups of operators besides those that it is tried at: unless the model has one of each, it cannot apply.
            `FUNCTIONS` among them stands for functions of the model.
        peers: equivalent passes of other optimizers, one or several, by the optimizer's name; onnxsim includes
            those of onnxoptimizer, which need not be named twice.
    """

    name: ClassVar[str]
    family: ClassVar[str] = ""
    level: ClassVar[Level] = Level.BASIC
    numerics: ClassVar[Numerics] = Numerics.EXACT
    finite: ClassVar[bool] = False
    opsets: ClassVar[str] = ""
    default: ClassVar[bool] = True
    needs: ClassVar[tuple[tuple[str, ...], ...]] = ()
    peers: ClassVar[Mapping[str, str | tuple[str, ...]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = pass_name(cls.__name__)
        folder = next((part for part in reversed(cls.__module__.split(".")) if part in FAMILIES), None)
        if folder is not None or "family" not in cls.__dict__:
            cls.family = folder or CUSTOM

    @classmethod
    def summary(cls) -> str:
        """The first line of the documentation."""
        return (inspect.getdoc(cls) or "").partition("\n")[0]

    @classmethod
    def equivalents(cls) -> Iterator[tuple[str, str]]:
        """Each optimizer in `peers` with each of its passes."""
        for peer, theirs in cls.peers.items():
            yield from ((peer, each) for each in ((theirs,) if isinstance(theirs, str) else theirs))

    @classmethod
    def knows_opset(cls, opset: int) -> bool:
        """Whether the rule supports a standard opset."""
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
    """A pass that rewrites one node of certain operators at a time.

    Attributes:
        ops: dispatch keys: `Conv`, `com.microsoft::FusedConv`.
        sources: operators one of which must produce an input of the node; empty for any. The rule is not tried at other
            nodes.
        constant: whether the node must have a constant input. Unless reasons are collected, the rule is not tried at
            other nodes.
    """

    ops: ClassVar[tuple[str, ...]] = ()
    sources: ClassVar[tuple[str, ...]] = ()
    constant: ClassVar[bool] = False

    @abstractmethod
    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Rewrite `node` through `rw` and return the outcome, or decline.

        Args:
            node: a node whose `op` is one of `ops`.
            rw: the gate through which the graph is changed.

        Returns:
            The result of `rw.replace`, or None if the rule does not apply.

        Raises:
            Decline: a condition does not hold; see `graphopt.errors.Decline`.
        """


class PatternRule(Rule):
    """A pass that consists of a pattern, conditions that a pattern cannot express, and a replacement."""

    _compiled: CompiledPattern | None = None

    @abstractmethod
    def pattern(self, op: OpBuilder, *variables: Any) -> Any:
        """The pattern, traced once: calls on `op` read as ONNX; parameters are variables."""

    @abstractmethod
    def rewrite(self, m: Match, rw: Rewriter) -> Value | Sequence[Value | None] | Fired:
        """Build the replacement of the root's output, or of each of its outputs.

        Args:
            m: the values and nodes that the pattern bound, by name.
            rw: the gate through which operators are built.

        Returns:
            The replacement; `FIRED` if the rule changed the graph through the gate itself.

        Raises:
            Decline: a condition that the pattern cannot express does not hold. Further matches of the pattern (with the
                operands of an `Add` swapped, or another alternative) are tried then.
        """

    @property
    def compiled(self) -> CompiledPattern:
        """The pattern, compiled at first use."""
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
        ops: operators at least one of which a model must have for the pass to apply; empty for any model.
        late: whether it runs, in a `repeat`, only after a round in which the passes before it change nothing.
    """

    ops: ClassVar[tuple[str, ...]] = ()
    late: ClassVar[bool] = False

    def run(self, graph: Graph, rw: Rewriter) -> None:
        """Rewrite one graph; called for every graph of the model, subgraphs first.

        Raises:
            PassError: the pass defines neither this nor `run_model`.
        """
        raise PassError(f"{self.name} says neither what to do with a graph nor with a model")

    def run_model(self, model: Model, rw: Rewriter) -> None:
        """Rewrite a model; by default each of its graphs."""
        for graph in self.entered(model, rw):
            self.run(graph, rw)

    def entered(self, model: Model, rw: Rewriter, *, outer_first: bool = False) -> Iterator[Graph]:
        """The graphs of a model, subgraphs first, except those removed meanwhile; the gate builds into each in turn.

        Args:
            model: the model.
            rw: the gate.
            outer_first: whether to visit enclosing graphs first, so that subgraphs can use their results.
        """
        graphs = list(model.graphs())
        for graph in graphs if outer_first else reversed(graphs):
            if graph.owner is None or not graph.owner.removed:
                rw.enter(graph, self.name)
                yield graph


def is_pattern(rule: Rule) -> bool:
    """Whether a rule is a `PatternRule`; unlike this, `isinstance` first checks every subclass of an abstract class."""
    return PatternRule in type(rule).__mro__


def ways_of(rule: Any, *, silent: bool) -> list[tuple[str, Ways]]:
    """The operators at which a rule is tried, each with the operators that must produce the inputs there."""
    if is_pattern(rule):
        return [(op, rule.compiled.ways(op, silent=silent)) for op in rule.ops]
    groups = [frozenset(rule.sources)] if rule.sources else []
    if silent and rule.constant:
        groups.append(CONSTANTS)
    ways = (tuple(groups),) if groups else ()
    return [(op, ways) for op in dict.fromkeys(rule.ops)]
