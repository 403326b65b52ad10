"""The view over a graph: `Value`, `Node` and `Graph`, linked to each other and read once from the protos."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir.attributes import decode_attribute
from graphopt.ir.forms import MOVED, Moved
from graphopt.ir.schema import OpInfo, op_schema
from graphopt.ir.tensor import Tensor
from graphopt.ir.types import Dim, TensorType, ValueType, decode_type

if TYPE_CHECKING:
    from graphopt.ir.model import Model

_UNREAD: Any = object()

_INDICES = frozenset(
    {
        TensorProto.INT64,
        TensorProto.INT32,
        TensorProto.INT16,
        TensorProto.INT8,
        TensorProto.UINT64,
        TensorProto.UINT32,
        TensorProto.UINT16,
        TensorProto.UINT8,
    }
)
"""Element types of lists of axes, pads and sizes."""

_LONGEST_LIST = 1 << 12
"""Bytes; such lists are shorter."""


class Value:
    """An edge of the graph: a graph input, an initializer, or an output of a node.

    Attributes:
        name: its name in the model.
        graph: the graph whose scope it belongs to.
        producer: the node that computes it, or None.
        index: its position among the outputs of the producer.
        users: each node that reads it, with the number of times; nodes of inner graphs included.
        output_count: how many times it is listed as an output of a graph.
        tensor: its contents when it is an initializer.
        is_input: whether it is an input of its graph (an initializer that is one can be overridden).
        is_sparse: whether it is a sparse initializer, which is never looked into.
    """

    __slots__ = (
        "_deferred", "_type", "graph", "index", "info", "is_input", "is_sparse", "name", "output_count", "producer",
        "tensor", "users",
    )  # fmt: skip

    def __init__(self, name: str, graph: Graph, producer: Node | None = None, index: int = 0) -> None:
        self.name = name
        self.graph = graph
        self.producer = producer
        self.index = index
        self.users: dict[Node, int] = {}
        self.output_count = 0
        self.tensor: Tensor | None = None
        self.is_input = False
        self.is_sparse = False
        self.info: onnx.ValueInfoProto | None = None
        self._type: ValueType | None = _UNREAD
        self._deferred: tuple[Callable[[onnx.TypeProto], ValueType | None], onnx.TypeProto] | None = None

    @property
    def type(self) -> ValueType | None:
        """The declared or inferred type, None when unknown."""
        if self._type is _UNREAD:
            deferred, self._deferred = self._deferred, None
            self._type = self._read_type() if deferred is None else deferred[0](deferred[1])
        return self._type

    @type.setter
    def type(self, value_type: ValueType | None) -> None:
        self._type = value_type

    def defer_type(self, decode: Callable[[onnx.TypeProto], ValueType | None], proto: onnx.TypeProto) -> None:
        """Set the type to what `decode` makes of `proto`, when it is first asked for."""
        self._type = _UNREAD
        self._deferred = (decode, proto)

    def _read_type(self) -> ValueType | None:
        if self.tensor is not None and not self.is_input:
            return TensorType(self.tensor.dtype, self.tensor.dims)
        if self.info is not None and self.info.HasField("type"):
            return decode_type(self.info.type)
        tensor = self.constant_tensor
        return None if tensor is None else TensorType(tensor.dtype, tensor.dims)

    @property
    def uses(self) -> int:
        """Number of uses: inputs of nodes, counted with repetition, and outputs of graphs."""
        return sum(self.users.values()) + self.output_count

    @property
    def one_use(self) -> bool:
        """Whether exactly one input of one node reads it and no graph puts it out."""
        users = self.users
        return not self.output_count and len(users) == 1 and next(iter(users.values())) == 1

    @property
    def is_output(self) -> bool:
        """Whether it is an output of a graph."""
        return self.output_count > 0

    @property
    def is_captured(self) -> bool:
        """Whether a node of an inner graph reads it, or an inner graph puts it out."""
        if any(node.graph is not self.graph for node in self.users):
            return True
        return self.output_count > sum(out is self for out in self.graph.outputs)

    @property
    def constant_tensor(self) -> Tensor | None:
        """The tensor that it always holds: an initializer no caller can override, or a `Constant`."""
        if self.tensor is not None:
            return None if self.is_input else self.tensor
        producer = self.producer
        if producer is not None and producer.op == "Constant":
            return producer.constant_tensor()
        return None

    @property
    def is_const(self) -> bool:
        """Whether its contents are known and the same for every run."""
        return self.constant_tensor is not None

    def const(self, max_bytes: int | None = None) -> np.ndarray | None:
        """Its contents if constant and at most `max_bytes` large, else None. Read-only."""
        tensor = self.constant_tensor
        if tensor is None or (max_bytes is not None and tensor.nbytes > max_bytes):
            return None
        return tensor.array()

    def array(self) -> np.ndarray:
        """Its contents if constant, read-only.

        Raises:
            Decline: it is not constant.
        """
        tensor = self.constant_tensor
        if tensor is None:
            raise Decline("{} is not constant", self.name)
        return tensor.array()

    def ints(self) -> tuple[int, ...]:
        """The short list of integers (axes, pads, sizes) that it holds.

        Raises:
            Decline: it is not constant, or holds something else.
        """
        tensor = self.constant_tensor
        if tensor is None or tensor.nbytes > _LONGEST_LIST or tensor.dtype not in _INDICES:
            raise Decline("{} is not constant", self.name)
        return tuple(tensor.array().reshape(-1).tolist())

    @property
    def dtype(self) -> int | None:
        """Element type (`onnx.TensorProto.DataType`), or None when unknown or not a tensor."""
        value_type = self.type
        return value_type.dtype if isinstance(value_type, TensorType) else None

    @property
    def shape(self) -> tuple[Dim, ...] | None:
        """Shape, or None when unknown or not a tensor."""
        value_type = self.type
        return value_type.shape if isinstance(value_type, TensorType) else None

    @property
    def rank(self) -> int | None:
        """Number of axes, or None when unknown or not a tensor."""
        shape = self.shape
        return None if shape is None else len(shape)

    def dims(self) -> tuple[Dim, ...]:
        """Its shape.

        Raises:
            Decline: the rank is not known.
        """
        shape = self.shape
        if shape is None:
            raise Decline("the rank of {} is not known", self.name)
        return shape

    def sizes(self) -> tuple[int, ...]:
        """Its shape, all numbers.

        Raises:
            Decline: a size is not known.
        """
        shape = self.shape
        if shape is None or any(type(dim) is not int for dim in shape):
            raise Decline("the shape of {} is not known", self.name)
        return shape  # type: ignore[return-value]  # all of them are numbers

    def axis(self, axis: int) -> int:
        """One of its axes, counted from the front.

        Raises:
            Decline: the rank is not known, or there is no such axis.
        """
        rank = len(self.dims())
        if not -rank <= axis < rank:
            raise Decline("{} has no axis {}", self.name, axis)
        return axis % rank

    def size(self, axis: int) -> int:
        """The number of elements along an axis.

        Raises:
            Decline: it is not known.
        """
        size = self.dims()[self.axis(axis)]
        if not isinstance(size, int):
            raise Decline("the size of axis {} of {} is not known", axis, self.name)
        return size

    def made_by(self, *ops: str) -> Node | None:
        """The node that computes it, when it is one of some operators; None when not."""
        producer = self.producer
        return producer if producer is not None and producer.op in ops else None

    def source(self, *ops: str, reader: Node) -> Node:
        """The node that computes it, one of some operators of the graph that the reader is in.

        It stays where it is, for its other readers.

        Raises:
            Decline: without a reason when it comes from something else; when it is computed in an outer graph.
        """
        producer = self.producer
        if producer is None or producer.op not in ops:
            raise Decline
        if producer.graph is not reader.graph:
            raise Decline("{} is computed in an outer graph", self.name)
        return producer

    def sole_source(self, *ops: str, reader: Node) -> Node:
        """The node that computes it for one reader alone, so that it can become part of that.

        Raises:
            Decline: without a reason when it comes from something else; when others read it, or when it is computed
                in an outer graph.
        """
        producer = self.source(*ops, reader=reader)
        if not self.one_use:
            raise Decline("{} has other readers", self.name)
        return producer

    def __repr__(self) -> str:
        return f"Value({self.name!r})"


class Node:
    """One operator application.

    Attributes:
        op: what rules are dispatched by: `Conv`, `com.microsoft::FusedConv`. Calls of model-local functions,
            nodes with attribute references and nodes with an attribute of the wrong type have a key that no rule can
            name.
        op_type: operator name.
        domain: operator domain; `ai.onnx` reads as "".
        overload: which overload of a model-local function.
        name: node name, may be empty.
        graph: the graph that holds it.
        inputs: values read; None where an optional input is left out.
        outputs: values computed; None where an optional output is left out.
        subgraphs: graphs in its attributes, by attribute name.
        removed: whether it has left the graph.
        changed: whether it must be written anew.
        attrs_changed: whether its attributes, too, must be.
    """

    __slots__ = (
        "_attrs",
        "_tensor",
        "attrs_changed",
        "changed",
        "domain",
        "graph",
        "inputs",
        "name",
        "next",
        "op",
        "op_type",
        "order",
        "origin",
        "outputs",
        "overload",
        "prev",
        "proto",
        "removed",
        "subgraphs",
    )  # fmt: skip

    def __init__(self, op_type: str, domain: str, graph: Graph, proto: onnx.NodeProto | None = None) -> None:
        self.op_type = op_type
        self.domain = domain
        self.op = op_type if not domain else f"{domain}::{op_type}"
        self.overload = ""
        self.name = ""
        self.graph = graph
        self.inputs: list[Value | None] = []
        self.outputs: list[Value | None] = []
        self.subgraphs: dict[str, Graph] = _NO_SUBGRAPHS
        self.proto = proto
        self.origin: onnx.NodeProto | None = None
        self._attrs: dict[str, Any] | None = None
        self._tensor: Tensor | None = None
        self.prev: Node | None = None
        self.next: Node | None = None
        self.order = 0
        self.removed = False
        self.changed = self.attrs_changed = proto is None

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The attributes that are written at the node, decoded."""
        if self._attrs is None:
            attributes = self.proto.attribute if self.proto is not None else ()
            self._attrs = {a.name: decode_attribute(a) for a in attributes}
        return self._attrs

    def attr(self, name: str, default: Any = None) -> Any:
        """The attribute's value: as written, else its default at this opset, else `default`."""
        value = self.attrs.get(name)
        if value is not None:
            return value
        schema = self.schema
        return schema.defaults.get(name, default) if schema is not None else default

    @property
    def schema(self) -> OpInfo | None:
        """The operator's definition at this graph's opset, or None when unknown."""
        return op_schema(self.op_type, self.domain, self.graph.opset(self.domain))

    def input(self, index: int) -> Value | None:
        """The input at a position, None when left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def operand(self, index: int) -> Value:
        """A required input; loading saw to it that each node of a known operator has its own.

        Raises:
            Decline: it is left out.
        """
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is None:
            raise Decline("input {} of {} is left out", index, self.op)
        return value

    @property
    def result(self) -> Value:
        """The first output.

        Raises:
            Decline: it is left out.
        """
        value = self.outputs[0] if self.outputs else None
        if value is None:
            raise Decline("the first output of {} is left out", self.op)
        return value

    def ints(self, name: str) -> tuple[int, ...] | None:
        """A list of integers, like axes or pads, whether it is an attribute or an input at this opset.

        Returns:
            The integers; None when they are left out.

        Raises:
            Decline: they are an input that is not constant.
        """
        form = _form(self.op, name)
        if form is not None and self.graph.opset() >= form.since:
            value = self.input(form.index)
            return None if value is None else value.ints()
        names = form.names if form is not None and form.names else (name,)
        given = next((found for key in names if (found := self.attr(key)) is not None), None)
        return None if given is None else tuple(map(int, given))

    def number(self, name: str) -> float | int | None:
        """A single number, like a bound or a fill value, whether it is an attribute or an input at this opset.

        Returns:
            The number; None when it is left out.

        Raises:
            Decline: it is an input that is not a constant of one element.
        """
        form = _form(self.op, name)
        if form is not None and self.graph.opset() >= form.since:
            value = self.input(form.index)
            if value is None:
                return None
            array = value.array()
            if array.size != 1:
                raise Decline("{} is not a single number", value.name)
            return array.reshape(-1)[0].item()  # type: ignore[no-any-return]
        names = form.names if form is not None and form.names else (name,)
        return next((found for key in names if (found := self.attr(key)) is not None), None)

    def output(self, index: int) -> Value | None:
        """The output at a position, None when left out."""
        return self.outputs[index] if index < len(self.outputs) else None

    def is_op(self, op_type: str, domain: str = "") -> bool:
        """Whether this is that operator of that domain, and no function of the model."""
        return self.op == (op_type if not domain else f"{domain}::{op_type}")

    def constant_tensor(self) -> Tensor | None:
        """For a `Constant` node, its tensor, whichever attribute states it; None for a sparse one, and for several."""
        if self._tensor is None and len(self.attrs) == 1:
            for name, value in self.attrs.items():
                if name == "value" and isinstance(value, Tensor):
                    self._tensor = value
                elif name in _CONSTANT_TYPES and not isinstance(value, onnx.AttributeProto):
                    self._tensor = Tensor.from_array(np.asarray(value, dtype=_CONSTANT_TYPES[name]))
        return self._tensor

    def __repr__(self) -> str:
        outputs = ", ".join(v.name for v in self.outputs if v is not None)
        return f"Node({self.op}{' ' + repr(self.name) if self.name else ''} -> {outputs})"


def _form(op: str, name: str) -> Moved | None:
    moved = MOVED.get(op)
    return moved.get(name) if moved is not None else None


_NO_SUBGRAPHS: dict[str, Any] = {}
_CONSTANT_TYPES: dict[str, Any] = {
    "value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32,
    "value_string": object, "value_strings": object,
}  # fmt: skip


class Graph:
    """A graph: the main one, the body of a control-flow operator, or a model-local function.

    Iterating gives the nodes in topological order and may be done while nodes are removed or inserted: a node
    inserted behind the current one is visited, one inserted before it is not.

    Attributes:
        name: its name; for functions `domain::name`.
        model: the model.
        parent: the graph around it, None for the main graph and functions.
        owner: the node whose attribute it is, None for the main graph and functions.
        inputs: its inputs.
        outputs: its outputs.
        values: every value of this scope by name; values of outer scopes are not in it.
        owners: the nodes that have subgraphs.
        is_function: whether it is a model-local function, which has no initializers and untyped inputs.
        changed: whether it must be written anew.
    """

    __slots__ = (
        "_count", "changed", "first", "inputs", "is_function", "last", "model", "name", "opsets", "outputs", "owner",
        "owners", "parent", "proto", "values",
    )  # fmt: skip

    def __init__(
        self, model: Model, name: str, proto: onnx.GraphProto | onnx.FunctionProto, opsets: dict[str, int],
        *, parent: Graph | None = None, owner: Node | None = None,
    ) -> None:  # fmt: skip
        self.model = model
        self.name = name
        self.proto = proto
        self.opsets = opsets
        self.parent = parent
        self.owner = owner
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.values: dict[str, Value] = {}
        self.owners: dict[Node, None] = {}
        self.is_function = isinstance(proto, onnx.FunctionProto)
        self.first: Node | None = None
        self.last: Node | None = None
        self.changed = False
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Node]:
        node = self.first
        while node is not None:
            if not node.removed:
                yield node
            node = node.next

    def __reversed__(self) -> Iterator[Node]:
        node = self.last
        while node is not None:
            if not node.removed:
                yield node
            node = node.prev

    @property
    def initializers(self) -> Iterator[Value]:
        """Values with contents of their own (dense initializers), overridable ones included."""
        return (value for value in self.values.values() if value.tensor is not None)

    @property
    def in_function(self) -> bool:
        """Whether it is a model-local function, or inside of one."""
        graph = self
        while graph.parent is not None:
            graph = graph.parent
        return graph.is_function

    def opset(self, domain: str = "") -> int:
        """The imported version of an operator domain, 0 when it is not imported."""
        return self.opsets.get(domain, 0)

    def before(self, a: Node, b: Node) -> bool:
        """Whether node `a` of this graph comes before node `b` of this graph."""
        return a.order < b.order

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {self._count} nodes)"
