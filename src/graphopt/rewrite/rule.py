"""The three forms of a pass and the record that they share."""

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
"""The family of a pass that names none; in pipelines, all families but `FAMILIES`."""


class _Choice(IntEnum):
    """Something chosen by name: a member, or its name in small or large letters, stands for it."""

    def __str__(self) -> str:
        return self.name.lower()

    @classmethod
    def of(cls, value: str | int) -> Self:
        """The member that a name or a member stands for.

        Raises:
            UsageError: there is none.
        """
        return cls(value)  # type: ignore[arg-type]  # `_missing_` takes names

    @classmethod
    def _missing_(cls, value: object) -> _Choice:
        found = cls.__members__.get(str(value).upper())
        if found is None:
            what, names = cls.__name__.lower(), ", ".join(map(str, cls))
            raise UsageError(f"unknown {what} {value!r}; expected one of {names}")
        return found


class Numerics(_Choice):
    """How far the results of a rewritten model may be from the original's."""

    EXACT = 0
    """Bit-equal."""
    ROUNDING = 1
    """Reassociation: equal but for the last bits; NaN and infinities as before."""
    FAST = 2
    """Approximations."""


class Level(_Choice):
    """What a model may use after optimization."""

    BASIC = 0
    """Standard ONNX operators at the model's own opset: runs anywhere."""
    EXTENDED = 1
    """Adds `com.microsoft` and newer fused operators that ONNX Runtime's CPU provider has."""
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
"""`FIRED`; None when the rule has nothing to say. A near miss is raised, as `Decline`."""


class Rule(ABC):
    """What every pass states about itself.

    It is made once for all runs with the same settings, which may be under way in several threads: what it learns of a
    model does not stay in it.

    Attributes:
        name: the pass name, in onnxoptimizer's manner (`eliminate_…`, `fuse_A_into_B`, `fold_…`, `convert_…`); that of
            the class in small letters, `FuseAIntoB` being `fuse_a_into_b`, unless it is stated.
        family: one of `FAMILIES`: the folder that its module is in, or what is given (any name) where that is none's.
        level: the lowest level that includes it.
        numerics: how exact it is.
        finite: whether it is so for finite numbers only: NaN and infinities may be elsewhere after it, as what met an
            infinity may have been a weight of zero, and a product may be a number where a part of it overflowed.
        opsets: standard opsets it knows, like `13-` or `7-12`; all when empty.
        default: whether the levels include it; otherwise it runs only when named.
        needs: groups of operators besides those it is asked at: without one of each in the model it finds nothing.
            `FUNCTIONS` among them stands for functions of the model.
        peers: other optimizers' passes that do the same, one or several, by the optimizer's name; onnxsim has all that
            onnxoptimizer has, which need not be named twice.
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
        """Each optimizer and pass of it that `peers` names."""
        for peer, theirs in cls.peers.items():
            yield from ((peer, each) for each in ((theirs,) if isinstance(theirs, str) else theirs))

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
        sources: operators of which one computes an input of each node that it rewrites; none where that may be
            anything. It is not asked at other nodes.
        constant: whether each node that it rewrites has a constant among its inputs. Where nobody asks for reasons, it
            is not asked at other nodes.
    """

    ops: ClassVar[tuple[str, ...]] = ()
    sources: ClassVar[tuple[str, ...]] = ()
    constant: ClassVar[bool] = False

    @abstractmethod
    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Rewrite `node` through `rw` and return what that returned, or decline.

        Args:
            node: a node whose `op` is one of `ops`.
            rw: the gate through which the graph is changed.

        Returns:
            What `rw.replace` returned, or None when this is not its business.

        Raises:
            Decline: something does not fit; see `graphopt.errors.Decline`.
        """


class PatternRule(Rule):
    """A pass that is a pattern, conditions that a pattern cannot say, and a replacement."""

    _compiled: CompiledPattern | None = None

    @abstractmethod
    def pattern(self, op: OpBuilder, *variables: Any) -> Any:
        """The pattern, traced once: calls on `op` read as ONNX; parameters are variables."""

    @abstractmethod
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
        ops: operators without one of which it finds nothing to do in a model; empty when it may do so in any.
        late: whether it waits, in a `repeat`, for a round in which the passes before it change nothing.
    """

    ops: ClassVar[tuple[str, ...]] = ()
    late: ClassVar[bool] = False

    def run(self, graph: Graph, rw: Rewriter) -> None:
        """Rewrite one graph; called for every graph of the model, inner ones first.

        Raises:
            PassError: the pass has neither this nor `run_model`.
        """
        raise PassError(f"{self.name} says neither what to do with a graph nor with a model")

    def run_model(self, model: Model, rw: Rewriter) -> None:
        """Rewrite a model; by default each of its graphs."""
        for graph in self.entered(model, rw):
            self.run(graph, rw)

    def entered(self, model: Model, rw: Rewriter, *, outer_first: bool = False) -> Iterator[Graph]:
        """The graphs of a model, inner ones first, without those that go away meanwhile; the gate builds into each.

        Args:
            model: the model.
            rw: the gate.
            outer_first: whether what is found in a graph is to be had in those inside of it.
        """
        graphs = list(model.graphs())
        for graph in graphs if outer_first else reversed(graphs):
            if graph.owner is None or not graph.owner.removed:
                rw.enter(graph, self.name)
                yield graph


def is_pattern(rule: Rule) -> bool:
    """Whether a rule is a pattern: `isinstance` asks every subclass of an abstract class, the first time."""
    return PatternRule in type(rule).__mro__


def ways_of(rule: Any, *, silent: bool) -> list[tuple[str, Ways]]:
    """The operators that a rule is asked at, each with what must compute the inputs there."""
    if is_pattern(rule):
        return [(op, rule.compiled.ways(op, silent=silent)) for op in rule.ops]
    groups = [frozenset(rule.sources)] if rule.sources else []
    if silent and rule.constant:
        groups.append(CONSTANTS)
    ways = (tuple(groups),) if groups else ()
    return [(op, ways) for op in dict.fromkeys(rule.ops)]
