"""Integer products that are scaled to floats, as dynamic quantization writes them."""

from __future__ import annotations

from onnx import TensorProto

from graphopt.match import Const, Either, Match, OpBuilder, Opt, Pattern, Var
from graphopt.rewrite import Decline, Numerics, Rewriter, Value
from graphopt_passes.fusion.contrib.operands import DOMAIN, NEWEST_OF_BYTES, ONE, ForRuntime, may_sum_nothing


class FuseScaleIntoMatmulInteger(ForRuntime):
    """Fuse `MatMulInteger` with the scale and the bias after it into `MatMulIntegerToFloat`.

    The scale is the product of a number for the left operand and, for the right one, a number or a constant with one
    number per column.
    """

    opsets = f"10-{NEWEST_OF_BYTES}"
    peers = {"onnxruntime": "MatMulIntegerToFloatFusion"}

    def pattern(self, op: OpBuilder, left: Pattern, right: Pattern, scale: Pattern) -> Pattern:
        """`scale * (left right)`, or the operator made of that plus a bias."""
        zeros = Opt(Var("left_zero")), Opt(Var("right_zero"))
        product = op.MatMulInteger(left, right, *zeros, _bind="product")
        scaled = op.Mul(op.Cast(product, to=TensorProto.FLOAT, _bind="cast", _other_attrs=True), scale)
        fused = op.domain(DOMAIN).MatMulIntegerToFloat(
            left, right, Var("left_scale"), Var("right_scale"), *zeros, None, _bind="fused"
        )
        return Either(scaled, op.Add(fused, Const("bias")))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        inputs: tuple[Value | None, ...]
        if m.fused is not None:
            inputs = (*(m.fused.input(index) for index in range(6)), _row(m.bias, m.right, m.fused.result, rw))
        else:
            if m.left.dtype != TensorProto.UINT8 and m.right.dtype != TensorProto.INT8:
                raise Decline("no kernel supports the element types of {} and {}", m.left.name, m.right.name)
            left, right = m.left.shape, m.right.shape
            sizes = [left[-1] if left else None, right[max(len(right) - 2, 0)] if right else None]
            if may_sum_nothing(sizes, m.product.result):  # the kernel leaves the result unset
                raise Decline("{} may sum over no elements", m.cast.result.name)
            inputs = (m.left, m.right, *_scales(m.scale, m), m.left_zero, m.right_zero)
        return rw.op("MatMulIntegerToFloat", *inputs, domain=DOMAIN)


class ConvertScaledCastToDequantize(ForRuntime):
    """Replace `Cast` and `Mul` of 32-bit integers, such as those of `ConvInteger`, with one `DequantizeLinear`.

    It computes the same numbers in one pass, in three quarters of the time of `Cast` and `Mul`. Products of
    `MatMulInteger` have a kernel of their own for that.
    """

    numerics = Numerics.EXACT
    opsets = f"10-{NEWEST_OF_BYTES}"

    def pattern(self, op: OpBuilder, x: Pattern, scale: Pattern) -> Pattern:
        return op.Mul(op.Cast(x, to=TensorProto.FLOAT, _other_attrs=True), scale)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        if m.x.dtype != TensorProto.INT32 or m.x.is_const or m.x.made_by("MatMulInteger"):
            raise Decline
        if m.scale.shape not in ONE or (m.scale.rank and not m.x.rank):
            raise Decline("{} is not a single number, or may raise the rank of {}", m.scale.name, m.x.name)
        return rw.op("DequantizeLinear", m.x, m.scale)


def _scales(scale: Value, m: Match) -> tuple[Value, Value]:
    """The scales of both operands, whose product is `scale`, in the forms that the kernel takes."""
    both = scale.made_by("Mul")
    if both is None:
        raise Decline("{} is not the product of two scales", scale.name)
    if (m.left.rank or 0) < 2 or (m.right.rank or 0) < 2:
        raise Decline("the operands of {} are not known to be matrices", m.product.op)
    columns = (m.right.dims()[-1],) if m.right.rank == 2 else ()
    left = next((at for at in (0, 1) if both.operand(at).producer is m.left.producer), 0)
    for at in (left, 1 - left):
        one, two = both.operand(at), both.operand(1 - at)
        if one.shape in ONE and (two.shape in ONE or (two.is_const and two.sizes() == columns)):
            _check_zeros(m.left_zero, m.right_zero, two)
            return one, two
    raise Decline("{} is not a scalar times a scalar or a constant row", scale.name)


def _check_zeros(left: Value | None, right: Value | None, scale: Value) -> None:
    """Decline unless zero points have the forms that the kernel takes beside the scale of the right operand."""
    if left is not None and left.shape not in ONE:
        raise Decline("{} is not a single number", left.name)
    if right is None:
        return
    if right.shape not in ONE and (not right.is_const or right.sizes() != scale.shape):
        raise Decline("{} does not have the shape of the scale", right.name)
    if right.shape in ONE and scale.shape not in ONE:
        raise Decline("{} is a single number, but the scale is not", right.name)


def _row(bias: Value, right: Value, product: Value, rw: Rewriter) -> Value:
    """A bias as one number per column; declines if it is anything else."""
    dims = bias.sizes()
    if (right.rank or 0) < 2 or dims[-1:] != right.dims()[-1:]:
        raise Decline("{} does not have one number per column", bias.name)
    if len(dims) == 1:
        return bias
    if any(size != 1 for size in dims[:-1]) or len(dims) > (product.rank or 0):
        raise Decline("{} is not the same for all rows", bias.name)
    return rw.constant(bias.array().reshape(-1), like=bias)


class FuseDynamicQuantizeIntoMatmul(ForRuntime):
    """Let `DynamicQuantizeMatMul` quantize its left operand, where nothing else reads the quantized one."""

    opsets = f"11-{NEWEST_OF_BYTES}"
    peers = {"onnxruntime": "DynamicQuantizeMatMulFusion"}

    def pattern(self, op: OpBuilder, x: Pattern, right: Pattern, scale: Pattern) -> Pattern:
        integers, own_scale, own_zero = op.DynamicQuantizeLinear.outputs(("integers", "own_scale", "own_zero"), x)
        return op.domain(DOMAIN).MatMulIntegerToFloat(
            integers, right, own_scale, scale, own_zero, Opt(Var("zero")), Opt(Var("bias"))
        )

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        return rw.op("DynamicQuantizeMatMul", m.x, m.right, m.scale, m.zero, m.bias, domain=DOMAIN)
