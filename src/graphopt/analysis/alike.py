"""Operators that the standard's inference does not know, expressed by standard operators with the same result types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import onnx
from onnx import TensorProto, defs

from graphopt.errors import Decline
from graphopt.ir import Node, Tensor, TensorType, Value
from graphopt.ir.schema import READING_TYPES
from graphopt.operators.transpose import channels_first, channels_last

UNKNOWN = "GroupNormalization"
"""The standard operator for which inference gives no type since opset 21, so that nothing after it is known."""
_RESULT = "result"
_IMAGE = 4
"""The rank of an image."""


def _operand(number: int) -> str:
    return f"operand{number}"


_OPSET_OF_ONNX_1_23 = 28


@cache
def _sound_ellipses() -> bool:
    """Whether inference of `Einsum` with ellipses stays within the operands' axes."""
    return defs.onnx_opset_version() >= _OPSET_OF_ONNX_1_23


Body = list[onnx.NodeProto]
"""Standard nodes that compute `result` from `operand0`, `operand1`, ..."""

Builder = Callable[[Node], "Body | None"]


def body_alike(node: Node) -> Body | None:
    """Standard operators whose result has the type and shape of a node's result; None if none are known.

    Args:
        node: the node, of which only the first output is expressed.
    """
    found = _BODIES.get(node.op)
    try:
        return found(node) if found is not None and node.inputs and node.inputs[0] is not None else None
    except (Decline, ValueError, TypeError):  # an operand is left out, or attributes are of a wrong type
        return None


def as_node(body: Body, node: Node) -> onnx.NodeProto:
    """A body of one node, with the operands of the node that it replaces."""
    names = {_operand(i): value.name for i, value in enumerate(node.inputs) if value is not None}
    proto = onnx.NodeProto.FromString(body[0].SerializeToString())
    del proto.input[:], proto.output[:]
    proto.input.extend(names.get(name, "") for name in body[0].input)
    proto.output.extend(_outputs(node)[:1])
    return proto


def as_call(body: Body, node: Node, name: str, domain: str) -> tuple[onnx.FunctionProto, onnx.NodeProto]:
    """A body of several nodes as a function, and its call with the operands of the node that it replaces."""
    names = {name for part in body for name in part.input}
    read = [number for number, value in enumerate(node.inputs) if value is not None and _operand(number) in names]
    function = onnx.helper.make_function(
        domain, name, [_operand(number) for number in read], [_RESULT], body,
        [onnx.helper.make_opsetid("", node.graph.opset())],
    )  # fmt: skip
    operands = [value.name for number in read if (value := node.input(number)) is not None]
    return function, onnx.helper.make_node(name, operands, _outputs(node)[:1], domain=domain)


def _outputs(node: Node) -> list[str]:
    return ["" if value is None else value.name for value in node.outputs]


def _pool(op_type: str, keep: tuple[str, ...]) -> Builder:
    """A pool, unless inference and the runtime may disagree about its sizes."""
    build = _single(op_type, 0, keep=keep)

    def outer(node: Node) -> Body | None:
        agreed = not node.attr("ceil_mode", 0) and node.attr("auto_pad", "NOTSET") in ("NOTSET", "VALID")
        return build(node) if agreed else None

    return outer


def _single(op_type: str, *operands: int, keep: tuple[str, ...] = ()) -> Builder:
    """An operator on some of the operands, with some of the attributes."""

    def build(node: Node) -> Body | None:
        attrs = {name: value for name in keep if (value := node.attr(name)) is not None}
        return [onnx.helper.make_node(op_type, [_operand(i) for i in operands], [_RESULT], **attrs)]

    return build


def _last_channels(build: Builder, always: bool = False) -> Builder:
    """Wrap a body in transposes, for images, rows or volumes with channels last."""

    def outer(node: Node) -> Body | None:
        body = build(node)
        if body is None or (not always and not node.attr("channels_last", 0)):
            return body
        rank = _rank(node)
        body[0].input[0], body[-1].output[0] = "image", "made"
        return [
            onnx.helper.make_node("Transpose", [_operand(0)], ["image"], perm=channels_first(rank)), *body,
            onnx.helper.make_node("Transpose", ["made"], [_RESULT], perm=channels_last(rank)),
        ]  # fmt: skip

    return outer


def _rank(node: Node) -> int:
    """The rank that follows from the window, the weight of a convolution, or the data; by default that of an image."""
    kernel, tells = node.attr("kernel_shape"), node.input(3 if node.op_type == "QLinearConv" else 0)
    if kernel or tells is None or tells.shape is None:
        return len(kernel) + 2 if kernel else _IMAGE
    return len(tells.shape)


def _cast(build: Builder, dtype: Callable[[Node], int | None]) -> Builder:
    """Append a cast to another element type."""

    def outer(node: Node) -> Body | None:
        body, to = build(node), dtype(node)
        if body is None or to is None:
            return None
        body[-1].output[0] = "wide"
        return [*body, onnx.helper.make_node("Cast", ["wide"], [_RESULT], to=to)]

    return outer


def _dtype_of(number: int, otherwise: int | None = None) -> Callable[[Node], int | None]:
    def read(node: Node) -> int | None:
        value = node.input(number)
        if value is None:
            return otherwise
        stated = value.constant_tensor or (value.declared if value.producer is None else None)
        return stated.dtype if isinstance(stated, Tensor | TensorType) else None

    return read


def _concat(node: Node) -> Body:
    parts = [_operand(number) for number in range(2, len(node.inputs), 3)]
    return [onnx.helper.make_node("Concat", parts, [_RESULT], axis=node.attr("axis", 1))]


def _product(node: Node) -> Body | None:
    if node.attr("transBatchA", 0) or node.attr("transBatchB", 0):
        return None
    left, right = ("km" if node.attr("transA", 0) else "mk"), ("nk" if node.attr("transB", 0) else "kn")
    if (left, right) == ("mk", "kn"):
        return _single("MatMul", 0, 1)(node)
    if node.graph.opset() < _EINSUM:
        return None
    # Inference rejects ellipses of different ranks; a constant matrix has only its own two axes.
    stacks = ["" if _is_matrix(node.operand(at)) else "..." for at in range(2)]
    if stacks[0] and stacks[1] and not (_sound_ellipses() or _are_of_one_rank(node.operand(0), node.operand(1))):
        return None
    equation = f"{stacks[0]}{left},{stacks[1]}{right}->{max(stacks)}mn"
    return [onnx.helper.make_node("Einsum", [_operand(0), _operand(1)], [_RESULT], equation=equation)]


def may_end_the_process(node: Node) -> bool:
    """Whether inference may read out of bounds, for example, before onnx 1.23, for operands of different ranks.

    A segmentation fault cannot be caught, so such a node must not reach inference, nor one of unknown type or ranks.
    This concerns `READING_TYPES`, ellipses of `Einsum`, and indices of `MaxUnpool`. Windows with stride 0 divide by it.
    """
    if node.op in READING_TYPES and node.inputs and node.inputs[0] is not None and node.inputs[0].type is None:
        return True
    if _sound_ellipses():
        return False
    strides = node.attr("strides", ())
    if isinstance(strides, tuple | list) and 0 in strides:
        return True
    if node.op not in ("Einsum", "MaxUnpool"):
        return False
    if node.op == "MaxUnpool":
        return not _are_of_one_rank(node.operand(0), node.operand(1))
    equation = node.attr("equation", "")
    terms = equation.partition("->")[0].replace(" ", "").split(",") if isinstance(equation, str) else []
    axes = set()
    for term, value in zip(terms, node.inputs, strict=False):
        if "..." in term:
            axes.add(None if value is None or value.shape is None else len(value.shape) - len(term) + 3)
    return sum("..." in term for term in terms) > 1 and (None in axes or len(axes) > 1)


def _are_of_one_rank(left: Value, right: Value) -> bool:
    return left.shape is not None and right.shape is not None and len(left.shape) == len(right.shape)


def _is_matrix(value: Value) -> bool:
    tensor = value.constant_tensor
    return tensor is not None and len(tensor.dims) == 2


_EINSUM = 12
_WINDOW = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_FLOAT = int(TensorProto.FLOAT)
_BODIES: Mapping[str, Builder] = {
    "ai.onnx.ml::Imputer": _single("Identity", 0),
    "ai.onnx.ml::Normalizer": _cast(_single("Identity", 0), lambda node: _FLOAT),
    UNKNOWN: _single("Identity", 0),
    "ai.onnx.ml::Scaler": _cast(_single("Identity", 0), lambda node: _FLOAT),
} | {
    f"com.microsoft::{name}": build
    for name, build in {
        "BiasGelu": _single("Identity", 0),
        "BranchwiseRMSNorm": _single("Identity", 0),
        "DequantizeLinear": _cast(_single("Identity", 0), _dtype_of(1)),
        "DynamicQuantizeMatMul": _single("MatMul", 0, 1),
        "FastGelu": _single("Identity", 0),
        "FusedConv": _single("Conv", 0, 1, keep=_WINDOW),
        "FusedGemm": _single("Gemm", 0, 1, keep=("transA", "transB")),
        "FusedMatMul": _product,
        "Gelu": _single("Identity", 0),
        "MatMulIntegerToFloat": _cast(_single("MatMul", 0, 1), lambda node: _FLOAT),
        "NhwcMaxPool": _last_channels(_pool("MaxPool", _WINDOW[:2] + _WINDOW[3:]), always=True),
        "QGemm": _cast(_single("Gemm", 0, 3, keep=("transA", "transB")), _dtype_of(8, _FLOAT)),
        "QLinearAdd": _single("Add", 0, 3),
        "QLinearAveragePool": _last_channels(_pool("AveragePool", _WINDOW[:1] + _WINDOW[3:])),
        "QLinearConcat": _concat,
        "QLinearConv": _last_channels(_cast(_single("Conv", 0, 3, keep=_WINDOW), _dtype_of(7))),
        "QLinearGlobalAveragePool": _last_channels(_single("GlobalAveragePool", 0)),
        "QLinearLeakyRelu": _single("Identity", 0),
        "QLinearMul": _single("Mul", 0, 3),
        "QLinearSigmoid": _single("Identity", 0),
        "QLinearSoftmax": _single("Identity", 0),
        "QuantizeLinear": _cast(_single("Identity", 0), _dtype_of(2, int(TensorProto.UINT8))),
        "QuickGelu": _single("Identity", 0),
    }.items()
}
