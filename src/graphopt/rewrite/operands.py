"""Element types of operands, and the type parameters of an operator's schema that relate them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from onnx import TensorProto, defs

from graphopt.analysis.nodes import dtype_of_output
from graphopt.errors import Decline
from graphopt.ir import FLOAT8_TYPES, Node, Value
from graphopt.ir.numpy_types import element_type, numpy_type
from graphopt.ir.schema import element_types
from graphopt.ir.types import NARROW_TYPES, type_name

T = TypeVar("T")
Operand = Value | np.ndarray | None


class TypeParameter(NamedTuple):
    """The type parameter of an operand or result in the schema.

    Attributes:
        name: its name; all operands and results with the same parameter have the same type.
        allowed: the allowed element types.
        shared: False if each of a variable number of operands has its own type.
    """

    name: str
    allowed: frozenset[int]
    shared: bool


Parameters = tuple[TypeParameter, ...]
"""The type parameters of operands or results in order; the last one applies to all that follow."""


@lru_cache(maxsize=2048)
def parameters(op_type: str, domain: str, opset: int) -> tuple[Parameters, Parameters]:
    """The type parameters of an operator's operands and of its results.

    Args:
        op_type: operator name.
        domain: operator domain.
        opset: version of the domain.

    Returns:
        Empty tuples for operators that the `onnx` package does not know.
    """
    try:
        schema = defs.get_schema(op_type, opset, domain)
    except (defs.SchemaError, RuntimeError, TypeError):  # the last for a version beyond 32 bits
        return (), ()
    return _parameters(schema.inputs), _parameters(schema.outputs)


def _parameters(formals: Iterable[defs.OpSchema.FormalParameter]) -> Parameters:
    return tuple([TypeParameter(each.type_str, element_types(each.types), each.is_homogeneous) for each in formals])


def agreeing(node: Node, operands: Sequence[Operand]) -> list[Operand]:
    """The operands of a node, with new integer constants cast to the type that the schema requires beside others.

    For example, the starts, ends and axes of a `Slice` must all be int32 or all int64: new ones take the type of those
    that stay. If a number does not fit, the constant is not cast, and the gate rejects the node.

    Args:
        node: the node; its present inputs are ignored.
        operands: its operands in order; arrays are new constants.
    """
    found = list(operands)
    lists = [i for i, each in enumerate(found) if isinstance(each, np.ndarray) and each.dtype.kind in "iu"]
    if not lists or len(found) == len(lists):
        return found
    known, _ = parameters(node.op_type, node.domain, node.graph.opset(node.domain))
    types = {
        at.name: dtype
        for each, at in paired(found, known)
        if isinstance(each, Value) and at.shared and (dtype := _element_type(each)) is not None
    }
    for index, (each, at) in enumerate(paired(found, known)):
        if index in lists and isinstance(each, np.ndarray) and at.shared and at.name in types:
            found[index] = _cast(each, types[at.name])
    return found


def _cast(array: np.ndarray, dtype: int) -> np.ndarray:
    kind = numpy_type(dtype)
    if kind.kind not in "iu" or kind == array.dtype:
        return array
    cast = array.astype(kind)
    return cast if np.array_equal(cast, array) else array


def paired(values: Sequence[T], known: Parameters) -> list[tuple[T, TypeParameter]]:
    """Operands or results, each with its type parameter; an empty list if none are known."""
    if not known:
        return []
    more = len(values) - len(known)
    return list(zip(values, (*known, *[known[-1]] * more) if more > 0 else known, strict=False))


def check_operand_types(node: Node, operands: Sequence[Operand]) -> None:
    """Check that an operator supports the element types of its operands.

    Args:
        node: the node; its present inputs are ignored.
        operands: its operands in order; arrays are new constants.

    Raises:
        Decline: a known type disagrees with the schema.
    """
    domain, opsets = node.domain, node.graph.opsets
    known, _ = parameters(node.op_type, domain, opsets.get(domain, 0))
    types: dict[str, int] = {}
    for operand, at in paired(operands, known):
        dtype = _element_type(operand) if operand is not None and at.allowed else None
        if dtype is None:
            continue
        if dtype not in at.allowed or (at.shared and types.setdefault(at.name, dtype) != dtype):
            name = operand.name if isinstance(operand, Value) else ""
            kind = type_name(dtype)
            raise Decline("{} does not take {} of element type {}", node.op_type, name or "an operand", kind)


_OF_NARROW = frozenset({"Cast", "CastLike", "DequantizeLinear", "QuantizeLinear", "Transpose"})
_OF_FLOAT8 = _OF_NARROW | {"Identity", "IsInf", "IsNaN", "Reshape", "Shape"}
"""The standard's operators that ONNX Runtime has kernels of for elements of fewer than 8 bits, and for 8-bit floats."""
_NOT_OF_BFLOAT16 = frozenset({"DepthToSpace", "Expand", "Size", "SpaceToDepth", "Tile", "Where"})
"""Operators that it has kernels of for all other types of common size."""


def _is_lacking(op: str, dtype: int) -> bool:
    if dtype in NARROW_TYPES:
        return op not in _OF_NARROW
    if dtype in FLOAT8_TYPES:
        return op not in _OF_FLOAT8
    return dtype == TensorProto.BFLOAT16 and op in _NOT_OF_BFLOAT16


def check_kernel(node: Node, at: Node) -> None:
    """Check that an operator is not added for an element type for which the runtime, which has others, lacks it.

    Args:
        node: the node, not linked yet.
        at: the node that it replaces. What the runtime lacks for that one's operands does not matter, nor what a
            function or subgraph contains already, or the standard's body of an operator.

    Raises:
        Decline: it is.
    """
    lead = _lead(node)
    if lead is not None and lead.dtype in NARROW_TYPES and lead.dtype != getattr(_lead(at), "dtype", None):
        raise Decline("the runtime has no {} whose first result has element type {}", node.op, type_name(lead.dtype))
    if node.domain or node.subgraphs or at.subgraphs or at.op.startswith("call "):
        return
    if at.schema is not None and at.schema.has_function:
        return
    before = {value.dtype for value in at.inputs if value is not None} if at.op == node.op else ()
    for operand in node.inputs:
        dtype = _element_type(operand)
        if dtype is not None and dtype not in before and _is_lacking(node.op, dtype):
            raise Decline("the runtime has no {} for element type {}", node.op, type_name(dtype))


def _lead(node: Node) -> Value | None:
    """The value in a body that is the first result of control flow, whose type selects the kernel."""
    for body in node.subgraphs.values():
        return next(iter(body.outputs[1 if node.op == "Loop" else 0 :]), None)
    return None


def _element_type(operand: Operand) -> int | None:
    if isinstance(operand, np.ndarray):
        return element_type(operand.dtype)
    if operand is None:
        return None
    dtype = operand.dtype
    if dtype is None and operand.producer is not None:
        return dtype_of_output(operand.producer, operand.index)
    return dtype
