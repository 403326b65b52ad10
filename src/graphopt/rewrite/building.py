"""Building new nodes and constants, which are pending until the gate links them into a graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from graphopt.analysis.shapes import ShapeAnalysis
from graphopt.errors import Decline, PassError, StaleError
from graphopt.ir import Graph, Model, Node, Tensor, Value
from graphopt.ir.forms import MOVED, placed
from graphopt.ir.numpy_types import numpy_type
from graphopt.ir.types import KNOWN_TYPES
from graphopt.rewrite.aliasing import Writers
from graphopt.rewrite.events import LimitReached, Log, LogView, NearMiss, NodeNote
from graphopt.rewrite.journal import Journal
from graphopt.rewrite.legality import reads
from graphopt.rewrite.operands import Operand, agreeing
from graphopt.rewrite.options import Options
from graphopt.rewrite.unlike import choices_of, is_kept_for, kept_nodes
from graphopt.system.machine import Target, host


class Building:
    """Builds for one rule at a time.

    New nodes and constants are *pending* until the gate links them; those that no replacement reads are dropped. So a
    rule that declines, or raises, leaves nothing behind.

    Attributes:
        stale_types: whether inference over the whole model may refine the type of a new value.
        guards: whether shapes stay hidden that a runtime must not learn, see `graphopt.rewrite.unlike`; a conversion
            has its own checks.
    """

    def __init__(self, model: Model, log: Log, options: Options) -> None:
        self._model = model
        self._options = options
        self._graph = model.graph
        self._log = log
        self._shown = LogView(log)
        self._journal = Journal(model)
        self._touched: list[Node] = []
        self._stated: set[NodeNote] = set()
        """Nodes that an event states as replaced before they are removed."""
        self._writers = Writers(model)
        self.guards = False
        self._kept: dict[Node, list[Node]] | None = None
        self._owners: list[Node] = []
        """Nodes with subgraphs that were added since."""
        self._kept_at = 0
        """How often changes had been undone when the kept nodes were found."""
        self.stale_types = False
        self._rule = ""
        self._origin: Node | None = None
        self._pending_nodes: list[Node] = []
        self._pending_constants: dict[Value, str] = {}
        self._shapes: ShapeAnalysis | None = None
        self._shapes_at = (0, 0)
        """The state of the model for which the shapes were analysed."""

    def _check_node(self, node: Node) -> None:
        """Check that a node is there, and may be changed."""
        if node.removed or node.graph.model is not self._model:
            raise StaleError("{} is no longer in the graph", node.op)
        if self.guards and any(map(is_kept_for, self._kept_nodes().get(node, ()))):
            raise Decline("the shapes of branches follow from {}, which before opset 11 must be equal", node.op)

    def _kept_nodes(self) -> Mapping[Node, Sequence[Node]]:
        """The kept nodes, found anew after inference and where a change was undone, and for each new `If`."""
        if self._kept is None or self._kept_at != self._journal.undone:
            owners = (node for graph in (self._model.graph, *self._model.functions) for node in graph.owners)
            self._kept, self._kept_at = kept_nodes(self._model, choices_of(owners)), self._journal.undone
        elif self._owners and (choices := choices_of(self._owners)):
            for node, found in kept_nodes(self._model, choices).items():
                self._kept[node] = [*self._kept.get(node, ()), *found]
        self._owners.clear()
        return self._kept

    @property
    def model(self) -> Model:
        """The model."""
        return self._model

    @property
    def graph(self) -> Graph:
        """The graph that the current node is in."""
        return self._graph

    @property
    def options(self) -> Options:
        """Settings of the run."""
        return self._options

    @property
    def target(self) -> Target:
        """The machine that the run optimizes for: the present one unless the options state another."""
        return self._options.target or host()

    @property
    def log(self) -> LogView:
        """The log of the run, read-only."""
        return self._shown

    def shapes(self) -> ShapeAnalysis:
        """The analysed shapes of the present model, any of whose sizes may be 0.

        The analysis is cached until the model changes; a pass may keep using one while it rewrites.
        """
        state = self._journal.undone, self._journal.state()
        if self._shapes is None or self._shapes_at != state:
            self._shapes, self._shapes_at = ShapeAnalysis(self._model, zero_sizes=True), state
        return self._shapes

    def forget_shapes(self) -> None:
        """Drop the cached shapes, since types were inferred again."""
        self._shapes = self._kept = None

    def begin(self, rule: str, node: Node) -> None:
        """Start an attempt of a rule at a node; pending nodes and constants are dropped."""
        self._origin = node
        self._graph = node.graph
        self.next_rule(rule)

    def next_rule(self, rule: str) -> None:
        """Start an attempt of another rule at the same node."""
        self._rule = rule
        if self._pending_nodes or self._pending_constants:
            self._drop_pending()

    def enter(self, graph: Graph, rule: str | None = None) -> None:
        """Build into `graph` from now on."""
        self._graph = graph
        self._origin = None
        self._stated.clear()
        if rule is not None:
            self._rule = rule
        self._drop_pending()

    @contextmanager
    def attempt(self, node: Node | None) -> Iterator[None]:
        """Context of one rewrite of a graph pass: if it declines, that is logged, and the pass goes on.

        Args:
            node: the node at which the rewrite begins, as with `begin`, and is logged; None if there is none.

        Raises:
            LimitReached: the limit of events is reached, so that the pass ends.
        """
        if self._log.full:
            raise LimitReached
        if node is not None:
            self.begin(self._rule, node)
        try:
            yield
        except Decline as declined:
            self._drop_pending()
            if declined.args and self._log.listen and node is not None:
                self.note(self._rule, node, declined)

    def decline(self, reason: str, *args: object, node: Node | None = None) -> None:
        """Log a near miss and go on; for graph passes."""
        if self._log.listen:
            at = node or self._origin
            if at is None:
                raise PassError("decline needs a node")
            self.note(self._rule, at, Decline(reason, *args))

    def note(self, rule: str, node: Node, declined: Decline) -> None:
        """Log why a rule declined at a node."""
        note = NodeNote.of(node)
        function = node.graph.scope
        key = f"{function}/{node.graph.name}/{note.outputs[0] if note.outputs else note.name}"
        self._log.near_misses[rule, key] = NearMiss(rule, note, str(declined), str(*declined.args[:1]), function)

    def _drop_pending(self) -> None:
        self._pending_nodes = []
        self._pending_constants = {}

    def op(
        self, op_type: str, *inputs: Operand, domain: str = "", name: str | None = None, **attrs: Any
    ) -> Value:  # fmt: skip
        """Build a node, pending, and return its output.

        Args:
            op_type: operator name.
            *inputs: values; arrays become constants; None omits an optional input.
            domain: operator domain.
            name: node name; by default derived from the node that is rewritten.
            **attrs: attributes; None omits one. Settings that are attributes at some opsets and inputs at others, like
                axes and bounds, are given by the input's name, and written in the form of the graph's opset.
        """
        return self.outputs(1, op_type, *inputs, domain=domain, name=name, **attrs)[0]

    def again(self, node: Node, *inputs: Operand, **changed: Any) -> Value:
        """Build a node like `node` with other operands and some changed attributes, and return its only output."""
        return self.op(node.op_type, *inputs, domain=node.domain, **{**node.attrs, **changed})

    def outputs(
        self, count: int, op_type: str, *inputs: Operand, domain: str = "", name: str | None = None, **attrs: Any
    ) -> tuple[Value, ...]:
        """Build a node, pending, and return its first `count` outputs; otherwise like `op`."""
        if attrs and not domain and op_type in MOVED:
            inputs, attrs = placed(op_type, self.graph.opset(), inputs, attrs, _element_type(inputs))  # type: ignore[assignment]  # a list for a tuple
        node = Node(op_type, domain, self.graph)
        node._attrs = {key: settled(value) for key, value in attrs.items() if value is not None}
        node.inputs = [self.constant(v) if isinstance(v, np.ndarray) else v for v in agreeing(node, inputs)]
        while node.inputs and node.inputs[-1] is None:
            node.inputs.pop()
        made = tuple([Value("", self.graph, node, index) for index in range(count)])
        node.outputs = list(made)
        if name is not None:
            node.name = name
        if self._origin is not None:
            node._origin = self._origin._proto if self._origin._proto is not None else self._origin._origin
        self._pending_nodes.append(node)
        return made

    def add_pending(self, node: Node) -> None:
        """Add a node that was built elsewhere (see `graphopt.rewrite.inline`) to the pending ones."""
        self._pending_nodes.append(node)

    def constant(
        self, array: np.ndarray | Tensor, like: Value | str | None = None, graph: Graph | None = None
    ) -> Value:  # fmt: skip
        """A new constant, pending. It always gets a fresh name.

        Args:
            array: its contents; a `Tensor` for element types that NumPy lacks.
            like: a value or a text from which the name is derived.
            graph: the enclosing graph that is to hold it, such as the main graph; by default the present one.
        """
        tensor = array if isinstance(array, Tensor) else Tensor.from_array(array)
        value = Value("", graph or self.graph)
        value.tensor = tensor
        hint = like.name if isinstance(like, Value) else like
        self._pending_constants[value] = hint or ""
        return value

    def _needed(self, values: Iterable[Value]) -> dict[Node, None]:
        """The pending nodes that the values depend on, in the order of their creation."""
        if not self._pending_nodes:
            return {}
        if len(self._pending_nodes) == 1:
            only = self._pending_nodes[0]
            for value in values:
                if value.producer is only:
                    return {only: None}
            return {}
        pending = set(self._pending_nodes)
        found: set[Node] = set()
        stack = [v.producer for v in values if v.producer is not None]
        while stack:
            node = stack.pop()
            if node not in pending or node in found:
                continue
            found.add(node)
            stack.extend(v.producer for v in reads(node) if v.producer is not None)
        return {node: None for node in self._pending_nodes if node in found}


_FIXED = frozenset({int, str})


def settled(value: Any) -> Any:
    """An attribute as it is stored: an immutable copy, with floats as in a file."""
    kind = type(value)
    if kind is int or kind is str or (kind is tuple and {*map(type, value)} <= _FIXED):
        return value
    if isinstance(value, float):
        return _single(value)
    if isinstance(value, (list, tuple)):
        return tuple(_single(each) if isinstance(each, float) else each for each in value)
    return Tensor.from_array(value) if isinstance(value, np.ndarray) else value


def _single(number: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(number))


def _element_type(inputs: Sequence[Operand]) -> np.dtype[Any] | None:
    """The element type of the first operand."""
    first = inputs[0] if inputs else None
    if isinstance(first, np.ndarray):
        return first.dtype
    dtype = first.dtype if first is not None else None
    return numpy_type(dtype) if dtype in KNOWN_TYPES else None
