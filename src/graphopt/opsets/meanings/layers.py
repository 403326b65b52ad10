"""Network layers: softmax and its axis, normalization, dropout, products with a bias, recurrent layers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from graphopt.errors import Decline
from graphopt.ir import Dim, Node, Value
from graphopt.opsets import automatic
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.registry import Step, down, number_like, typed, up
from graphopt.opsets.meanings.reshaping import reshaped
from graphopt.rewrite import Rewriter

_SOFTMAX = ("Hardmax", "LogSoftmax", "Softmax")


@up(13, *_SOFTMAX)
def along_one_axis(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Convert softmax over all axes from `axis` on: flatten them, if more than one of them has a size other than 1."""
    x, axis = node.operand(0), node.attr("axis", 1)
    rest = None if x.shape is None else x.shape[x.axis(axis) :]
    yield
    x = node.operand(0)
    if axis == -1 or (rest is not None and sum(dim != 1 for dim in rest) <= 1):
        longer = [at for at, dim in enumerate(rest or (), -len(rest or ())) if dim != 1]
        rw.set_attr(node, axis=longer[0] if longer else axis)
    elif x.shape is not None and 0 in x.shape:
        rw.replace(node, [rw.op("Identity", x)])  # empty; in a `Reshape` zeros would copy sizes of the flattened value
    else:
        rw.replace(node, [_along_one(node, x, axis, rest, rw)])


def _along_one(node: Node, x: Value, axis: int, rest: Sequence[Dim] | None, rw: Rewriter) -> Value:
    if rest is not None and len(sizes := [dim for dim in rest if isinstance(dim, int)]) == len(rest):
        before = [0] * (len(x.dims()) - len(sizes))  # the sizes of these axes are copied
        flat = rw.op("Reshape", x, np.asarray([*before, math.prod(sizes)], np.int64))
        return rw.op("Reshape", rw.op(node.op_type, flat, axis=-1), np.asarray([*before, *sizes], np.int64))
    flat = rw.op(node.op_type, rw.op("Flatten", x, axis=axis), axis=1)
    first = None if x.shape is None or rest is None else len(x.shape) - len(rest)
    # The sizes of the flattened value are products of several sizes, also at these axes.
    copied = {0} if first is None or first > 1 else {0, 1} if first else {1}
    return reshaped(rw, flat, rw.op("Shape", x), x.shape, copied=copied)


@down(13, *_SOFTMAX)
def over_the_last_axis(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Transpose the axis to the last one, unless all axes after it have size 1."""
    x, axis = node.operand(0), node.attr("axis", -1)
    if axis != -1 and any(dim != 1 for dim in x.dims()[x.axis(axis) + 1 :]):
        perm = list(range(len(x.dims())))
        perm[axis], perm[-1] = perm[-1], perm[axis]
        last = rw.op(node.op_type, rw.op("Transpose", x, perm=perm), axis=-1)
        rw.replace(node, [rw.op("Transpose", last, perm=perm)])
        return
    yield
    rw.set_attr(node, axis=axis)


@up(14, "BatchNormalization")
def training_by_attribute(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Set training_mode if there is more than one output, which indicates training, even if it has no uses."""
    if all(value is None for value in node.outputs[1:]):
        yield from automatic.up(node, change, rw)
        return
    if any(value is not None and value.uses for value in node.outputs[3:]):
        raise Decline("saved_mean and saved_var were removed in opset 14")
    yield
    attrs = {**node.attrs, "training_mode": 1}
    rw.replace(node, rw.outputs(3, "BatchNormalization", *node.inputs, **attrs))


@down(14, "BatchNormalization")
def training_written_out(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Write out training, which normalizes by the mean and variance of the batch."""
    if not node.attr("training_mode", 0):
        yield from automatic.down(node, change, rw)
        return
    x, scale, bias, mean, variance = (node.operand(i) for i in range(5))
    rank = len(x.dims())
    if x.dtype is None or not x.dtype == scale.dtype == mean.dtype:
        raise Decline("its operands have different element types")
    kind = tensor_dtype_to_np_dtype(x.dtype)
    axes, behind = [0, *range(2, rank)], list(range(1, rank - 1))

    def of_channels(value: Value) -> Value:
        return rw.op("Unsqueeze", value, axes=behind) if behind else value

    middle = rw.op("ReduceMean", x, axes=axes, keepdims=0)
    centred = rw.op("Sub", x, of_channels(middle))
    spread = rw.op("ReduceMean", rw.op("Mul", centred, centred), axes=axes, keepdims=0)
    deviation = rw.op("Sqrt", rw.op("Add", spread, np.asarray(node.attr("epsilon"), kind)))
    factor = rw.op("Div", scale, deviation)
    y = rw.op("Add", rw.op("Mul", centred, of_channels(factor)), of_channels(bias))
    momentum = node.attr("momentum")
    running = [
        rw.op("Add", rw.op("Mul", old, np.asarray(momentum, kind)), rw.op("Mul", new, np.asarray(1 - momentum, kind)))
        for old, new in ((mean, middle), (variance, spread))
    ]
    rw.replace(node, [y, *running][: len(node.outputs)])


@up(10, "ThresholdedRelu")
@up(17, "LayerNormalization")
def from_the_runtime(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Keep operators that ONNX Runtime had before the standard, under the same names, in models that it saved."""
    x = node.operand(0)
    if x.dtype is not None and any(v is not None and v.dtype not in (None, x.dtype) for v in node.inputs):
        raise Decline("its operands have different element types")
    yield
    rw.replace(node, rw.outputs(len(node.outputs), node.op_type, *node.inputs, **node.attrs))


@down(17, "LayerNormalization")
@down(23, "RMSNormalization")
def of_mean_and_deviation(node: Node, change: Change, rw: Rewriter) -> None:
    """Write out the normalization by mean((x - mean(x))^2); the standard's mean(x^2) - mean(x)^2 would cancel."""
    x, scale, bias = node.operand(0), node.operand(1), node.input(2)
    axis, stated = node.attr("axis", -1), node.attr("stash_type", 1)
    # The runtime does not compute doubles in float, although the standard may require it.
    stash = TensorProto.DOUBLE if x.element_type() == TensorProto.DOUBLE else stated
    axes = list(range(axis, 0)) if axis < 0 else list(range(axis - len(x.dims()), 0))
    kind, wide = tensor_dtype_to_np_dtype(stash), x if x.dtype == stash else rw.op("Cast", x, to=stash)
    mean = rw.op("ReduceMean", wide, axes=axes, keepdims=1)
    centred = rw.op("Sub", wide, mean) if node.op_type == "LayerNormalization" else wide
    spread = rw.op("ReduceMean", rw.op("Mul", centred, centred), axes=axes, keepdims=1)
    deviation = rw.op("Sqrt", rw.op("Add", spread, np.asarray(node.attr("epsilon", 1e-5), kind)))
    result = rw.op("Div", centred, deviation)
    result = rw.op("Mul", result if x.dtype == stash else rw.op("Cast", result, to=x.dtype), scale)
    results: list[Value | None] = [result if bias is None else rw.op("Add", result, bias)]
    for old, made in zip(node.outputs[1:], (mean, rw.op("Reciprocal", deviation)), strict=False):
        told = made if stash == stated else rw.op("Cast", made, to=stated)
        results.append(told if old is not None and old.uses else None)
    rw.replace(node, results)


@up(21, "GroupNormalization")
def factors_of_channels(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Repeat scale and bias of each group for all its channels."""
    channels, groups = node.operand(0).size(1), node.attrs.get("num_groups")
    if not isinstance(groups, int) or groups < 1 or channels % groups:
        raise Decline("{} channels are not a multiple of {} groups", channels, groups)
    count = channels // groups
    yield
    repeated: dict[int, np.ndarray | Value] = {}
    for index in (1, 2):
        value = node.operand(index)
        known = value.const()
        if known is not None:
            repeated[index] = known.repeat(count)
        else:
            column = rw.op("Unsqueeze", value, axes=[1])
            rows = rw.op("Expand", column, np.asarray([groups, count], np.int64))
            repeated[index] = rw.op("Reshape", rows, np.asarray([-1], np.int64))
    rw.set_inputs(node, dict(repeated))


@down(18, "GroupNormalization")
def with_factors_of_groups(node: Node, change: Change, rw: Rewriter) -> None:
    """Write out the form of opsets 18 to 20, whose scale and bias are per group; runtimes have it, no checker does."""
    x, groups = node.operand(0), node.attrs.get("num_groups")
    if not isinstance(groups, int) or groups < 1 or (x.shape is not None and 0 in x.shape):
        raise Decline("{} groups, or an operand without elements", groups)
    kind = number_like(x, 0).dtype
    apart = rw.op("Reshape", x, np.asarray([0, groups, -1], np.int64))
    centred = rw.op("Sub", apart, rw.op("ReduceMean", apart, axes=[2], keepdims=1))
    spread = rw.op("ReduceMean", rw.op("Mul", centred, centred), axes=[2], keepdims=1)
    deviation = rw.op("Sqrt", rw.op("Add", spread, np.asarray(node.attr("epsilon", 1e-5), kind)))
    scale, bias = (rw.op("Unsqueeze", node.operand(index), axes=[1]) for index in (1, 2))
    result = rw.op("Add", rw.op("Mul", rw.op("Div", centred, deviation), scale), bias)
    rw.replace(node, [rw.op("Reshape", result, rw.op("Shape", x))])


@down(20, "Gelu")
def by_error_function(node: Node, change: Change, rw: Rewriter) -> None:
    """Write out (x * 0.5) * (1 + erf(x / sqrt(2))), which does not overflow; the standard's body handles `tanh`."""
    x = node.operand(0)
    if node.attr("approximate", "none") != "none":
        raise Decline("there is no Gelu before opset 20")
    op = typed(rw, x)
    curve = op("Add", op("Erf", op("Div", x, math.sqrt(2))), 1)
    rw.replace(node, [op("Mul", op("Mul", x, 0.5), curve)])


@down(9, "MeanVarianceNormalization")
def normalized_by_deviation(node: Node, change: Change, rw: Rewriter) -> None:
    """Compute the variance as mean((x - mean(x))^2), as kernels do.

    The standard's body computes mean(x^2) - mean(x)^2, which cancels if numbers are nearly equal.
    """
    x, axes = node.operand(0), node.attr("axes", (0, 2, 3))
    op = typed(rw, x)
    apart = rw.op("Sub", x, rw.op("ReduceMean", x, axes=axes, keepdims=1))
    deviation = rw.op("Sqrt", rw.op("ReduceMean", rw.op("Mul", apart, apart), axes=axes, keepdims=1))
    rw.replace(node, [rw.op("Div", apart, op("Add", deviation, 1e-9))])


@up(10, "Dropout")
def mask_of_truths(node: Node, change: Change, rw: Rewriter) -> Step:
    """Drop the unused mask, which was numeric in the standard, but boolean in its type inference and in runtimes."""
    mask = node.output(1)
    if mask is None:
        return automatic.up(node, change, rw)
    if mask.uses:
        raise Decline("mask is used, whose element type was ambiguous before opset 10")
    without_mask(node, rw)
    return None


@down(10, "Dropout")
def mask_of_numbers(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Replace the mask, which is all true in inference, or drop it if unused: it was numeric before."""
    mask = node.output(1)
    if mask is None:
        yield from automatic.down(node, change, rw)
    elif mask.uses:
        all_pass(node, rw)
    else:
        without_mask(node, rw)


def without_mask(node: Node, rw: Rewriter) -> None:
    """Replace the node with one without a mask."""
    rw.replace(node, [rw.op("Dropout", *node.inputs, **node.attrs)])


def all_pass(node: Node, rw: Rewriter) -> None:
    """Replace the mask with all true, as it is in inference."""
    shape = rw.op("Shape", node.operand(0))
    truths = rw.op("ConstantOfShape", shape, value=np.ones(1, np.bool_))
    rw.replace(node, [rw.op("Dropout", *node.inputs, **node.attrs), truths])


@up(12, "Dropout")
def ratio_that_is_read(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Drop an invalid ratio, which has no effect in inference, but which the runtime refuses as an operand.

    The mask is all true in the standard, and in the runtime from opset 12 on; before, the runtime has it all false.
    """
    if (mask := node.output(1)) is not None and mask.uses:
        raise Decline("mask is used, which is all false in the runtime before opset 12")
    if not 0 <= float(node.attr("ratio", 0.5)) < 1:
        rw.set_attr(node, ratio=None)
    yield from automatic.up(node, change, rw)


@down(12, "Dropout")
def inference_of_dropout(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Convert inference, in which the ratio has no effect; training is random."""
    training = node.input(2)
    if training is not None and (training.const() is None or training.array().any()):
        ratio = node.input(1)
        if ratio is None or ratio.const() is None or ratio.array().any():
            raise Decline("training_mode requires opset 12")
    if (mask := node.output(1)) is not None and mask.uses:
        all_pass(node, rw)
        return
    given = node.input(1)
    number = None if given is None or not given.is_const else node.number("ratio")
    yield
    rw.set_inputs(node, {1: None, 2: None}, ratio=number, seed=None)


@down(11, "Gemm")
def bias_of_zero(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Add a bias of 0, which was required."""
    if node.input(2) is None:
        rw.set_input(node, 2, np.zeros((), tensor_dtype_to_np_dtype(node.operand(0).element_type())))
    yield from automatic.down(node, change, rw)


@down(14, "GRU", "LSTM", "RNN")
def time_first(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Transpose the batch axis behind the time axis."""
    if not node.attr("layout", 0):
        yield from automatic.down(node, change, rw)
        return
    inputs = list(node.inputs)
    for index in (0, 5, 6):
        value = node.input(index)
        if value is not None:
            inputs[index] = rw.op("Transpose", value, perm=(1, 0, 2))
    attrs = {name: value for name, value in node.attrs.items() if name != "layout"}
    results = rw.outputs(len(node.outputs), node.op_type, *inputs, **attrs)
    perms = [(2, 0, 1, 3), (1, 0, 2), (1, 0, 2)]
    rw.replace(node, [rw.op("Transpose", each, perm=perm) for each, perm in zip(results, perms, strict=False)])
