"""Two-dimensional matrix products, with a bias and with transposed operands."""

from __future__ import annotations

import numpy as np

from graphopt.ir import FLOAT_TYPES, Dim, Node, Value
from graphopt.ir.types import agree
from graphopt.match import Const, Either, Match, OpBuilder, Pattern, Var
from graphopt.operators import Transpose
from graphopt.operators.linear import joint_shape, narrowed
from graphopt.rewrite import Decline, Numerics, OpRule, Outcome, PatternRule, Rewriter, Tries

_MOST_BYTES = 1 << 20
"""A larger bias is not duplicated with the opposite sign."""


class FuseMatmulAddBiasIntoGemm(PatternRule):
    """Fuse a `MatMul` of two matrices and the addition of a bias into one `Gemm`.

    The bias need not be constant and may stand on either side; its shape must be known to broadcast into the product's.
    A constant that is subtracted is negated.
    """

    opsets = "7-"
    numerics = Numerics.ROUNDING
    peers = {
        "onnxoptimizer": "fuse_matmul_add_bias_into_gemm",
        "onnxruntime": "MatMulAddFusion",
        "onnxslim": "FusionGemm",
        "onnxscript": ("MatMulAddToGemm", "TransAMatMulAddToGemm", "TransBMatMulAddToGemm", "TransABMatMulAddToGemm"),
    }

    def pattern(self, op: OpBuilder, bias: Pattern) -> Pattern:
        """`a b + bias`, or `a b - bias`."""
        return op.AnyOf("Add", "Sub")(op.MatMul(Var("a", rank=2), Var("b", rank=2)), bias)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        dtypes = {value.dtype for value in (m.a, m.b, m.bias)} - {None}
        if not dtypes or not dtypes <= FLOAT_TYPES:
            raise Decline("Gemm does not support the element type of {}", m.a.name)
        _check_bias(m.bias, (m.a.dims()[0], m.b.dims()[1]))
        if m.root.op == "Add":
            return rw.op("Gemm", m.a, m.b, m.bias)
        array = m.bias.const(_MOST_BYTES)
        if array is None:
            raise Decline("{} is subtracted, and is not a small constant", m.bias.name)
        return rw.op("Gemm", m.a, m.b, rw.constant(np.asarray(-array), like=m.bias))


def _check_bias(bias: Value, size: tuple[Dim, ...]) -> None:
    """Decline unless a bias is known to broadcast into a product of two dimensions."""
    shape = bias.dims()
    if len(shape) > 2:
        raise Decline("{} has rank {}, expected 2 at most", bias.name, len(shape))
    if any(dim != 1 and not agree(dim, full) for dim, full in zip(shape[::-1], size[::-1], strict=False)):
        raise Decline("{} of shape {} is not known to broadcast into {}", bias.name, shape, size)


class FuseTransposeIntoGemm(OpRule):
    """Fold the `Transpose` of an operand of `Gemm` into `transA` or `transB`.

    The `Transpose` stays for its other readers, where it has any.
    """

    # No pattern: either operand or both may be transposed.
    ops = ("Gemm",)
    sources = ("Transpose",)
    numerics = Numerics.ROUNDING  # kernels add in another order
    peers = {
        "onnxoptimizer": "fuse_transpose_into_gemm",
        "onnxruntime": "GemmTransposeFusion",
        "onnxscript": "TransBMatMulAddToGemm",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        operands, attrs, tries = list(node.inputs), dict(node.attrs), Tries()
        for index, key in enumerate(("transA", "transB")):
            with tries:
                transpose = Transpose.of(node.operand(index).source("Transpose", reader=node))
                if transpose.moves_nothing:
                    raise Decline("the Transpose of {} moves no axis", transpose.x.name)
                operands[index], attrs[key] = transpose.x, int(not node.attr(key, 0))
        if operands == node.inputs:
            raise tries.declined
        return rw.replace(node, [rw.op("Gemm", *operands, **attrs)])


class FuseSumIntoGemm(PatternRule):
    """Fold an `Add`, or a `Sum` of two operands, into the `Gemm` without a bias before it.

    The addend need not be constant; its shape must be known to broadcast into that of the product.
    """

    opsets = "11-"
    numerics = Numerics.ROUNDING
    peers = {"onnxruntime": "GemmSumFusion"}

    def pattern(self, op: OpBuilder, a: Pattern, b: Pattern, addend: Pattern) -> Pattern:
        """`alpha a b + addend`, with `a` and `b` possibly transposed."""
        gemm = op.Gemm(a, b, None, _bind="gemm", _other_attrs=True)
        return Either(op.Add(gemm, addend), op.Sum(gemm, addend), op.Sum(addend, gemm))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        _check_bias(m.addend, m.gemm.result.dims())
        return rw.again(m.gemm, m.a, m.b, m.addend, beta=None)


class FuseBiasesOfSum(PatternRule):
    """Fold the biases of two matrix products into one where the products are added.

    `(a b + one) + (c d + two)` becomes `a b + (c d + (one + two))`. That leaves no `Add` of two `Gemm`, and one fewer
    of two `MatMul` of higher rank: gates of recurrent cells, additive attention, the sum of a linear and a deep part.
    """

    opsets = "7-"
    numerics = Numerics.ROUNDING

    def pattern(self, op: OpBuilder) -> Pattern:
        """Two products of the same kind, each with a constant bias."""
        kinds = [
            (
                op.Gemm(Var(), Var(), Const(bias, silent=True), _bind=product, _other_attrs=True),
                op.Add(op.MatMul(Var(), Var(), _bind=product), Const(bias, silent=True)),
            )
            for product, bias in (("first", "one"), ("second", "two"))
        ]
        return Either(*(op.Add(*pair) for pair in zip(*kinds, strict=True)))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        total = _sum_of_biases(m)
        if m.first.op == "Gemm":
            size = m.first.result.dims()
            if None in size or size != m.second.result.dims():
                raise Decline(
                    "{} and {} are not known to have the same shape", m.first.result.name, m.second.result.name
                )
            inner = rw.again(m.second, *m.second.operands[:2], rw.constant(total, like=m.two), beta=None)
            return rw.again(m.first, *m.first.operands[:2], inner, beta=None)
        if m.first.result.rank == m.second.result.rank == 2:
            raise Decline("{} and its bias may become a Gemm", m.first.result.name)
        return rw.op("Add", m.first.result, rw.op("Add", m.second.result, rw.constant(total, like=m.two)))


def _sum_of_biases(m: Match) -> np.ndarray:
    """The sum of both biases as one constant, no larger than the larger of them."""
    arrays = m.one.array(), m.two.array()
    if m.one.dtype not in FLOAT_TYPES:
        raise Decline("{} does not hold floats", m.one.name)
    joint_shape(*arrays)
    betas = [product.attr("beta", 1.0) if product.op == "Gemm" else 1.0 for product in (m.first, m.second)]
    total = sum(beta * array.astype(np.float64) for beta, array in zip(betas, arrays, strict=True))
    return narrowed(total, arrays[0].dtype, "constants")
