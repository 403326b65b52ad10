"""Forms of operators, mainly of older opsets, that onnx's reference evaluator does not compute as the standard states.

It has one implementation for most operators, that of the newest opset, and silently accepts attributes of older
opsets: broadcasting along `axis`, softmax over all axes from an axis on, fixed statistics. A form that neither
computes correctly, such as training, raises `NotImplementedError`: then nothing is concluded about the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx.reference.op_run import OpRun

from graphopt.verify.values import Array

_Compute = Callable[..., Array]

_ELEMENTWISE: dict[str, _Compute] = {
    "Add": np.add, "And": np.logical_and, "Equal": np.equal, "Greater": np.greater, "Less": np.less,
    "Mul": np.multiply, "Or": np.logical_or, "Pow": np.power, "Sub": np.subtract, "Xor": np.logical_xor,
}  # fmt: skip
_AXIS_FROM_ONE = 13
"""The first opset in which softmax is along one axis."""
_AVERAGE = "AveragePool"
_INTO = "consumed_inputs"
_WRITES_NOWHERE = 6
"""The first opset in which operators have no such attribute."""
_NUMPY_BROADCASTS = 7
"""The first opset in which operands are broadcast as in NumPy."""
_SHAPE_IS_OPERAND = 5
"""The first opset in which the shape of Reshape is an operand."""
_TRAINS_IF_TOLD = 14
"""The first opset in which an attribute of BatchNormalization states whether it trains."""


def corrected(opset: int) -> list[type[OpRun]]:
    """Implementations that replace the evaluator's own, for models of a standard opset."""
    return [_implementation(op, opset, compute) for op, compute in _of(opset)]


def readable(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """A model of a standard opset in a form that the evaluator computes correctly.

    It fails on `consumed_inputs` (in-place operands), and counts padding in averages unless an attribute excludes it.
    """
    if opset >= _NUMPY_BROADCASTS or not any(node.op_type == _AVERAGE or _writes(node) for node in model.graph.node):
        return model
    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    for node in plain.graph.node:
        told = [attribute for attribute in node.attribute if attribute.name != _INTO]
        del node.attribute[:]
        node.attribute.extend(told)
        if node.op_type == _AVERAGE:
            node.attribute.append(onnx.helper.make_attribute("count_include_pad", 0))
    return plain


def _writes(node: onnx.NodeProto) -> bool:
    return any(attribute.name == _INTO for attribute in node.attribute)


def _of(opset: int) -> Iterator[tuple[str, _Compute]]:
    yield "LRN", _lrn
    yield "GlobalMaxPool", _global_max_pool
    if opset < _TRAINS_IF_TOLD:
        yield "BatchNormalization", _normalized
    if opset < _AXIS_FROM_ONE:
        rowwise = {"Softmax": _softmax, "LogSoftmax": _log_softmax, "Hardmax": _hardmax}
        yield from ((op, _in_rows(compute)) for op, compute in rowwise.items())
    if opset < _NUMPY_BROADCASTS:
        yield from (("PRelu", _prelu), ("Dropout", _kept), ("Gemm", _gemm))
        yield from (("Reshape", _reshaped),) if opset < _SHAPE_IS_OPERAND else ()
        yield "Div", _aligned(lambda a, b: a / b if a.dtype.kind == "f" else np.trunc(a / b))
        yield from ((op, _aligned(compute)) for op, compute in _ELEMENTWISE.items())


def _implementation(op: str, opset: int, compute: _Compute) -> type[OpRun]:
    def run(self: OpRun, *operands: Array, **attributes: Any) -> tuple[Array, ...]:
        if len(list(filter(None, self.onnx_node.output))) > 1:
            raise NotImplementedError(f"{op} with more than one output")
        result = compute(*operands, **attributes)
        return (result if result.dtype == bool else result.astype(operands[0].dtype),)

    schema = onnx.defs.get_schema(op, max(opset, _WRITES_NOWHERE), "")
    return type(op, (OpRun,), {"op_domain": "", "op_schema": schema, "_run": run})


def _aligned(compute: _Compute) -> _Compute:
    """An elementwise operator whose second operand is aligned with the axes from `axis` on, by default the last."""

    def run(a: Array, b: Array, axis: int | None = None, broadcast: int = 0, **_: Any) -> Array:
        if broadcast and axis is not None:
            behind = a.ndim - axis % a.ndim - b.ndim
            b = b.reshape(*b.shape, *(1,) * behind)
        return compute(a, b)

    return run


def _prelu(x: Array, slope: Array, **_: Any) -> Array:
    """Compute PRelu with one slope, or one per channel."""
    slope = slope.reshape(-1, *(1,) * max(x.ndim - 2, 0)) if slope.size > 1 else slope.reshape(())
    return np.where(x > 0, x, x * slope)


def _gemm(a: Array, b: Array, c: Array, *, alpha: float, beta: float, **told: Any) -> Array:
    result: Array = alpha * ((a.T if told["transA"] else a) @ (b.T if told["transB"] else b)) + beta * c
    return result


def _reshaped(x: Array, shape: list[int], **_: Any) -> Array:
    return x.reshape([x.shape[axis] if size == 0 else size for axis, size in enumerate(shape)])


def _kept(x: Array, is_test: int = 0, **_: Any) -> Array:
    if not is_test:
        raise NotImplementedError("Dropout that trains")
    return x


def _in_rows(compute: Callable[[Array], Array]) -> _Compute:
    """An operator on rows, into which all axes from `axis` on are flattened."""

    def run(x: Array, axis: int = 1) -> Array:
        if not x.size:
            return x
        axis = axis % x.ndim if axis < 0 else axis
        rows = x.reshape(int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:])))
        return compute(rows).reshape(x.shape)

    return run


def _softmax(rows: Array) -> Array:
    powers = np.exp(rows - rows.max(axis=1, keepdims=True))
    result: Array = powers / powers.sum(axis=1, keepdims=True)
    return result


def _log_softmax(rows: Array) -> Array:
    below = rows - rows.max(axis=1, keepdims=True)
    result: Array = below - np.log(np.exp(below).sum(axis=1, keepdims=True))
    return result


def _hardmax(rows: Array) -> Array:
    largest: Array = np.arange(rows.shape[1]) == rows.argmax(axis=1)[:, None]
    return largest.astype(rows.dtype)


def _normalized(x: Array, *given: Array, epsilon: float, spatial: int = 1, is_test: int = 1, **_: Any) -> Array:
    """Compute BatchNormalization. Before opset 14 only further outputs indicate training, before 7 also `is_test`."""
    if not is_test:
        raise NotImplementedError("BatchNormalization that trains")
    behind = (1,) * (x.ndim - 2) if spatial else ()
    scale, bias, mean, variance = (each.reshape(*each.shape, *behind) for each in given)
    result: Array = scale * (x - mean) / np.sqrt(variance + epsilon) + bias
    return result


def _lrn(x: Array, size: int, alpha: float, beta: float, bias: float) -> Array:
    before, channels = (size - 1) // 2, x.shape[1]
    sums = np.stack(
        [np.square(x[:, max(0, c - before) : c + size - before]).sum(axis=1) for c in range(channels)], axis=1
    )
    result: Array = x / (bias + alpha / size * sums) ** beta
    return result


def _global_max_pool(x: Array) -> Array:
    result: Array = x.max(axis=tuple(range(2, x.ndim)), keepdims=True)
    return result
