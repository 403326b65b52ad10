"""`Value`: an edge of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir.seal import write
from graphopt.ir.tensor import Tensor
from graphopt.ir.types import Dim, TensorType, ValueType, agree, decode_type

if TYPE_CHECKING:
    from graphopt.ir.graph import Graph, Node

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
"""Element types of axes, pads and sizes."""

_LONGEST_LIST = 1 << 12
"""Most bytes of a list of axes, pads or sizes."""


class Value:
    """An edge of the graph: a graph input, an initializer, or an output of a node.

    Attributes:
        name: its name in the model.
        graph: the graph whose scope it belongs to.
        producer: the node that computes it, or None.
        index: its position among the outputs of the producer.
        users: each node that reads it, with its number of uses; nodes of inner graphs included.
        output_count: how many times it is listed as an output of a graph.
        tensor: its contents if it is an initializer.
        is_input: whether it is an input of its graph (an initializer that is an input can be overridden).
        is_sparse: whether it is a sparse initializer, whose contents are never read.
        is_trained: whether training information names it, so that a training step changes its contents.
    """

    __slots__ = (
        "_deferred", "_info", "_number", "_type", "graph", "index", "is_input", "is_sparse", "is_trained", "name",
        "output_count", "producer", "tensor", "users",
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
        self.is_trained = False
        self._info: onnx.ValueInfoProto | None = None
        self._number = 0
        self._type: ValueType | None = _UNREAD
        self._deferred: tuple[Callable[[onnx.TypeProto], ValueType | None], onnx.TypeProto] | None = None

    @property
    def type(self) -> ValueType | None:
        """The declared or inferred type, None if unknown."""
        if self._type is _UNREAD:
            deferred = self._deferred
            write(self, "_deferred", None)
            write(self, "_type", self._read_type() if deferred is None else deferred[0](deferred[1]))
        return self._type

    @type.setter
    def type(self, value_type: ValueType | None) -> None:
        self._type = value_type

    def _defer_type(self, decode: Callable[[onnx.TypeProto], ValueType | None], proto: onnx.TypeProto) -> None:
        """Set the type to `decode(proto)`, evaluated on first access."""
        write(self, "_type", _UNREAD)
        write(self, "_deferred", (decode, proto))

    def _read_type(self) -> ValueType | None:
        if self.tensor is not None and not self.is_input:
            return TensorType(self.tensor.dtype, self.tensor.dims)
        stated = self.declared
        if stated is not None:
            return stated
        tensor = self.constant_tensor
        return None if tensor is None else TensorType(tensor.dtype, tensor.dims)

    @property
    def declared(self) -> ValueType | None:
        """The type that the model declares for it, None if it declares none."""
        info = self._info
        return decode_type(info.type) if info is not None and info.HasField("type") else None

    @property
    def uses(self) -> int:
        """Number of uses: inputs of nodes, counted with repetition, and outputs of graphs."""
        return sum(self.users.values()) + self.output_count

    @property
    def one_use(self) -> bool:
        """Whether it has exactly one use: an input of a node, not a graph output."""
        users = self.users
        return not self.output_count and len(users) == 1 and next(iter(users.values())) == 1

    @property
    def is_output(self) -> bool:
        """Whether it is an output of a graph."""
        return self.output_count > 0

    @property
    def is_anchored(self) -> bool:
        """Whether something other than nodes refers to it, so that it must stay as it is, used or not.

        That is the interface, training information, or a quantization annotation of its graph.
        """
        if self.is_input or self.output_count or self.is_trained:
            return True
        annotated = self.graph._annotated
        return self.name in (self.graph.annotated if annotated is None else annotated)

    @property
    def is_captured(self) -> bool:
        """Whether a node of an inner graph reads it, or an inner graph has it as an output."""
        if any(node.graph is not self.graph for node in self.users):
            return True
        return self.output_count > sum(out is self for out in self.graph.outputs)

    @property
    def constant_tensor(self) -> Tensor | None:
        """Its tensor if constant: an initializer that neither caller nor training can change, or a `Constant`."""
        tensor = self.tensor
        if tensor is not None:
            # No pass can compute with an element type that this version does not know.
            return None if self.is_input or self.is_trained or not tensor.is_known else tensor
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

    def check_finite(self) -> None:
        """Check that it is constant and contains neither infinities nor NaN.

        Raises:
            Decline: it is not constant, or contains one.
        """
        if not np.isfinite(self.array()).all():
            raise Decline("{} is not finite", self.name)

    def ints(self) -> tuple[int, ...]:
        """Its contents as a short list of integers: axes, pads or sizes.

        Raises:
            Decline: it is not constant, or not a short list of integers.
        """
        tensor = self.constant_tensor
        if tensor is None or tensor.nbytes > _LONGEST_LIST or tensor.dtype not in _INDICES:
            raise Decline("{} is not constant", self.name)
        numbers: tuple[int, ...] = tensor.figure("ints", lambda: tuple(tensor.array().reshape(-1).tolist()))
        return numbers

    def integer(self) -> int:
        """Its only element, an integer, with any shape.

        Raises:
            Decline: it is not constant, or not a single integer.
        """
        numbers = self.ints()
        if len(numbers) != 1:
            raise Decline("{} is not a single number", self.name)
        return numbers[0]

    def holds(self, number: float) -> bool:
        """Whether it is constant, not empty, and every element equals `number`."""
        tensor = self.constant_tensor
        if tensor is None or not tensor.begins_with(number):  # which decides most cases
            return False
        array = tensor.array()
        return array.size == 1 or bool((array == number).all())

    @property
    def dtype(self) -> int | None:
        """Element type (`onnx.TensorProto.DataType`), or None if unknown or not a tensor."""
        value_type = self._type
        if value_type is _UNREAD:
            value_type = self.type
        return value_type.dtype or None if isinstance(value_type, TensorType) else None

    def element_type(self) -> int:
        """Its element type.

        Raises:
            Decline: it is not known.
        """
        dtype = self.dtype
        if dtype is None:
            raise Decline("the element type of {} is not known", self.name)
        return dtype

    @property
    def shape(self) -> tuple[Dim, ...] | None:
        """Shape, or None if unknown or not a tensor."""
        value_type = self._type
        if value_type is _UNREAD:
            value_type = self.type
        return value_type.shape if isinstance(value_type, TensorType) else None

    @property
    def rank(self) -> int | None:
        """Number of axes, or None if unknown or not a tensor."""
        value_type = self._type
        if value_type is _UNREAD:
            value_type = self.type
        shape = value_type.shape if isinstance(value_type, TensorType) else None
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
        """Its static shape.

        Raises:
            Decline: a size is not known.
        """
        shape = self.shape
        if shape is None or any(type(dim) is not int for dim in shape):
            raise Decline("the shape of {} is not known", self.name)
        return shape  # type: ignore[return-value]  # all of them are numbers

    def axis(self, axis: int) -> int:
        """An axis, normalized to be nonnegative.

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

    def dim(self, axis: int) -> Dim:
        """Its size along an axis: a number or a symbol; None if it is not known, or there is no such axis."""
        shape = self.shape
        return shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None

    def has_shape_of(self, other: Value) -> bool:
        """Whether both shapes are known and equal: every dimension is the same number or the same symbol."""
        a, b = self.shape, other.shape
        return a is not None and None not in a and a == b

    def check_fits(self, other: Value) -> None:
        """Check that broadcasting it with `other` gives the shape of `other`.

        Raises:
            Decline: it may enlarge that shape.
        """
        dims = self.dims()
        if not dims:
            return
        others = other.dims()
        if len(dims) > len(others):
            raise Decline("{} has rank {}, more than the rank of {}", self.name, len(dims), other.name)
        for size, dim in zip(dims, others[len(others) - len(dims) :], strict=True):
            if size != 1 and not agree(size, dim):
                raise Decline(
                    "broadcasting {} may enlarge {} along an axis of size {}", self.name, other.name, dim or "unknown"
                )

    def check_one_use(self) -> None:
        """Check that it has exactly one use, an input of a node.

        Raises:
            Decline: it has other uses.
        """
        if not self.one_use:
            raise Decline("{} has other readers", self.name)

    def made_by(self, *ops: str) -> Node | None:
        """Its producer if that is one of the given operators, else None."""
        producer = self.producer
        return producer if producer is not None and producer.op in ops else None

    def read_by(self, *ops: str) -> Node | None:
        """Its only reader, in its only use, if that is one of the given operators, else None."""
        reader = next(iter(self.users)) if self.one_use else None
        return reader if reader is not None and reader.op in ops else None

    def source(self, *ops: str, reader: Node) -> Node:
        """Its producer, one of the given operators, in the same graph as `reader`.

        The value may have other readers, for which the producer stays.

        Raises:
            Decline: its producer is another operator (declined without a reason) or in an outer graph.
        """
        producer = self.producer
        if producer is None or producer.op not in ops:
            raise Decline
        if producer.graph is not reader.graph:
            raise Decline("{} is computed in an outer graph", self.name)
        return producer

    def sole_source(self, *ops: str, reader: Node) -> Node:
        """Its producer, if this value has only one use, so that the producer can be merged into the reader.

        Raises:
            Decline: its producer is another operator (declined without a reason) or in an outer graph, or the value
                has other uses.
        """
        producer = self.source(*ops, reader=reader)
        self.check_one_use()
        return producer

    def __repr__(self) -> str:
        return f"Value({self.name!r})"
