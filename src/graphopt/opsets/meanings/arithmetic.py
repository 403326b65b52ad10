"""Conversion of arithmetic: bounds, powers, casts and rounding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from graphopt.errors import Decline
from graphopt.ir import FLOAT_TYPES, Node, Value
from graphopt.ir.types import type_name
from graphopt.operators import Bounds
from graphopt.opsets import automatic
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.registry import down, number_like, up
from graphopt.rewrite import Rewriter
from graphopt.rewrite.operands import Operand

_LARGEST = 3.4028234663852886e38


@down(19, "Cast", "CastLike")
@down(24, "Cast", "CastLike")
def of_small_floats_alone(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Drop attributes for saturation and rounding, which affect casts to float8 only."""
    to = node.result.dtype if node.op_type == "CastLike" else node.attr("to")
    if to is not None and not type_name(to).startswith("float8"):
        stated = {name: None for name in ("saturate", "round_mode") if name in node.attrs}
        if stated:
            rw.set_attr(node, **stated)
    yield from automatic.down(node, change, rw)


@up(11, "Clip")
def bounds_as_operands(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Turn bounds into operands; default bounds of float stay omitted."""
    x = node.operand(0)
    kind = tensor_dtype_to_np_dtype(x.element_type())
    limits = {"min": -_LARGEST, "max": _LARGEST}
    numbers = {name: node.attr(name, limit) for name, limit in limits.items()}
    yield
    operands: dict[int, Any] = {
        index: np.asarray(numbers[name], kind)
        for index, name in enumerate(("min", "max"), 1)
        if x.dtype != TensorProto.FLOAT or numbers[name] != limits[name]
    }
    if operands or node.attrs:
        rw.set_inputs(node, operands, min=None, max=None)


@down(11, "Clip")
def bounds_as_attributes(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Turn constant bounds of float into attributes; for all others use `Max` and `Min`."""
    x = node.operand(0)
    bounds = [node.input(1), node.input(2)]
    numbers = [bound.array().item() for bound in bounds if bound is not None and bound.is_const]
    if any(map(np.isnan, numbers)):
        raise Decline("a bound of {} is NaN, which Clip ignores and Max and Min propagate", node.result.name)
    if x.dtype == TensorProto.FLOAT and all(bound is None or bound.is_const for bound in bounds) and _in_order(bounds):
        yield from automatic.down(node, change, rw)
        return
    if x.dtype not in FLOAT_TYPES:
        raise Decline("the element type of {} is not known to be a float", x.name)
    rw.replace(node, [_bounded(node, rw)])


def _in_order(bounds: Sequence[Value | None]) -> bool:
    """Whether min <= max, as the runtime requires of attributes."""
    limits = np.finfo(np.float32)
    low, high = (
        limit if bound is None else bound.array().item()
        for bound, limit in zip(bounds, (limits.min, limits.max), strict=True)
    )  # fmt: skip
    return bool(low <= high)


@down(12, "Clip")
def bounds_of_integers(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Replace a `Clip` of integers with `Max` and `Min`."""
    x = node.operand(0)
    if x.dtype is None or x.dtype in FLOAT_TYPES:
        yield from automatic.down(node, change, rw)
        return
    if node.input(1) is None and node.input(2) is None:
        rw.replace(node, [rw.op("Identity", x)])
        return
    rw.replace(node, [_bounded(node, rw)])


def _bounded(node: Node, rw: Rewriter) -> Any:
    """Compute `Clip` by `Max` and `Min`; a bound that is left out is the limit of the type."""
    x = node.operand(0)
    assert x.dtype is not None
    kind = np.dtype(tensor_dtype_to_np_dtype(x.dtype))
    limits = (np.finfo(kind).min, np.finfo(kind).max) if kind.kind == "f" else (None, None)
    result: Any = x
    for op_type, bound, limit in zip(("Max", "Min"), (node.input(1), node.input(2)), limits, strict=True):
        given = np.asarray(limit, kind) if bound is None and limit is not None else bound
        result = result if given is None else rw.op(op_type, result, given)
    return result


@down(12, "Max", "Min")
def greater_of_integers(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Choose between integers by `Greater` or `Less`; before opset 12 `Max` and `Min` support floats only."""
    x = node.operand(0)
    if x.dtype is None or x.dtype in FLOAT_TYPES:
        yield from automatic.down(node, change, rw)
        return
    result = x
    for other in node.inputs[1:]:
        assert other is not None
        chosen = rw.op("Greater" if node.op_type == "Max" else "Less", result, other)
        pair = [result, other]
        if x.dtype == TensorProto.UINT64:  # ONNX Runtime has no `Where` of them; casts keep their bits
            pair = [rw.op("Cast", each, to=TensorProto.INT64) for each in pair]
        result = rw.op("Where", chosen, *pair)
        result = result if x.dtype != TensorProto.UINT64 else rw.op("Cast", result, to=x.dtype)
    rw.replace(node, [rw.op("Identity", x) if result is x else result])


@down(12, "Pow")
def powers_of_one_type(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Give base and exponent one type; compute powers of integers in double precision, as runtimes do."""
    x, y = node.operand(0), node.operand(1)
    if x.dtype is None or y.dtype is None:
        raise Decline("the element types of {} and {} are not known", x.name, y.name)
    if x.dtype == y.dtype and x.dtype in FLOAT_TYPES:
        yield from automatic.down(node, change, rw)
        return
    power = y.const()
    kind = tensor_dtype_to_np_dtype(x.dtype)
    if x.dtype in FLOAT_TYPES and power is not None and bool((power.astype(kind) == power).all()):
        rw.set_input(node, 1, power.astype(kind))
        yield from automatic.down(node, change, rw)
        return
    wide = [rw.op("Cast", each, to=TensorProto.DOUBLE) for each in (x, y)]
    rw.replace(node, [rw.op("Cast", rw.op("Pow", *wide), to=x.dtype)])


@down(8, "Max", "Mean", "Min", "Sum")
def of_one_shape(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Give all operands one shape, as before opset 8: use `Add` for sums, `Clip` for bounds, else `Expand` operands."""
    operands = [node.operand(index) for index in range(len(node.inputs))]
    first = operands[0]
    if all(other.has_shape_of(first) for other in operands[1:]):
        yield from automatic.down(node, change, rw)
        return
    if node.op_type in ("Mean", "Sum"):
        total = _folded(rw, "Add", operands)
        if node.op_type == "Mean":
            total = rw.op("Div", total, number_like(first, len(operands)))
        rw.replace(node, [total])
        return
    if (bounds := _bounds_of(node)) is not None and bounds.x.dtype == TensorProto.FLOAT:
        rw.replace(node, [rw.op("Clip", bounds.x, min=float(bounds.low), max=float(bounds.high))])
        return
    known = node.result.shape is not None and all(isinstance(dim, int) for dim in node.result.shape)
    shape: Operand = np.asarray(node.result.shape, np.int64) if known else rw.op("Shape", _folded(rw, "Add", operands))
    # The same node reads them: a new one would be converted again, as its operands may not have one known shape.
    apart = {i: rw.op("Expand", each, shape) for i, each in enumerate(operands) if not each.has_shape_of(node.result)}
    rw.set_inputs(node, dict(apart))
    yield from automatic.down(node, change, rw)


def _folded(rw: Rewriter, op_type: str, operands: list[Value]) -> Value:
    result = operands[0]
    for other in operands[1:]:
        result = rw.op(op_type, result, other)
    return result


def _bounds_of(node: Node) -> Bounds | None:
    try:
        return Bounds.of(node)
    except Decline:
        return None
