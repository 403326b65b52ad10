"""Element types that an older version of an operator lacks: the node is computed in a wider type, between casts.

For operators that only move values, any type that holds all of them works. For comparisons the type must keep their
order; for integer arithmetic it must be an integer type, so that the cast back wraps overflow. Half precision is
computed in float and rounded at the end, as runtimes without half-precision kernels do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import onnx
from onnx import TensorProto, defs
from onnx.helper import tensor_dtype_to_np_dtype

from graphopt.errors import Decline
from graphopt.ir import Node, TensorType, Value, ValueType
from graphopt.ir.types import FLOAT_TYPES, HALF_TYPES, type_name
from graphopt.opsets.changes import Change, formal

if TYPE_CHECKING:
    from graphopt.rewrite import Rewriter

T = TensorProto

_WIDER: dict[int, tuple[int, ...]] = {
    T.BOOL: (T.UINT8, T.INT32, T.FLOAT), T.INT8: (T.INT32, T.INT64, T.FLOAT), T.UINT8: (T.INT32, T.INT64, T.FLOAT),
    T.INT16: (T.INT32, T.INT64, T.FLOAT), T.UINT16: (T.INT32, T.INT64, T.FLOAT), T.INT32: (T.INT64, T.DOUBLE),
    T.UINT32: (T.INT64, T.DOUBLE), T.FLOAT16: (T.FLOAT, T.DOUBLE), T.BFLOAT16: (T.FLOAT, T.DOUBLE),
    T.FLOAT: (T.DOUBLE,), T.INT4: (T.INT8, T.INT32, T.FLOAT), T.UINT4: (T.UINT8, T.INT32, T.FLOAT),
    T.FLOAT8E4M3FN: (T.FLOAT16, T.FLOAT), T.FLOAT8E4M3FNUZ: (T.FLOAT16, T.FLOAT), T.FLOAT8E5M2: (T.FLOAT16, T.FLOAT),
    T.FLOAT8E5M2FNUZ: (T.FLOAT16, T.FLOAT), T.FLOAT4E2M1: (T.FLOAT16, T.FLOAT),
}  # fmt: skip
"""Types that represent every number of a type exactly, the narrowest first."""
for _name, _wider in (("INT2", (T.INT8, T.INT32, T.FLOAT)), ("UINT2", (T.UINT8, T.INT32, T.FLOAT))):
    if hasattr(T, _name):  # not before onnx 1.20
        _WIDER[getattr(T, _name)] = _wider

MOVING = frozenset(
    {
        "Compress", "Concat", "ConcatFromSequence", "ConstantOfShape", "DepthToSpace", "Expand", "Flatten",
        "Gather", "GatherElements", "GatherND", "Identity", "OneHot", "Pad", "Reshape", "ReverseSequence",
        "Scatter", "ScatterElements", "ScatterND", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose",
        "Trilu", "Unsqueeze", "Upsample", "Where", "MaxUnpool",
    }
)  # fmt: skip
"""Operators that only move elements."""

COMPARING = frozenset(
    {
        "Abs", "ArgMax", "ArgMin", "Clip", "DequantizeLinear", "Equal", "Greater", "GreaterOrEqual", "Less",
        "LessOrEqual", "Max", "MaxPool", "Min", "NonZero", "ReduceMax", "ReduceMin", "Relu", "Shape", "Sign",
        "Size", "TopK", "Unique",
    }
)  # fmt: skip
"""Operators that only compare elements, and return elements, positions or truth values."""

COUNTING = frozenset(
    {
        "Add", "CumSum", "Div", "MatMul", "Mod", "Mul", "Neg", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Sub",
        "Sum", "Gemm", "Range",
    }
)  # fmt: skip
"""Operators whose integer arithmetic equals that of the wider type, except for overflow."""

_STATED = 1 << 26
"""Most bytes of a constant that is converted itself instead of by a `Cast`."""


def text(value_type: ValueType | None) -> str | None:
    """A type in the notation of schemas, such as `tensor(float)`; None if it is not known."""
    if value_type is None:
        return None
    if isinstance(value_type, TensorType):
        return f"tensor({type_name(value_type.dtype)})"
    return _of_proto(value_type)


def _of_proto(proto: onnx.TypeProto) -> str | None:
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        return f"tensor({type_name(proto.tensor_type.elem_type)})"
    if kind in ("sequence_type", "optional_type"):
        inner = _of_proto(getattr(proto, kind).elem_type)
        return None if inner is None else f"{'seq' if kind == 'sequence_type' else 'optional'}({inner})"
    return None


def lacking(node: Node, schema: defs.OpSchema) -> Iterator[tuple[Value, defs.OpSchema.FormalParameter]]:
    """The inputs and outputs of a node whose types a version of its operator lacks, or does not allow together."""
    for values, parameters in ((node.inputs, schema.inputs), (node.outputs, schema.outputs)):
        for index, value in enumerate(values):
            parameter = formal(parameters, index)
            known = None if value is None else text(value.type)
            if value is not None and parameter is not None and known is not None and known not in parameter.types:
                yield value, parameter
    yield from _apart(node, schema)


def _apart(node: Node, schema: defs.OpSchema) -> Iterator[tuple[Value, defs.OpSchema.FormalParameter]]:
    """Inputs of different types that must have the same type in a version: all but those of the widest type."""
    alike: dict[str, list[tuple[Value, defs.OpSchema.FormalParameter]]] = {}
    for index, value in enumerate(node.inputs):
        parameter = formal(schema.inputs, index)
        if value is not None and value.dtype and parameter is not None and parameter.is_homogeneous:
            alike.setdefault(parameter.type_str, []).append((value, parameter))
    for pairs in alike.values():
        kinds = {value.dtype for value, _ in pairs}
        widest = next((kind for kind in kinds if all(kind in _WIDER.get(each or 0, ()) for each in kinds - {kind})), 0)
        yield from (pair for pair in pairs if len(kinds) > 1 and pair[0].dtype != widest)


def carry(node: Node, change: Change, schema: defs.OpSchema, rw: Rewriter) -> None:
    """Compute a node in types that another version of its operator has, between casts.

    Args:
        node: a node with a type that the other version lacks.
        change: the change of its operator.
        schema: the other version.
        rw: the gate, begun at the node.

    Raises:
        Decline: the other version has no type that represents every number of a missing type and gives the same
            results.
    """
    own = change.before if schema is change.after else change.after
    if own is None or node.subgraphs or node.op != node.op_type or node.op == "Cast":
        raise _refusal(change, schema, next(lacking(node, schema))[0])
    carriers: dict[str, int] = {}
    for value, parameter in lacking(node, schema):
        if value.dtype is None:
            raise _refusal(change, schema, value)
        name = parameter.type_str
        carriers[name] = carriers.get(name) or _carrier(node, value.dtype, (own, schema), name)
        if not carriers[name]:
            raise _refusal(change, schema, value)
    inputs = [_cast(rw, value, carriers.get(_type_str(schema.inputs, i))) for i, value in enumerate(node.inputs)]
    count = max((i + 1 for i, value in enumerate(node.outputs) if value is not None and value.uses), default=1)
    stated = _attributes(node, carriers, schema)
    results = rw.outputs(count, node.op_type, *inputs, domain=node.domain, **stated)
    found: list[Value] = []
    for index, (old, new) in enumerate(zip(node.outputs, results, strict=False)):
        carried = _type_str(schema.outputs, index) in carriers
        found.append(_cast_back(rw, new, old.dtype) if carried and old is not None else new)
    rw.replace(node, found)


def _cast_back(rw: Rewriter, value: Value, dtype: int | None) -> Value:
    """Cast a result back; to float8 without saturation, which would turn infinities into the largest number."""
    small = dtype is not None and type_name(dtype).startswith("float8")
    attrs: dict[str, Any] = {"saturate": 0} if small else {}
    return rw.op("Cast", value, to=dtype, **attrs)


def _attributes(node: Node, carriers: dict[str, int], schema: defs.OpSchema) -> dict[str, Any]:
    """The attributes of the node in wider types; declines if one of them states an element type."""
    if "dtype" in node.attrs or (carriers and node.op_type in ("ConstantOfShape", "Constant")):
        raise Decline("its element type is not supported there at opset {}", schema.since_version)
    return dict(node.attrs)


def _type_str(parameters: Any, index: int) -> str:
    parameter = formal(parameters, index)
    return "" if parameter is None else parameter.type_str


def _cast(rw: Rewriter, value: Value | None, dtype: int | None) -> Value | None:
    if value is None or dtype is None or value.dtype == dtype:
        return value
    array = value.const(_STATED)
    if array is not None:
        return rw.constant(array.astype(tensor_dtype_to_np_dtype(dtype)), like=value)
    return rw.op("Cast", value, to=dtype)


def _carrier(node: Node, dtype: int, schemas: tuple[defs.OpSchema, defs.OpSchema], name: str) -> int:
    """The narrowest type in which the node gives the same results, 0 if there is none."""
    for wider in _WIDER.get(dtype, ()):
        if not _computes(node.op_type, dtype, wider):
            continue
        written = f"tensor({type_name(wider)})"
        formals = [p for schema in schemas for p in (*schema.inputs, *schema.outputs) if p.type_str == name]
        if formals and all(written in parameter.types for parameter in formals):
            return wider
    return 0


def _computes(op_type: str, dtype: int, wider: int) -> bool:
    """Whether an operator gives the same results in a wider type."""
    if op_type in MOVING or op_type in COMPARING:
        return True
    if dtype in FLOAT_TYPES:
        return dtype in HALF_TYPES
    return op_type in COUNTING and wider not in FLOAT_TYPES


def _refusal(change: Change, schema: defs.OpSchema, value: Value) -> Decline:
    where = "from opset {} on" if schema is change.after else "before opset {}"
    return Decline("{} does not take {} " + where, change.op_type, text(value.type), change.version)
