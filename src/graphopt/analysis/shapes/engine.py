"""The forward engine: computes a symbolic shape for each value in one pass over a graph, in topological order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from graphopt.analysis.disagreements import BROKEN, ENTRIES, Facts, doubts
from graphopt.analysis.kernels import Array, Unsupported
from graphopt.analysis.shapes.dim import Expr, Size, Symbols, TooComplexError, equal
from graphopt.errors import Decline
from graphopt.ir import Dim, Graph, Model, Node, TensorType, Value

Shape = tuple[Size, ...]
Rule = Callable[["ShapeAnalysis", Node], "Shape | list[Shape | None] | None"]

MAX_ELEMENTS = 1024
"""Most elements of a tensor whose contents are followed."""

_MAX_UNKNOWN_ELEMENTS = 64
"""Most elements of a tensor whose unknown elements get a symbol each."""

_INTEGERS = frozenset({TensorProto.INT64, TensorProto.INT32})
_FOLLOWED = _INTEGERS | {TensorProto.BOOL, TensorProto.FLOAT, TensorProto.DOUBLE}

DECLINED = (Unsupported, TooComplexError)
_MISSING: Any = object()


def fixed_shape(shape: Shape | None, max_elements: int) -> tuple[int, ...] | None:
    """The shape if it is fixed and has at most `max_elements` elements, else None."""
    if shape is None:
        return None
    count = 1
    dims: list[int] = []
    for dim in shape:
        if not isinstance(dim, int):
            return None
        count *= dim
        dims.append(dim)
    return tuple(dims) if 0 <= count <= max_elements and min(dims, default=0) >= 0 else None


_NUMBERS = frozenset({int})


def _is_fixed(shape: Iterable[object]) -> bool:
    """Whether all dimensions are fixed, as nearly always."""
    return {*map(type, shape)} <= _NUMBERS


class ShapeAnalysis:
    """Symbolic shapes of all values of a model, and symbolic contents of its small integer tensors.

    Call `infer_types` first: the engine starts from `Value.type` at graph inputs, and falls back to it for operators
    without a rule.

    A claim holds for every successful run that follows the standard, under two assumptions. First, no size and no
    integer computed from sizes only overflows its type, and float32 numbers computed from sizes are below 2**24; other
    integers may wrap around. Second, no dynamic size is 0 where `Reshape` would then copy a dimension of its input (the
    meaning of 0 there); with `zero_sizes=True` such dimensions are unknown, and the second assumption is dropped.

    Attributes:
        symbols: the table of all symbols of this analysis.
        zero_sizes: whether the second assumption is dropped.
        strict: whether a rule that fails on a malformed node raises instead of returning unknown (for tests).
        depth: the number of loops that enclose the present node.
    """

    def __init__(self, model: Model | None = None, *, zero_sizes: bool = False, strict: bool = False) -> None:
        """Analyse a model; without one, shapes are derived from `Value.type` on demand."""
        self.symbols = Symbols()
        self.zero_sizes = zero_sizes
        self.strict = strict
        self.depth = 0
        self._shapes: dict[Value, Shape | None] = {}
        self._data: dict[Value, Array | None] = {}
        if model is not None:
            for graph in (model.graph, *model.functions):
                self.visit(graph)

    # Queries

    def shape(self, value: Value) -> Shape | None:
        """The shape of a value: integers and expressions; None if even the rank is unknown."""
        shape: Shape | None = self._shapes.get(value, _MISSING)
        if shape is _MISSING:
            shape = self._shapes[value] = self._declared(value)
        return shape

    def data(self, value: Value) -> Array | None:
        """The contents of a small tensor of integers or booleans (or of floats computed from sizes).

        Returns:
            An array of the value's element type if all elements are known, an array of objects if some are
            expressions, None if the tensor is large, of another type, or of unknown shape.
        """
        data: Array | None = self._data.get(value, _MISSING)
        if data is _MISSING:
            data = self._data[value] = self._given(value)
        return data

    def dims(self, value: Value) -> Shape:
        """The shape of a value, for passes.

        Raises:
            Decline: without a reason, if it is not known.
        """
        shape = self.shape(value)
        if shape is None:
            raise Decline
        return shape

    def rank(self, value: Value) -> int | None:
        """The rank of a value, None if it is unknown."""
        shape = self.shape(value)
        return None if shape is None else len(shape)

    def equal(self, a: Size, b: Size) -> bool | None:
        """Whether two sizes are equal: True or False if provable, else None."""
        return equal(a, b)

    def same_shape(self, a: Value, b: Value) -> bool:
        """Whether two values provably have the same shape in every run."""
        left = self.shape(a)
        return left is not None and left == self.shape(b)

    def to_dim(self, size: Size) -> Dim:
        """A size as a dimension of the view: an integer, the name of a symbol of the model, or None."""
        if isinstance(size, int):
            return size
        symbol = size.symbol
        return None if symbol is None else symbol.name

    def to_dims(self, shape: Shape | None) -> tuple[Dim, ...] | None:
        """A shape in the form of the view."""
        if shape is None:
            return None
        return tuple(shape) if _is_fixed(shape) else tuple(map(self.to_dim, shape))  # type: ignore[arg-type]  # numbers

    def refine(self) -> int:
        """Write shapes that are more precise than `Value.type` to it; element types stay.

        Returns:
            The number of refined types.
        """
        count = 0
        for value, shape in self._shapes.items():
            value_type = value.type
            if shape is None or not isinstance(value_type, TensorType):
                continue
            dims = self.to_dims(shape)
            if dims == value_type.shape or dims is None:
                continue
            if value_type.shape is not None and len(value_type.shape) == len(dims):
                dims = tuple(a if a is not None else b for a, b in zip(dims, value_type.shape, strict=True))
                if dims == value_type.shape:
                    continue
            value.type = TensorType(value_type.dtype, dims)
            count += 1
        return count

    # Propagation

    def visit(self, graph: Graph) -> None:
        """Compute all values of a graph, in order."""
        for node in graph.listed():
            self.update(node)

    def update(self, node: Node) -> None:
        """Compute the outputs of a node, again or for the first time; its inputs must have been computed."""
        rule = SHAPE_RULES.get(node.op)
        result: Any = None
        if rule is not None:
            result = self._try(rule, node)
        elif node.subgraphs:
            for graph in node.subgraphs.values():
                self.visit(graph)
        shapes: Sequence[Any] = result if type(result) is list else (result,)
        if result is not None and node.op in ENTRIES:
            shapes = self.without_doubts(node, shapes)
        known = len(shapes)
        for index, value in enumerate(node.outputs):
            if value is not None:
                self._shapes[value] = self._merged(shapes[index] if index < known else None, value)
                self._data.pop(value, None)
        follow = DATA_RULES.get(node.op)
        if follow is not None:
            contents = self._try(follow, node)
            if contents is not None:
                for value, data in zip(node.outputs, contents, strict=False):
                    if value is not None and data is not None:
                        self._data[value] = data

    def without_doubts(self, node: Node, shapes: Sequence[Shape | None]) -> Sequence[Shape | None]:
        """The output shapes of a node by its rule, unknown where the runtime and the standard disagree."""
        inputs = [self.shape(value) if value is not None else None for value in node.inputs]
        found = doubts(Facts(node, inputs, shapes, {}), own=True)
        if not found:
            return shapes
        result = list(shapes)
        for index, axis in found:
            shape = result[index] if index < len(result) else None
            if axis is None and shape is not None:
                result[index] = None
            elif shape is not None and axis is not None and axis < len(shape):
                result[index] = (*shape[:axis], self.fresh(), *shape[axis + 1 :])
        return result

    def _try(self, rule: Callable[[ShapeAnalysis, Node], Any], node: Node) -> Any:
        try:
            return rule(self, node)
        except DECLINED:
            return None
        except BROKEN:
            if self.strict:
                raise
            return None

    def set_shape(self, value: Value, shape: Shape | None) -> None:
        """Set the shape of a value and drop its contents; for the rules of control flow."""
        self._shapes[value] = shape
        self._data.pop(value, None)

    # For rules

    def fresh(self) -> Expr:
        """An unknown dimension."""
        return self.symbols.fresh()

    def need(self, node: Node, index: int) -> Shape:
        """The shape of an input.

        Raises:
            Unsupported: it is omitted or unknown.
        """
        inputs = node.inputs
        value = inputs[index] if index < len(inputs) else None
        shape = self.shape(value) if value is not None else None
        if shape is None:
            raise Unsupported("the shape of an input is unknown")
        return shape

    def sizes(self, value: Value | None) -> list[Size] | None:
        """The elements of a small integer tensor as integers and expressions, None if unknown."""
        data = self.data(value) if value is not None else None
        if data is None or data.dtype.kind not in "iuO":
            return None
        elements: list[Size] = data.reshape(-1).tolist()
        if data.dtype.kind != "O":
            return elements
        if not all(isinstance(e, (int, Expr)) for e in elements):
            return None
        return list(map(self.symbols.wrapped, elements))

    def truth(self, value: Value | None) -> bool | None:
        """The only element of a boolean tensor, None if unknown."""
        data = self.data(value) if value is not None else None
        if data is None or data.size != 1:
            return None
        element = data.reshape(-1)[0]
        return None if isinstance(element, Expr) else bool(element)

    def broadcast(self, shapes: Iterable[Shape]) -> Shape:
        """The shape that shapes broadcast to.

        Raises:
            Unsupported: they do not broadcast.
        """
        first, *others = shapes
        for other in others:
            if first != other:
                first = self._broadcast_two(first, other)
        return first

    def _broadcast_two(self, a: Shape, b: Shape) -> Shape:
        if len(a) < len(b):
            a, b = b, a
        offset = len(a) - len(b)
        result = list(a)
        for axis, dim in enumerate(b, offset):
            merged = self.symbols.broadcast(result[axis], dim)
            if merged is None:
                raise Unsupported("shapes do not broadcast")
            result[axis] = merged
        return tuple(result)

    # Sources of shapes

    def _declared(self, value: Value) -> Shape | None:
        value_type = value.type
        if not isinstance(value_type, TensorType) or value_type.shape is None:
            return None
        if _is_fixed(value_type.shape):
            return value_type.shape  # type: ignore[return-value]  # they are numbers
        named, fresh = self.symbols.named, self.symbols.fresh
        return tuple(
            dim if type(dim) is int else named(dim) if isinstance(dim, str) else fresh()
            for dim in value_type.shape
        )  # fmt: skip

    def _merged(self, own: Shape | None, value: Value) -> Shape | None:
        """The result of a rule, completed by fixed sizes from the standard's inference."""
        if own is None:
            return self._declared(value)
        for dim in own:
            if type(dim) is not int:
                break
        else:
            return own
        declared = value.shape
        if declared is None or len(declared) != len(own):
            return own
        return tuple(b if type(b) is int and type(a) is not int else a for a, b in zip(own, declared, strict=True))

    def _given(self, value: Value) -> Array | None:
        tensor = value.constant_tensor
        if tensor is not None:
            if tensor.dtype not in _FOLLOWED or tensor.numel > MAX_ELEMENTS:
                return None
            return tensor.array()
        dtype = value.dtype
        if dtype not in _INTEGERS and dtype != TensorProto.BOOL:
            return None
        dims = fixed_shape(self.shape(value), _MAX_UNKNOWN_ELEMENTS)
        if dims is None:
            return None
        low, high = (0, 1) if dtype == TensorProto.BOOL else (None, None)
        array: Array = np.empty(dims, object)
        flat = array.reshape(-1)
        for index in range(flat.size):
            flat[index] = self.symbols.content(low, high)
        return array


SHAPE_RULES: dict[str, Rule] = {}
"""Output shapes by operator; filled by the modules of this package."""

DATA_RULES: dict[str, Callable[[ShapeAnalysis, Node], list[Array | None] | None]] = {}
"""Contents of small tensors by operator; filled by the modules of this package."""
