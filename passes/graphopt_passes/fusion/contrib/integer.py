"""Products of integers that are scaled to floats, as dynamic quantization writes them."""

from __future__ import annotations

from typing import ClassVar

from onnx import TensorProto

from graphopt.ir import Node, Value
from graphopt.rewrite import Level, Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by, only_reader
from graphopt_passes.fusion.contrib.operands import DOMAIN, NEWEST, may_sum_nothing

_TO_FLOAT = f"{DOMAIN}::MatMulIntegerToFloat"


class FuseScaleIntoMatmulInteger(OpRule):
    """Let `MatMulIntegerToFloat` scale the result of `MatMulInteger`, and add the bias after it.

    The scale is the product of one for the left operand, a number, and a constant one for the right, a number or one
    for each column.
    """

    name = "fuse_scale_into_matmul_integer"
    ops = ("Mul", "Add")
    level = Level.EXTENDED
    numerics = Numerics.ROUNDING
    opsets = f"10-{NEWEST}"
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "MatMulIntegerToFloatFusion"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look for a cast product before a scale, or for a scaled one before a bias."""
        return _bias(node, rw) if node.op == "Add" else _scale(node, rw)


def _scale(node: Node, rw: Rewriter) -> Outcome:
    for value, scale in (node.inputs, node.inputs[::-1]):
        cast = value.producer if value is not None else None
        product = cast.inputs[0].producer if cast is not None and cast.inputs and cast.inputs[0] is not None else None
        if value is None or scale is None or cast is None or cast.op != "Cast" or product is None:
            continue
        if product.op != "MatMulInteger" or cast.attr("to") != TensorProto.FLOAT:
            continue
        for inner, reader in ((value, node), (product.outputs[0], cast)):
            problem = only_reader(inner, reader) if inner is not None else None
            if problem is not None:
                return problem
        if _may_be_unset(product):
            return Mismatch("nothing may be left to add up in {}", value.name)
        scales = _scales(scale, product)
        if isinstance(scales, Mismatch):
            return scales
        left, right = product.inputs[:2]
        inputs = (left, right, *scales, product.input(2), product.input(3))
        return rw.replace(node, [rw.op("MatMulIntegerToFloat", *inputs, domain=DOMAIN)])
    return None


def _may_be_unset(product: Node) -> bool:
    left, right = (value.shape if value is not None else None for value in product.inputs[:2])
    sizes = [left[-1] if left else None, right[max(len(right) - 2, 0)] if right else None]
    return may_sum_nothing(sizes, product.outputs[0])


def _scales(scale: Value, product: Node) -> tuple[Value, Value] | Mismatch:
    """The scales of both operands, whose product is `scale`."""
    both = scale.producer
    if both is None or both.op != "Mul":
        return Mismatch("{} is not the product of two scales", scale.name)
    left, right = product.inputs[:2]
    ranks = [operand.rank for operand in (left, right) if operand is not None and (operand.rank or 0) >= 2]
    if len(ranks) != 2:
        return Mismatch("the operands of {} are not known to be matrices", product.op)
    for one, two in (both.inputs, both.inputs[::-1]):
        if one is None or two is None or two.constant_tensor is None or one.shape not in ((), (1,)):
            continue
        dims = two.constant_tensor.dims
        columns = right.shape[-1] if right is not None and right.shape is not None else None
        if tuple(dims) in ((), (1,)) or (ranks[1] == 2 and tuple(dims) == (columns,)):
            return _points(product, one, two)
    return Mismatch("{} is not a number times a constant for the right operand", scale.name)


def _points(product: Node, one: Value, two: Value) -> tuple[Value, Value] | Mismatch:
    """The scales, if the zero points are in the forms that the kernel takes."""
    left = product.input(2)
    right = product.input(3)
    if left is not None and left.shape not in ((), (1,)):
        return Mismatch("{} is not one number", left.name)
    if right is not None:
        tensor = right.constant_tensor
        if tensor is None or tuple(tensor.dims) not in ((), (1,), two.shape):
            return Mismatch("{} is not constant, or not like the scale", right.name)
        if tuple(tensor.dims) in ((), (1,)) and two.shape not in ((), (1,)):
            return Mismatch("{} is one number and the scale is not", right.name)
    return one, two


def _bias(node: Node, rw: Rewriter) -> Outcome:
    for value, bias in (node.inputs, node.inputs[::-1]):
        product = made_by(value, _TO_FLOAT)
        if value is None or bias is None or product is None or product.input(6) is not None:
            continue
        tensor = bias.constant_tensor
        if tensor is None:
            return Mismatch("{} is not constant", bias.name)
        right = product.inputs[1]
        row = tensor.dims[-1:]
        if right is None or right.shape is None or len(right.shape) < 2 or tuple(row) != (right.shape[-1],):
            return Mismatch("{} has not one number for each column", bias.name)
        if len(tensor.dims) > 1 and (tensor.numel != row[0] or value.rank is None or len(tensor.dims) > value.rank):
            return Mismatch("{} is not the same for all rows", bias.name)
        problem = only_reader(value, node)
        if problem is not None:
            return problem
        flat = bias if len(tensor.dims) == 1 else rw.constant(tensor.array().reshape(-1), like=bias)
        operands = [product.input(i) for i in range(6)]
        return rw.replace(node, [rw.op("MatMulIntegerToFloat", *operands, flat, domain=DOMAIN)])
    return None


class FuseDynamicQuantizeIntoMatmul(OpRule):
    """Let `DynamicQuantizeMatMul` quantize its left operand, where nothing else reads the quantized one."""

    name = "fuse_dynamic_quantize_into_matmul"
    ops = (_TO_FLOAT,)
    level = Level.EXTENDED
    numerics = Numerics.ROUNDING
    opsets = f"11-{NEWEST}"
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "DynamicQuantizeMatMulFusion"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look for a `DynamicQuantizeLinear` before it."""
        parts = [node.input(i) for i in (0, 2, 4)]
        quantize = parts[0].producer if parts[0] is not None else None
        if quantize is None or quantize.op != "DynamicQuantizeLinear" or quantize.outputs != parts:
            return None
        for part in parts:
            problem = only_reader(part, node) if part is not None else None
            if problem is not None:
                return problem
        operands = (quantize.inputs[0], *(node.input(i) for i in (1, 3, 5, 6)))
        return rw.replace(node, [rw.op("DynamicQuantizeMatMul", *operands, domain=DOMAIN)])
