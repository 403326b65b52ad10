"""Operators on signed bytes, written as operators on floats that other rules convert to unsigned bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from onnx import TensorProto

from graphopt.operators.window import Window
from graphopt.rewrite import Decline, Node, Numerics, Outcome, Rewriter, Value
from graphopt_passes.fusion.contrib.operands import DOMAIN, OnIntegers
from graphopt_passes.fusion.contrib.parameters import BYTES, are_ordinary
from graphopt_passes.fusion.contrib.signed import is_whole
from graphopt_passes.fusion.contrib.signed_moves import moves, path_of

_MOST_STEPS = 1.0
"""The most steps of the result that a product of two integers may be worth: sums of larger floats round by steps."""
_MOST_TOGETHER = 256
"""The most operators that are converted together, or not at all."""
_AXES_SINCE = 13
"""The first opset in which a scale may vary along an axis."""


@dataclass(frozen=True, slots=True)
class _Form:
    """The positions of the inputs of an operator on quantized values.

    Attributes:
        operands: the data, each followed by its scale and zero point.
        result: the scale of the result, followed by its zero point.
        bias: integers in units of the products, if any.
        axis: the axis along which the scales of a product's weight may vary, if the weight is not transposed.
        attrs: attributes of the operator on floats, with the defaults of the quantized one where these differ.
        check: declines if the operator on floats is not equivalent.
    """

    operands: tuple[int, ...] = (0,)
    result: int = 3
    bias: int | None = None
    axis: int | None = None
    attrs: dict[str, object] = field(default_factory=dict)
    check: Callable[[Node], None] = lambda node: None


def _check_gemm(node: Node) -> None:
    """Decline a product that is scaled, or whose operands do not fit: in a branch it loads, unlike a float `Gemm`."""
    if node.attr("alpha", 1.0) != 1.0:
        raise Decline("alpha, which scales {}, is not 1", node.result.name)
    rows, weight = node.operand(0), node.operand(3)
    if rows.rank != 2 or weight.rank != 2:
        raise Decline("{} or {} is not known to be a matrix", rows.name, weight.name)
    summed = rows.dims()[1 - int(node.attr("transA", 0))], weight.dims()[int(node.attr("transB", 0))]
    if len({size for size in summed if isinstance(size, int)}) > 1:
        raise Decline("rows of {} elements do not match columns of {}", *summed)


def _check_windows(node: Node) -> None:
    """Decline an average pool that the kernel for floats interprets differently, or does not support."""
    if node.attr("ceil_mode", 0) and node.attr("count_include_pad", 0):
        raise Decline("the windows of {} may count elements beyond the padding", node.result.name)
    kernel = node.attr("kernel_shape") or ()
    window = Window.of(node, kernel)
    if window.same and any(step > size for step, size in zip(window.strides, kernel, strict=True)):
        raise Decline("{} has gaps between windows, and auto_pad", node.result.name)


_WINDOWS = dict.fromkeys(("auto_pad", "kernel_shape", "pads", "strides"))
_FORMS = {
    "QLinearConv": _Form((0, 3), 6, bias=8, axis=0, attrs={**_WINDOWS, "dilations": None, "group": None}),
    "QLinearMatMul": _Form((0, 3), 6, axis=1),
    f"{DOMAIN}::QGemm": _Form((0, 3), 7, bias=6, axis=1, attrs={"transA": None, "transB": None}, check=_check_gemm),
    f"{DOMAIN}::QLinearAdd": _Form((0, 3), 6),
    f"{DOMAIN}::QLinearMul": _Form((0, 3), 6),
    f"{DOMAIN}::QLinearSigmoid": _Form(),
    f"{DOMAIN}::QLinearLeakyRelu": _Form(attrs={"alpha": 0.01}),
    f"{DOMAIN}::QLinearGlobalAveragePool": _Form(),
    f"{DOMAIN}::QLinearAveragePool": _Form(
        attrs={**_WINDOWS, "ceil_mode": None, "count_include_pad": None}, check=_check_windows
    ),
    f"{DOMAIN}::QLinearConcat": _Form(result=0, attrs={"axis": None}),
}


class ConvertSignedOperators(OnIntegers):
    """Replace operators on signed bytes with operators on floats between dequantize and quantize.

    `convert_int8_to_uint8` then makes the bytes between them unsigned, and `fuse_qdq_into_op` makes operators on bytes
    again, for which x86 has the faster kernels: products of signed with signed bytes take 4 to 6 times as long. Other
    operators, whose kernels are as fast for signed bytes, are converted only if all values that they read and compute
    are. On its own the pass makes models slower, so that only pipelines with those two have it.
    """

    # No pattern: a table states the inputs.
    ops = tuple(_FORMS)
    numerics = Numerics.ROUNDING
    default = False

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        form, zero = _FORMS[node.op], node.input(_FORMS[node.op].result + 1)
        if zero is None or zero.dtype != TensorProto.INT8:
            raise Decline
        if not rw.target.is_x86:
            raise Decline("the target is not x86 and has kernels for int8")
        places = _check_floats(node)
        if all(node.operand(at).is_const for at in places):
            raise Decline("{} is computed from constants only", node.result.name)
        if form.axis is None:
            _check_all_around(node)
        operands = [_dequantized(node, at, axis, rw) for at, axis in places.items()]
        bias = node.input(form.bias) if form.bias is not None else None
        if bias is not None:
            operands.append(_bias(node, bias, rw))
        attrs = {name: node.attrs.get(name, default) for name, default in form.attrs.items()}
        op_type = node.op_type.removeprefix("QLinear").removeprefix("Q")
        floats = rw.op(op_type, *operands, **attrs)
        return rw.replace(node, [rw.op("QuantizeLinear", floats, *_written(node, form.result, None, rw))])


def _check_floats(node: Node) -> dict[int, int | None]:
    """The inputs that are data, each with the axis of its scales, of an operator that has an equivalent on floats."""
    form = _FORMS[node.op]
    if node.attr("channels_last", 0):
        raise Decline("{} has channels last", node.result.name)
    form.check(node)
    joins = node.op == f"{DOMAIN}::QLinearConcat"
    axis = None if form.axis is None else form.axis - int(node.attr("transB", 0))
    first, *others = range(2, max(len(node.inputs), 3), 3) if joins else form.operands
    places = {first: None} | dict.fromkeys(others, axis)
    worth = 1.0
    for at, along in places.items():
        scales, _ = _parameters(node, at + 1, along)
        worth *= float(np.abs(scales).max(initial=0.0))
        if along == 1 and scales.ndim and node.operand(at).rank != 2:
            raise Decline("{} is not known to be a matrix", node.operand(at).name)
    if (bias := node.input(form.bias) if form.bias is not None else None) is not None:
        _units(node, bias)
    step = float(_parameters(node, form.result, None)[0])
    if axis is not None and worth > _MOST_STEPS * abs(step):
        raise Decline("a product of integers is worth {:.4g} steps of {}", worth / abs(step), node.result.name)
    return places


def _check_all_around(node: Node) -> None:
    """Decline unless all signed bytes become unsigned that this operator, and others that are converted for it, use.

    Products are converted whatever computes or reads their bytes, so nothing behind them is asked.
    """
    together = [node]
    for each in together:
        places, product = _check_floats(each), _FORMS[each.op].axis is not None
        if product:
            continue
        firsts = [path_of(each.operand(at))[-1] for at in places if not each.operand(at).is_const]
        others = [maker for first in firsts if (maker := _maker_of(first)) is not None]
        others += [reader for value in (*firsts, each.result) for reader in _readers_of(value)]
        together += [other for other in dict.fromkeys(others) if other not in together]
        if len(together) > _MOST_TOGETHER:
            raise Decline("more than {} operators would be converted together", _MOST_TOGETHER)


def _maker_of(value: Value) -> Node | None:
    """The operator of this table that computes signed bytes; None if they are quantized here."""
    maker = value.producer
    if maker is not None and maker.op in _FORMS:
        return maker
    if maker is None or maker.op != "QuantizeLinear" or not is_whole(maker):
        raise Decline("{} is not quantized per tensor in the model", value.name)
    return None


def _readers_of(value: Value) -> Iterator[Node]:
    """The operators of this table that read signed bytes, moved or not; declines if others than these do."""
    values = [value]
    for each in values:
        if each.output_count:
            raise Decline("{} is a graph output", each.name)
        if len(values) > _MOST_TOGETHER:
            raise Decline("{} is moved more than {} times", value.name, _MOST_TOGETHER)
        for user in each.users:
            if user.op == "Concat" or moves(each, user):
                values += [result for result in user.results if result not in values]
            elif user.op in _FORMS:
                yield user
            elif user.op != "DequantizeLinear" or not is_whole(user):
                raise Decline("{} is read by {}", each.name, user.op)


def _dequantized(node: Node, at: int, axis: int | None, rw: Rewriter) -> Value:
    """The floats that an operand stands for."""
    scale, zero = _written(node, at + 1, axis, rw)
    return rw.op("DequantizeLinear", node.operand(at), scale, zero, axis=axis if scale.array().ndim else None)


def _written(node: Node, at: int, axis: int | None, rw: Rewriter) -> tuple[Value, Value]:
    """The scale at input `at` and the zero point after it as constants of one shape."""
    scales, zeros = _parameters(node, at, axis)
    return _constant(scales, node.operand(at), rw), _constant(zeros, node.input(at + 1), rw)


def _constant(numbers: np.ndarray, given: Value | None, rw: Rewriter) -> Value:
    """The numbers of a constant in a given shape: the constant itself if it has that shape."""
    if given and given.array().shape == numbers.shape:
        return given
    return rw.constant(numbers, like=given)


def _parameters(node: Node, at: int, axis: int | None) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the scale at input `at` and of the zero point after it, of one shape."""
    scale, zero = node.operand(at), node.input(at + 1)
    scales, shape = scale.array(), ()
    if scales.dtype != np.float32 or not are_ordinary(np.abs(scales)):
        raise Decline("{} is not float32, or a scale is outside the supported range", scale.name)
    if scales.size != 1:
        if axis is None or scales.ndim != 1 or node.graph.opset() < _AXES_SINCE:
            raise Decline("{} is not per tensor, and per-axis scales are not supported there", scale.name)
        shape = scales.shape
    kind = BYTES.get((zero if zero is not None else node.operand(at - 1)).dtype or 0)
    if kind is None:
        raise Decline("{} is not quantized to 8 bits", node.operand(at - 1).name)
    zeros = node.array(at + 1, np.zeros((), kind))
    if zeros.size not in (1, scales.size):
        raise Decline("the scale and zero point of {} have different shapes", node.operand(at - 1).name)
    start = np.broadcast_to(zeros.reshape(shape if zeros.size == scales.size else ()), shape)
    return scales.reshape(shape), np.array(start, kind)


def _bias(node: Node, bias: Value, rw: Rewriter) -> Value:
    """The floats that a bias stands for, a row in units of the products."""
    scale = _units(node, bias)
    row = bias if bias.rank == 1 else rw.constant(bias.array().reshape(-1), like=bias)
    return rw.op("DequantizeLinear", row, rw.constant(scale), axis=0 if scale.ndim else None)


def _units(node: Node, bias: Value) -> np.ndarray:
    """The units of the products in which a bias counts; declines if it is not a constant row."""
    if not bias.is_const:
        raise Decline("{} is not constant", bias.name)
    units = np.asarray(node.operand(1).array().reshape(()) * node.operand(4).array(), np.float32)
    scale = units.reshape(()) if units.size == 1 else units
    *lead, size = bias.sizes() or (1,)
    if any(each != 1 for each in lead) or (scale.ndim and size != scale.size):
        raise Decline("{} does not have one number per column", bias.name)
    return scale
