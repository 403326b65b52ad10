"""Values that share their channels, from the layers that produce these to the layers that sum over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from graphopt.errors import Decline
from graphopt.ir import Graph, Node, Value
from graphopt.operators import Pool, Reduction
from graphopt.operators.affine import per_channel
from graphopt.operators.layer import LAYERS, LinearLayer
from graphopt.records import dataclass

_UNARY = frozenset(
    ("Abs", "Celu", "Clip", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Mish",
     "Neg", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Sqrt", "Swish", "Tanh", "ThresholdedRelu")
)  # fmt: skip
_BROADCASTING = frozenset(("Add", "Div", "Max", "Min", "Mul", "PRelu", "Sub"))
POINTWISE = _UNARY | _BROADCASTING
"""Elementwise operators."""


@dataclass(frozen=True, slots=True)
class Place:
    """The channel axis of a value.

    Attributes:
        value: the value.
        axis: the axis of channels, from the front.
        rank: its rank.
    """

    value: Value
    axis: int
    rank: int


@dataclass(slots=True)
class Space:
    """Values that share their channels, which no other operators access than those listed here.

    Attributes:
        graph: the graph that contains all of them.
        channels: the number of channels.
        places: the values.
        makers: the operators that produce the channels.
        between: the operators that do not mix channels.
        readers: the operators that sum over the channels.
    """

    graph: Graph
    channels: int
    places: dict[Value, Place] = field(default_factory=dict)
    makers: dict[Node, LinearLayer] = field(default_factory=dict)
    between: dict[Node, LinearLayer | None] = field(default_factory=dict)
    readers: dict[Node, LinearLayer] = field(default_factory=dict)

    def explore(self, place: Place) -> None:
        """Follow a value's channels to all their producers and readers; declines if another operator accesses them."""
        todo = [place]
        while todo:
            at = todo.pop()
            value = at.value
            known = self.places.setdefault(value, at)
            if known is not at:
                if known != at:
                    raise Decline("{} has its channels on two axes", value.name)
                continue
            if value.is_anchored or value.producer is None:
                raise Decline("{} is a graph input, output or initializer", value.name)
            todo += self._through(value.producer, at, makes=True)
            for user in value.users:
                todo += self._through(user, at, makes=False)

    def _through(self, node: Node, at: Place, *, makes: bool) -> list[Place]:
        """The other values that share their channels through a producer or, unless it `makes` the value, a reader."""
        if node.graph is not self.graph:
            raise Decline("{} belongs to another graph", node.op)
        if node.op not in LAYERS:
            return self._kept(node, at)
        if not makes and (node.inputs[0] is not at.value or node.inputs.count(at.value) > 1):
            raise Decline("{} is not only the first input of {}", at.value.name, node.op)
        weight = node.operand(1)
        if not weight.one_use or weight.is_anchored:
            raise Decline("the weight {} has other readers", weight.name)
        layer = LinearLayer.of(node)
        channels = layer.channels if makes or layer.read is None else layer.weight.shape[layer.read]
        if channels != self.channels or (layer.axis, layer.rank) != (at.axis, at.rank):
            raise Decline("{} has {} channels, {} has {}", node.op, channels, at.value.name, self.channels)
        if layer.is_depthwise:
            self.between[node] = layer
            return [Place(value, at.axis, at.rank) for value in (node.operand(0), node.result)]
        (self.makers if makes else self.readers)[node] = layer
        return []

    def _kept(self, node: Node, at: Place) -> list[Place]:
        """The other values that share their channels through an operator that does not mix channels."""
        read = KEEPING.get(node.op)
        if read is None or len(node.results) > 1:
            raise Decline("{} is not known to keep channels apart", node.op)
        places = read(node, at, self.channels)
        self.between[node] = None
        return places


def _of_pointwise(node: Node, at: Place, channels: int) -> list[Place]:
    if node.op in _BROADCASTING and not node.graph.broadcasts(node.op):
        raise Decline("{} does not broadcast both operands at this opset", node.op)
    joined = [value for value in node.operands if not value.is_const]
    for value in node.operands:
        if value.is_const:
            per_channel(value, at.rank, at.axis, channels)
    if node.op not in _BROADCASTING and joined != [node.operand(0)]:
        raise Decline("{} has bounds that are not constant", node.op)
    return [Place(value, at.axis, at.rank) for value in (*joined, node.result)]


def _of_pool(node: Node, at: Place, channels: int) -> list[Place]:
    """Read a pool; declines unless every window contains an element of the input, and padding does not count."""
    pool = Pool.of(node)
    spans = zip(pool.before, pool.after, pool.kernel, strict=True)
    if pool.ceil or any(apart != 1 for apart in pool.dilations) or any(max(a, b) >= size for a, b, size in spans):
        raise Decline("{} may have windows that contain only padding", node.op)
    if node.op == "AveragePool" and pool.counts_padding and (any(pool.before + pool.after) or pool.same):
        raise Decline("{} counts its padding", node.op)
    return _plain(node, at)


def _of_reduction(node: Node, at: Place, channels: int) -> list[Place]:
    reduction = Reduction.of(node)
    if min(reduction.axes, default=0) <= 1 or at.axis != 1:
        raise Decline("{} may reduce channels", node.op)
    return _shrunk(node, at, 0 if reduction.keepdims else len(reduction.axes))


def _of_flatten(node: Node, at: Place, channels: int) -> list[Place]:
    if at.axis != 1 or node.attr("axis", 1) != 1 or any(size != 1 for size in node.operand(0).dims()[2:]):
        raise Decline("{} merges channels with other axes", node.op)
    return _shrunk(node, at, len(node.operand(0).dims()) - 2)


def _of_squeeze(node: Node, at: Place, channels: int) -> list[Place]:
    x = node.operand(0)
    axes = sorted(x.axis(axis) for axis in node.ints("axes") or ())
    if at.axis != 1 or not axes or axes[0] < 2:
        raise Decline("{} may move channels", node.op)
    return _shrunk(node, at, len(axes))


def _shrunk(node: Node, at: Place, fewer: int) -> list[Place]:
    """Input and result of an operator that removes trailing axes; `at` is one of the two."""
    before = at.rank if at.value is node.operand(0) else at.rank + fewer
    return [Place(node.operand(0), at.axis, before), Place(node.result, at.axis, before - fewer)]


def _plain(node: Node, at: Place, channels: int = 0) -> list[Place]:
    if at.axis != 1:
        raise Decline("{} may move channels", node.op)
    return [Place(value, at.axis, at.rank) for value in (node.operand(0), node.result)]


KEEPING: dict[str, Callable[[Node, Place, int], list[Place]]] = {
    **dict.fromkeys(POINTWISE, _of_pointwise), "AveragePool": _of_pool, "MaxPool": _of_pool,
    "GlobalAveragePool": _plain, "GlobalMaxPool": _plain, "ReduceMean": _of_reduction, "ReduceMax": _of_reduction,
    "Flatten": _of_flatten, "Squeeze": _of_squeeze,
}  # fmt: skip
"""Operators that do not mix channels, and map uniform channels to uniform ones."""
