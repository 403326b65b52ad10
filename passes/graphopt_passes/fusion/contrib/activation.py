"""Convolutions and Gemm that apply an activation, and convolutions that add a residual, in the same kernel."""

from __future__ import annotations

from onnx import TensorProto

from graphopt.match import Attr, Either, Match, OpBuilder, Opt, Pattern, Var
from graphopt.operators import Bounds
from graphopt.rewrite import Decline, Node, Rewriter, Value
from graphopt_passes.elementwise import ACTIVATIONS
from graphopt_passes.fusion.contrib.limits import check_not_of_bytes
from graphopt_passes.fusion.contrib.operands import DOMAIN, ForRuntime, check_float


def _parameters(node: Node) -> dict[str, float]:
    return {name: float(node.attr(name)) for name in ACTIVATIONS[node.op_type]}


class FuseActivationIntoGemm(ForRuntime):
    """Fuse a `Gemm` and the activation after it into `FusedGemm`."""

    peers = {"onnxruntime": "GemmActivationFusion"}

    def pattern(self, op: OpBuilder, a: Pattern, b: Pattern) -> Pattern:
        """`activation(a b + c)`."""
        gemm = op.Gemm(a, b, Opt(Var("c")), _bind="gemm", _other_attrs=True)
        return op.AnyOf(*ACTIVATIONS)(gemm, _other_attrs=True)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        check_float(m.gemm.result)
        check_not_of_bytes(m.gemm, m.root)
        parameters = {f"activation_{name}": value for name, value in _parameters(m.root).items()}
        attrs = {**m.gemm.attrs, "activation": m.root.op_type, **parameters}
        return rw.op("FusedGemm", *m.gemm.inputs, domain=DOMAIN, **attrs)


class FuseActivationIntoConv(ForRuntime):
    """Fuse a convolution, or one with a residual, and the activation after it into `FusedConv`.

    Takes `Relu`, `LeakyRelu`, `Sigmoid`, `Tanh`, `HardSigmoid`, and `Clip` with constant bounds. For convolutions that
    stay in NCHW; those that are converted to the blocked layout have absorbed their activations by then.
    """

    peers = {"onnxruntime": "ConvActivationFusion"}

    def pattern(self, op: OpBuilder, x: Pattern, w: Pattern) -> Pattern:
        plain = op.Conv(x, w, Opt(Var("b")), _bind="conv", _other_attrs=True)
        fused = op.domain(DOMAIN).FusedConv(x, w, Opt(Var("b")), Opt(Var("z")), _bind="conv", _other_attrs=True)
        conv = Either(plain, fused)
        return Either(op.AnyOf(*ACTIVATIONS)(conv, _other_attrs=True), op.Clip(conv, min=Attr(), max=Attr()))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        conv, node = m.conv, m.root
        if conv.attr("activation", ""):
            raise Decline("{} has an activation already", conv.result.name)
        check_float(conv.result)
        check_not_of_bytes(conv, node)
        if node.op == "Clip":
            bounds = Bounds.of(node, dtype=TensorProto.FLOAT)
            parameters = [float(bounds.low), float(bounds.high)]
        else:
            parameters = list(_parameters(node).values())
        attrs = {**conv.attrs, "activation": node.op_type, "activation_params": tuple(parameters) or None}
        return rw.op("FusedConv", *conv.inputs, domain=DOMAIN, **attrs)


class FuseAddIntoConv(ForRuntime):
    """Fuse a convolution and the addition of a residual of the same shape into `FusedConv`, before an activation."""

    peers = {"onnxruntime": "ConvAddActivationFusion"}

    def pattern(self, op: OpBuilder, x: Pattern, w: Pattern, z: Pattern) -> Pattern:
        return op.Add(op.Conv(x, w, Opt(Var("b")), _bind="conv", _other_attrs=True), z)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        total, value = m.root.result, m.conv.result
        reader = total.read_by(*ACTIVATIONS, "Clip")
        if reader is None or reader.graph is not m.root.graph:
            raise Decline("the only reader of {} is not an activation", total.name)
        check_float(value)
        if value.rank != 4 or not value.has_shape_of(m.z):
            raise Decline("{} and {} are not known to have the same shape of rank 4", value.name, m.z.name)
        return rw.op("FusedConv", m.x, m.w, m.b, m.z, domain=DOMAIN, **m.conv.attrs)
