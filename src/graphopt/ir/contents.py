"""Checks that the size of a tensor's data matches its type and dimensions; other models are refused."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto

from graphopt.errors import ModelError
from graphopt.ir.types import element_bits

_LARGEST = (1 << 63) - 1
"""The largest dimension and number of elements: ONNX and its runtimes count in int64."""

_FIELDS: dict[int, tuple[str, int]] = {
    TensorProto.FLOAT: ("float_data", 32), TensorProto.COMPLEX64: ("float_data", 32),
    TensorProto.DOUBLE: ("double_data", 64), TensorProto.COMPLEX128: ("double_data", 64),
    TensorProto.INT64: ("int64_data", 64), TensorProto.UINT32: ("uint64_data", 32),
    TensorProto.UINT64: ("uint64_data", 64),
}  # fmt: skip
"""The field for elements of a type outside `raw_data`, and bits of one entry; `int32_data` for all other types."""


HOLDING_TENSORS = frozenset({
    AttributeProto.TENSOR, AttributeProto.TENSORS, AttributeProto.SPARSE_TENSOR, AttributeProto.SPARSE_TENSORS,
})  # fmt: skip
"""Types of attributes that `check_attribute` checks."""


def check_dims(dims: Sequence[int], what: str) -> None:
    """Refuse dimensions that no tensor can have.

    Raises:
        ModelError: a dimension is negative, or the number of elements exceeds 63 bits.
    """
    if min(dims, default=0) < 0:
        raise ModelError(f"{what} has negative dimensions: {list(dims)}")
    count = math.prod(dims)
    if count > _LARGEST or (not count and math.prod(dim for dim in dims if dim) > _LARGEST):
        raise ModelError(f"{what} has more elements than can be counted: dimensions {list(dims)}")


def check_tensor(proto: TensorProto, what: str, lifted: int | None = None) -> bytes | None:
    """Refuse a tensor whose data is longer or shorter than its dimensions require.

    Args:
        proto: the tensor. External data is checked where it is located, not here.
        what: its name in messages.
        lifted: the size of its raw data in bytes, if that was left in the model's file.

    Returns:
        A copy of its raw data if it has some: protobuf tells the length in no other way.

    Raises:
        ModelError: the size of the data does not match, or the dimensions are impossible.
    """
    dims, dtype = tuple(proto.dims), proto.data_type
    is_external = proto.data_location == TensorProto.EXTERNAL
    if lifted is None and not is_external and proto.HasField("raw_data"):
        raw = proto.raw_data
        if 8 * len(raw) == math.prod(dims) * (element_bits(dtype) or 0) and min(dims, default=1) > 0:
            return raw  # nearly all tensors are like this
    check_dims(dims, what)
    count = math.prod(dims)
    if is_external and lifted is None:
        return None
    if dtype == TensorProto.STRING:
        _compare(what, dims, count, len(proto.string_data), "strings")
        return None
    bits = element_bits(dtype)
    if bits is None:
        return None
    if lifted is not None or proto.HasField("raw_data"):
        held = proto.raw_data if lifted is None else None
        found = lifted if held is None else len(held)
        _compare(what, dims, (count * bits + 7) // 8, found or 0, "bytes")
        return held
    field, width = _FIELDS.get(dtype, ("int32_data", 0))
    each = bits / width if width else min(bits / 8, 1)
    _compare(what, dims, math.ceil(count * each), len(getattr(proto, field)), f"numbers in {field}")
    return None


def _compare(what: str, dims: tuple[int, ...], expected: int, found: int, unit: str) -> None:
    if expected != found:
        raise ModelError(f"{what} of dimensions {list(dims)} needs {expected} {unit}, it has {found}")


def check_sparse(proto: SparseTensorProto, what: str) -> None:
    """Refuse a sparse tensor whose values or indices do not match their dimensions; see `check_tensor`."""
    check_dims(tuple(proto.dims), what)
    check_tensor(proto.values, f"the values of {what}")
    check_tensor(proto.indices, f"the indices of {what}")


def check_attribute(proto: AttributeProto, what: str) -> None:
    """Refuse an attribute with a tensor whose data does not match its dimensions; see `check_tensor`."""
    kind = proto.type
    if kind == AttributeProto.TENSOR:
        check_tensor(proto.t, what)
    elif kind == AttributeProto.SPARSE_TENSOR:
        check_sparse(proto.sparse_tensor, what)
    elif kind == AttributeProto.TENSORS:
        for tensor in proto.tensors:
            check_tensor(tensor, what)
    elif kind == AttributeProto.SPARSE_TENSORS:
        for sparse in proto.sparse_tensors:
            check_sparse(sparse, what)


def check_model(proto: ModelProto) -> None:
    """Refuse a model with a tensor whose data does not match its dimensions; see `check_tensor`."""
    _check_graph(proto.graph)
    for function in proto.functions:
        _check_nodes(function.node)


def _check_graph(graph: GraphProto) -> None:
    for tensor in graph.initializer:
        check_tensor(tensor, f"tensor {tensor.name!r}")
    for sparse in graph.sparse_initializer:
        check_sparse(sparse, f"sparse tensor {sparse.values.name!r}")
    _check_nodes(graph.node)


def _check_nodes(nodes: Iterable[NodeProto]) -> None:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                _check_graph(attribute.g)
            elif attribute.type in HOLDING_TENSORS:
                check_attribute(attribute, f"attribute {attribute.name!r} of {node.op_type} node {node.name!r}")
