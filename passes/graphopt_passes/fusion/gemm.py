"""Matrix products of two dimensions, with a bias and with transposed operands."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from onnx import TensorProto

from graphopt.ir import Dim, Node, Value
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by, only_reader

_MOST_BYTES = 1 << 20
"""A larger bias is not written a second time with the other sign."""


def _same(a: Dim, b: Dim) -> bool:
    return a is not None and a == b


class FuseMatmulAddBiasIntoGemm(OpRule):
    """Join a `MatMul` of two matrices and the addition of a bias into one `Gemm`.

    The bias need not be constant and may stand on either side; its shape must be known to broadcast into the product's.
    A constant that is subtracted counts as its opposite.
    """

    name = "fuse_matmul_add_bias_into_gemm"
    ops = ("Add", "Sub")
    opsets = "7-"
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {
        "onnxoptimizer": "fuse_matmul_add_bias_into_gemm",
        "onnxscript": "MatMulAddToGemm",
        "onnxslim": "FusionGemm",
        "onnxruntime": "MatMulAddFusion",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Try the product on either side of a sum, and on the left of a difference."""
        outcome: Outcome = None
        left, right = node.input(0), node.input(1)
        for product, bias in ((left, right), (right, left))[: 2 if node.op == "Add" else 1]:
            if product is None or bias is None or product.producer is None or product.producer.op != "MatMul":
                continue
            problem = _gemm_problem(product, bias, node)
            if problem is not None:
                outcome = problem
                continue
            addend = bias if node.op == "Add" else _opposite(bias, rw)
            if isinstance(addend, Mismatch):
                return addend
            a, b = product.producer.inputs[:2]
            return rw.replace(node, [rw.op("Gemm", a, b, addend)])
        return outcome


def _opposite(value: Value, rw: Rewriter) -> Value | Mismatch:
    array = value.const(_MOST_BYTES)
    if array is None:
        return Mismatch("{} is subtracted, and is no small constant", value.name)
    return rw.constant(np.asarray(-array), like=value)


def _gemm_problem(product: Value, bias: Value, reader: Node) -> Mismatch | None:
    node = product.producer
    assert node is not None
    a, b = node.input(0), node.input(1)
    problem = only_reader(product, reader)
    if problem is not None:
        return problem
    if a is None or b is None or a.shape is None or b.shape is None or len(a.shape) != 2 or len(b.shape) != 2:
        return Mismatch("{} is not known to be a product of two matrices", product.name)
    types = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16}
    if reader.graph.opset() >= 13:
        types.add(TensorProto.BFLOAT16)
    dtypes = {value.dtype for value in (a, b, bias)} - {None}
    if not dtypes or not dtypes <= types:
        return Mismatch("the element type of {} is none that Gemm computes", product.name)
    return _bias_problem(bias, (a.shape[0], b.shape[1]))


def _bias_problem(bias: Value, size: tuple[Dim, Dim]) -> Mismatch | None:
    shape = bias.shape
    if shape is None:
        return Mismatch("the shape of {} is not known", bias.name)
    if len(shape) > 2:
        return Mismatch("{} has rank {}", bias.name, len(shape))
    if any(dim != 1 and not _same(dim, full) for dim, full in zip(shape[::-1], size[::-1], strict=False)):
        return Mismatch("{} of shape {} is not known to broadcast into {}", bias.name, shape, size)
    return None


class FuseTransposeIntoGemm(OpRule):
    """Let a `Gemm` read an operand transposed instead of transposing it first.

    The `Transpose` stays for its other readers, where it has any.
    """

    name = "fuse_transpose_into_gemm"
    ops = ("Gemm",)
    numerics = Numerics.ROUNDING  # kernels add up in another order
    peers: ClassVar[dict[str, str]] = {
        "onnxoptimizer": "fuse_transpose_into_gemm",
        "onnxscript": "TransBMatMulAddToGemm",
        "onnxruntime": "GemmTransposeFusion",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Turn `transA` and `transB` over for each transposed operand."""
        inputs = list(node.inputs)
        attrs = dict(node.attrs)
        outcome: Outcome = None
        for index, key in enumerate(("transA", "transB")):
            value = inputs[index]
            transpose = made_by(value, "Transpose")
            if value is None or transpose is None:
                continue
            if transpose.graph is not node.graph:
                outcome = Mismatch("{} is computed in an outer graph", value.name)
                continue
            if tuple(transpose.attr("perm") or (1, 0)) == (1, 0):
                inputs[index] = transpose.inputs[0]
                attrs[key] = int(not node.attr(key, 0))
        if inputs == node.inputs:
            return outcome
        return rw.replace(node, [rw.op("Gemm", *inputs, **attrs)])


class FuseSumIntoGemm(OpRule):
    """Let a `Gemm` without a bias add what is added to its result by an `Add`, or by a `Sum` of two.

    What is added need not be constant; its shape must be known to broadcast into that of the product.
    """

    name = "fuse_sum_into_gemm"
    ops = ("Add", "Sum")
    opsets = "11-"
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "GemmSumFusion"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Try the product on either side."""
        if len(node.inputs) != 2:
            return None
        outcome: Outcome = None
        for product, addend in (node.inputs, node.inputs[::-1]):
            gemm = made_by(product, "Gemm")
            if product is None or addend is None or gemm is None or gemm.input(2) is not None:
                continue
            problem = _sum_problem(product, addend, gemm, node)
            if problem is None:
                attrs = {key: given for key, given in gemm.attrs.items() if key != "beta"}
                return rw.replace(node, [rw.op("Gemm", *gemm.inputs[:2], addend, **attrs)])
            outcome = problem
        return outcome


def _sum_problem(product: Value, addend: Value, gemm: Node, reader: Node) -> Mismatch | None:
    problem = only_reader(product, reader)
    if problem is not None:
        return problem
    shape = product.shape
    if shape is None or len(shape) != 2:
        return Mismatch("the shape of {} is not known", product.name)
    return _bias_problem(addend, (shape[0], shape[1]))
