"""Bounds on the work of the standard's data propagation: it computes shapes, but is overwhelmed by long vectors."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import onnx

from graphopt.analysis.lengths import NEVER_LONGER, SIZES_IN_ATTRIBUTES
from graphopt.analysis.siblings import bodies_of
from graphopt.ir import Model, Node, Value
from graphopt.ir.types import MOST_AXES, element_count

KEPT_BYTES = 1024 * 8
"""Integer tensors up to this many bytes keep their data for inference: shapes, axes and indices."""

_MAX_FOLLOWED = 1 << 16


def contents_may_explode(model: Model) -> bool:
    """Whether the standard's data propagation would take too long: it follows vectors of any length.

    A chain of `Concat` that doubles a shape at every step has 2**40 elements after forty nodes. The number of followed
    elements is bounded by one pass over the nodes. A vector of known length is followed even if its contents are not
    known: a `Range` of a few bytes can produce gigabytes.
    """
    bounds: dict[Value, float] = {}
    limit = longest_vector(model)
    if any(vector_length(value.shape) > limit for value in model.graph.inputs):
        return True
    ops = set()
    for node in model.nodes():
        ops.add(node.op)
        if node.op in _TOLD_A_SIZE and (_makes_long(node, bounds) or _told_length(node) > limit):
            return True
    if "Concat" not in ops:
        return False
    sizes: dict[Value, int] = {}
    for node in model.nodes():
        if not node.inputs:
            continue
        if node.op in ("Shape", "Size"):
            size = 64
        else:
            first = node.inputs[0]
            if first is not None and first not in sizes and not first.is_const:
                continue
            size = _followed_by(node, sizes)
        if size > _MAX_FOLLOWED:
            return True
        if size:
            sizes.update([(value, size) for value in node.outputs if value is not None])
    return False


def _followed_by(node: Node, sizes: dict[Value, int]) -> int:
    """Number of followed elements of a node's results; 0 if one of its operands is not followed."""
    found = []
    for value in node.inputs:
        if value is not None:
            size = _followed(value, sizes)
            if not size:
                return 0
            found.append(size)
    return sum(found) if node.op == "Concat" else max(found, default=0)


_LONG = 1 << 20
"""Vectors longer than this are no shapes, and following one takes seconds."""

_TOLD_A_SIZE = frozenset({
    "AffineGrid", "BlackmanWindow", "CenterCropPad", "ConstantOfShape", "Expand", "HammingWindow", "HannWindow",
    "MaxUnpool", "OneHot", "Pad", "Range", "Reshape", "Resize", "Tile", "Upsample",
})  # fmt: skip
"""Operators with operands, or in older opsets an attribute, that state the size of the result."""


_GROWING = frozenset({"ConstantOfShape", "Expand", "Tile"})
"""Operators whose result has the product of the sizes as number of elements; flattened, it is one vector."""


def longest_vector(model: Model) -> int:
    """The longest vector allowed: each operator follows its elements anew, at 150 bytes each."""
    followers = sum([node.op in FOLLOWERS for node in model.nodes()])
    return max(MOST_AXES, _LONG // max(followers, 1))  # shapes are allowed in models of any size


def vector_length(shape: Sequence[object] | None) -> int:
    """The length of a vector; 0 if it is unknown, or the shape is not a vector's."""
    return shape[0] if shape is not None and len(shape) == 1 and isinstance(shape[0], int) else 0


_MAKES_VECTORS = frozenset({"ConstantOfShape", "Expand", "Reshape", "Tile"})


def _told_length(node: Node) -> float:
    """The length of a vector stated by a constant operand of one element; 0 if there is none."""
    value = node.inputs[-1] if node.inputs and node.op in _MAKES_VECTORS else None
    array = value.const(8) if value is not None else None
    return max(_sizes(array), default=0) if array is not None and array.size == 1 and array.dtype.kind in "iu" else 0


FOLLOWERS = frozenset({
    "Add", "Cast", "Concat", "Gather", "Mul", "Size", "Slice", "Squeeze", "Sub", "Unsqueeze",
})  # fmt: skip
"""Operators that data propagation follows, for any element type."""

DEEPEST = 32
"""Most operators through which a size is traced."""

WRONG_SLICE = 10
"""At this opset the standard's inference gives the slice of a symbolic axis the same symbol."""


def is_of_shape(node: Node) -> bool:
    """Whether a `Slice` selects a part of a shape, whose contents inference follows."""
    for _ in range(DEEPEST):
        value = node.input(0)
        if value is None or value.producer is None or value.producer.op not in (*FOLLOWERS, "Shape"):
            return False
        node = value.producer
        if node.op == "Shape":
            return True
    return False


def may_make_vectors(model: Model) -> bool:
    """Whether a vector may become long: then lengths are inferred before contents are followed.

    That is possible unless all operators are known to produce vectors no longer than their operands, or than their
    bounded attributes and constant operands. Broadcasting a row against a column also multiplies elements, which a
    reshape may flatten to one vector.
    """
    limit = longest_vector(model)
    if any(dim > limit for value in model.graph.inputs for dim in value.shape or () if isinstance(dim, int)):
        return True
    bounds: dict[Value, float] = {}
    for node in model.nodes():  # noqa: SIM110 -- nearly all operators are ruled out by the first test
        if node.op not in NEVER_LONGER and _may_lengthen(node, bounds, limit):
            return True
    return False


def _may_lengthen(node: Node, bounds: dict[Value, float], limit: int) -> bool:
    op = node.op
    if op in ("Flatten", "Reshape"):
        return _may_flatten(node)
    if op in _TOLD_A_SIZE:
        return _makes_long(node, bounds, limit)
    if op in SIZES_IN_ATTRIBUTES:
        return _states_long(node, limit)
    known = not op.startswith("call ") and node.schema is None
    return any(value is not None and not _is_small(value, limit, declared=known) for value in node.outputs)


def _is_small(value: Value, limit: int, *, declared: bool) -> bool:
    """Whether no dimension of the previously inferred shape exceeds a limit.

    Args:
        value: the value.
        limit: the limit.
        declared: whether inference uses its declared type only.
    """
    shape = value.shape
    if shape is None:
        return declared
    return all(dim <= limit if isinstance(dim, int) else declared for dim in shape)


def _may_flatten(node: Node) -> bool:
    source, result = node.input(0), node.output(0)
    shape = source.shape if source is not None else None
    if shape is not None and element_count(shape) <= _LONG:
        return False
    if node.op == "Flatten":
        return result is not None and any(user.op in ("Gather", "Squeeze") for user in result.users)
    target = node.input(1)
    array = target.const(64) if target is not None else None
    if array is not None:
        return array.size <= 1 or (array.size == 2 and -1 in array)
    producer = target.producer if target is not None else None
    if producer is None or producer.op == "Shape":
        return False
    return producer.op != "Concat" or len(producer.inputs) < 2


def follows_long_vectors(graph: onnx.GraphProto, limit: int, outer: Collection[str] = ()) -> bool:
    """Whether an operator that data propagation follows reads a vector above a length, in a graph with shapes.

    Args:
        graph: the graph.
        limit: the length.
        outer: long vectors of the enclosing graphs.
    """
    long = set(outer)
    for info in (*graph.value_info, *graph.input, *graph.output):
        dims = info.type.tensor_type.shape.dim
        if len(dims) == 1 and dims[0].dim_value > limit:
            long.add(info.name)
    if long and any(not long.isdisjoint(node.input) for node in graph.node if node.op_type in FOLLOWERS):
        return True
    return any(follows_long_vectors(each, limit, long) for each in bodies_of(graph))


_WIDE = 1 << 12
"""Sizes from which on the product of two is too long for a shape."""

_FLATTENING = frozenset({"Flatten", "Reshape", "Squeeze"})


def may_follow_products(model: Model, graph: onnx.GraphProto) -> bool:
    """Whether followed vectors of unknown length may be flattened tensors with a product of large computed sizes.

    If sizes are computed, the length of a flattened tensor is known only after contents are followed: too late.

    Args:
        model: the model.
        graph: its graph with the lengths inferred without contents.
    """
    bounds: dict[Value, float] = {}
    types = {info.name: info.type.tensor_type for info in (*graph.value_info, *graph.output)}
    if not any(dim.dim_value > _LONG for tensor in types.values() for dim in tensor.shape.dim) and not any(
        n.op in _GROWING and not _is_constant(n) and _makes_long(n, bounds, _WIDE) for n in model.nodes()
    ):
        return False
    unknown = {name for name, tensor in types.items() if _is_unknown_vector(tensor)}
    made = (node.output[0] for node in graph.node if node.op_type in _FLATTENING | _GROWING and node.output)
    risky = unknown.intersection(made)
    return bool(risky) and any(not risky.isdisjoint(n.input) for n in graph.node if n.op_type in FOLLOWERS)


def _is_constant(node: Node) -> bool:
    """Whether the operand that states the size is constant, so that it is known without following contents."""
    value = node.inputs[-1] if node.inputs else None
    return value is not None and value.is_const


def _is_unknown_vector(tensor: onnx.TypeProto.Tensor) -> bool:
    dims = tensor.shape.dim
    return len(dims) == 1 and not dims[0].HasField("dim_value")


def _largest(value: Value | None, known: dict[Value, float], depth: int = 0) -> float:
    """An upper bound of the numbers that propagation would compute from constants and fixed shapes; 0 if unknown."""
    if value is None or depth > DEEPEST:
        return 0
    if value not in known:
        known[value] = _work_out(value, known, depth)
    return known[value]


def _work_out(value: Value, known: dict[Value, float], depth: int) -> float:
    array, node = value.const(64), value.producer
    if array is not None:
        return max(_sizes(array), default=0) if array.dtype.kind in "iuf" else 0
    if node is None:
        return 0
    if node.op in ("Shape", "Size"):
        source = node.input(0)
        dims = [dim for dim in (source.shape or ()) if isinstance(dim, int)] if source is not None else []
        return float(math.prod(dims) if node.op == "Size" else max(dims, default=0))
    if node.op not in FOLLOWERS:
        return 0
    if node.op not in ("Add", "Concat", "Mul", "Sub"):
        return _largest(node.input(0), known, depth + 1)
    parts = [_largest(part, known, depth + 1) for part in node.inputs]
    return math.prod(parts) if node.op == "Mul" else max(parts, default=0) if node.op == "Concat" else sum(parts)


def _makes_long(node: Node, known: dict[Value, float], limit: int = _LONG) -> bool:
    if _states_long(node, limit):
        return True
    if node.inputs and _largest(node.inputs[-1], known) > limit:
        return True
    for value in node.inputs if node.op == "Range" else node.inputs[-2:]:
        array = value.const(64) if value is not None else None
        if array is None or array.dtype.kind not in "iuf" or not array.size:
            continue
        sizes = _sizes(array)
        if max(sizes) > limit or (node.op in _GROWING and math.prod([max(size, 1) for size in sizes]) > 4 * limit):
            return True
    return False


def _states_long(node: Node, limit: int) -> bool:
    """Whether an attribute states a size above a limit."""
    for name in SIZES_IN_ATTRIBUTES.get(node.op, ()):
        stated = node.attr(name)
        if stated is not None and max(stated if isinstance(stated, tuple) else (stated,), default=0) > limit:
            return True
    return False


def _sizes(array: Any) -> list[float]:
    return [abs(float(size)) for size in array.reshape(-1).tolist()]


def _followed(value: Value, sizes: dict[Value, int]) -> int:
    size = sizes.get(value)
    if size is None:
        tensor = value.constant_tensor
        if tensor is None or (tensor.nbytes > KEPT_BYTES and len(tensor.dims) != 1):
            return 0
        # For a long vector only the length is followed, which costs less.
        size = tensor.numel if tensor.nbytes <= KEPT_BYTES else tensor.numel // 16
    return size
