"""Purity: which nodes may be merged, removed or folded; shared by folding, common subexpressions and dead code.

An operator that this module does not know is *opaque*: a custom operator may print, count or access a device, so it is
never merged, removed or folded. A call of a model-local function is as pure as its body; a node with subgraphs is as
pure as the least pure node inside.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir import FLOAT8_TYPES, Model, Node
from graphopt.ir.schema import RUNTIMES_OWN, op_schema

_RANDOM = frozenset({
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
})  # fmt: skip

_STANDARD_DOMAINS = frozenset({"", "ai.onnx.ml"})

_MICROSOFT = frozenset({
    "Attention", "BiasAdd", "BiasGelu", "BiasSoftmax", "BiasSplitGelu", "BranchwiseRMSNorm", "CDist",
    "ComplexMul", "ComplexMulConj", "ConvTransposeWithDynamicPads", "CropAndResize", "DecoderAttention",
    "DequantizeBFP", "DequantizeLinear", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul",
    "EmbedLayerNormalization", "ExpandDims", "FastGelu", "FusedConv", "FusedGemm", "FusedMatMul",
    "FusedMatMulActivation", "GatherBlockQuantized", "GatherND", "Gelu", "GemmFastGelu", "GemmFloat8",
    "GemmaRotaryEmbedding", "GridSample", "GroupNorm", "Inverse", "Irfft", "IsAllFinite", "LongformerAttention",
    "MatMulBnb4", "MatMulFpQ4", "MatMulInteger16", "MatMulIntegerToFloat", "MatMulNBits", "MatMulNBitsMlp",
    "MatMulNBitsQkv", "MaxpoolWithMask", "MoE", "MulInteger", "MultiHeadAttention", "MurmurHash3",
    "NGramRepeatBlock", "NhwcConv", "NhwcFusedConv", "NhwcMaxPool", "PackedAttention", "PackedMultiHeadAttention",
    "Pad", "QAttention", "QEmbedLayerNormalization", "QGemm", "QLinearAdd", "QLinearAveragePool", "QLinearConcat",
    "QLinearConv", "QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearMul", "QLinearReduceMean",
    "QLinearSigmoid", "QLinearSoftmax", "QLinearWhere", "QMoE", "QOrderedAttention", "QOrderedGelu",
    "QOrderedLayerNormalization", "QOrderedMatMul", "QuantizeBFP", "QuantizeLinear", "QuickGelu", "Range",
    "ReduceSumInteger", "RelativePositionBias", "RemovePadding", "RestorePadding", "Rfft", "RotaryEmbedding",
    "ScaledSiLU", "SkipGroupNorm", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
    "SparseToDenseMatMul", "Tokenizer", "TransposeMatMul", "Trilu", "UnfoldTensor", "Unique", "WordConvEmbedding",
})  # fmt: skip
"""Pure contrib operators. Operators that draw random numbers, write into a cache that their caller shares (paged and
grouped attention) or hold compiled code are not listed, nor are unknown ones."""

_NCHWC = frozenset({
    "AveragePool", "Conv", "GlobalAveragePool", "GlobalMaxPool", "MaxPool", "ReorderInput", "ReorderOutput", "Upsample",
})  # fmt: skip

QDQ = frozenset({
    "QuantizeLinear", "DequantizeLinear", "com.microsoft::QuantizeLinear", "com.microsoft::DequantizeLinear",
    "DynamicQuantizeLinear",
})  # fmt: skip
"""Operators that a quantized model keeps, even with constant inputs, since runtimes match them. Quantizing a weight,
however, is folded: the result is smaller."""

_STORED = frozenset({
    TensorProto.UINT8, TensorProto.INT8, TensorProto.UINT16, TensorProto.INT16, TensorProto.UINT4, TensorProto.INT4,
    *FLOAT8_TYPES,
})  # fmt: skip
"""Element types of quantized weights."""

_NOT_TENSORS = frozenset({
    "ConcatFromSequence", "ImageDecoder", "Optional", "OptionalGetElement", "OptionalHasElement", "SequenceAt",
    "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "SplitToSequence",
    "ai.onnx.ml::CastMap", "ai.onnx.ml::DictVectorizer", "ai.onnx.ml::ZipMap",
})  # fmt: skip
"""Operators that read or write values other than tensors."""

_answers: WeakKeyDictionary[Model, dict[tuple[str, Callable[[Node], bool]], bool]] = WeakKeyDictionary()
"""Cached answers about the functions of each model. Rewrites never make a body less pure, so they stay safe."""


def is_deterministic(node: Node) -> bool:
    """Whether equal inputs give equal outputs, so that two such nodes may be merged.

    Args:
        node: any node; its subgraphs and called functions are checked too.
    """
    if not _is_known(node) or _draws(node):
        return False
    return all(map(is_deterministic, _inside(node))) and body_is(node, is_deterministic)


def has_side_effects(node: Node) -> bool:
    """Whether running the node may have side effects; unknown operators are assumed to have some."""
    return not is_removable(node)


def is_removable(node: Node) -> bool:
    """Whether the node may be removed if its outputs are unused.

    Random operators may; unknown operators may not.
    """
    if not _is_known(node):
        return False
    if node.subgraphs and not all(map(is_removable, _inside(node))):
        return False
    return body_is(node, is_removable) if node.op[:5] == "call " else True


def may_fold(node: Node, *, qdq: bool = False) -> bool:
    """Whether the node may be folded if all its inputs are constant.

    Args:
        node: the node.
        qdq: whether quantize and dequantize operators may be folded too.
    """
    return why_not_fold(node, qdq=qdq) is None


def malformed() -> Decline:
    """The reason to decline a malformed node, which the standard does not define."""
    reason = "an attribute has the wrong type, counts less than one, or is no flag of 0 or 1"
    return Decline("it is malformed ({})", reason)


def why_not_fold(node: Node, *, qdq: bool = False) -> Decline | None:
    """The reason why a node is never folded, None if it may be.

    Args:
        node: the node.
        qdq: whether quantize and dequantize operators may be folded too.
    """
    if node.op.startswith(("call ", "referring ")):
        return Decline("calls of functions and nodes with attribute references are not evaluated")
    if node.op.startswith("malformed "):
        return malformed()
    if node.op in QDQ:
        return None if qdq or _quantizes_weights(node) else Decline("quantize and dequantize operators are kept")
    if node.subgraphs:
        return Decline("control flow is not evaluated")
    if node.domain not in _STANDARD_DOMAINS:
        return Decline("operators of domain {} are not evaluated", node.domain)
    if node.schema is None:
        return Decline("{} is not known at this opset", node.op)
    if _draws(node):
        return Decline("{} draws random numbers", node.op)
    if node.op in _NOT_TENSORS:
        return Decline("{} is not an operator on tensors", node.op)
    return None


def _quantizes_weights(node: Node) -> bool:
    """Whether the node is a standard QuantizeLinear, or DynamicQuantizeLinear, to an element type of weights."""
    if node.op != "QuantizeLinear":
        return node.op == "DynamicQuantizeLinear"
    zero = node.input(2)
    dtype = zero.dtype if zero is not None else node.attr("output_dtype", 0) or TensorProto.UINT8
    return dtype in _STORED


def _is_known(node: Node) -> bool:
    """Whether the operator is known: standard, contrib, or a function of the model."""
    if node.op[:5] == "call ":
        return True
    domain = node.domain
    if domain in _STANDARD_DOMAINS:
        opsets = node.graph.opsets
        return node.op == RUNTIMES_OWN or op_schema(node.op_type, domain, opsets.get(domain, 0)) is not None
    if node.domain == "com.microsoft":
        return node.op_type in _MICROSOFT
    return node.domain == "com.microsoft.nchwc" and node.op_type in _NCHWC


def _draws(node: Node) -> bool:
    if node.domain != "":
        return False
    return node.op_type in _RANDOM or (node.op_type == "Dropout" and _may_train(node))


def _may_train(node: Node) -> bool:
    """Whether a Dropout may be in training mode, in which it is random."""
    opset = node.graph.opset()
    if opset < 7:
        return bool(node.op != "Dropout" or not node.attr("is_test", 0))
    mode = node.input(2)
    if opset < 12 or mode is None:
        return False
    value = mode.const(max_bytes=64)
    return value is None or bool(value.any())


def _inside(node: Node) -> list[Node]:
    return [inner for graph in node.subgraphs.values() for inner in graph] if node.subgraphs else []


def body_is(node: Node, check: Callable[[Node], bool]) -> bool:
    """Whether all nodes of the function that `node` calls pass a check; True if it calls none."""
    if not node.op.startswith("call "):
        return True
    model = node.graph.model
    answers = _answers.setdefault(model, {})
    name = node.op.removeprefix("call ").removesuffix(":")
    known = answers.get((name, check))
    if known is None:
        # A recursive function is malformed: until its answer is known, it counts as impure.
        answers[name, check] = False
        body = next((graph for graph in model.functions if graph.name == name), None)
        known = answers[name, check] = body is not None and all(map(check, body))
    return known
