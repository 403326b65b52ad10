"""Reasons why graphopt has no equivalent of a peer's pass; `graphopt passes --peers` prints them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_INTERFACE = "it changes the interface of the model, which no pass may; graphopt.compat.onnxoptimizer offers it"
_CAFFE2 = "it prepares models for Caffe2; graphopt.compat.onnxoptimizer offers it"
_QUANTIZES = "it quantizes or rounds weights or activations: other numbers are no optimization"
_PRUNES = "it sets weights to zero: other numbers are no optimization"
_DEVICE = "it spells an operator out for devices that lack it; ONNX Runtime's kernel for it is faster"
_MORE_WORK = "it trades an operator for one that costs as much or more"
_DECODERS = "it writes an operator that keeps a cache, whose inputs the caller would have to give"
_QDQ = "quantized models keep their QuantizeLinear and DequantizeLinear: the runtime fuses them when it loads the model"
_QDQ_HELP = "it prepares quantized models for the runtime's own fusion, which runs when it loads the model"
_OTHER_EP = "it serves CUDA and DirectML nodes and does nothing on CPU"
_FREE_VIEW = "the runtime does either as a view, at the same cost"
_SLOWER_SKIP = "measured 4 to 6 times slower than Add and LayerNormalization on CPU"
_AUTO_PAD = "every pass here reads auto_pad as it stands, so that there is nothing to prepare"


def _each(reason: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, reason)


ONNXOPTIMIZER: Mapping[str, str] = MappingProxyType(
    {
        "nop": "it does nothing; graphopt.compat.onnxoptimizer takes the name",
        **_each(_INTERFACE, "rename_input_output", "rewrite_input_dtype"),
        **_each(_CAFFE2, "lift_lexical_references", "split_init", "split_predict"),
    }
)

_ONNXSIM_QUANTIZERS = (
    "adpq", "any_precision_llm", "aqlm", "attention_quantization", "cross_layer_equalization", "d2quant_dsq",
    "deepseek_fp8", "double_quantization", "drop_by_drop", "dynamic_quantize_attention", "dynamic_quantize_matmul",
    "dynamic_quantize_matmul_integer_to_float", "dynamic_quantize_ternary_matmul", "fp6_llm", "gguf_q2_k", "gguf_q3_k",
    "gguf_q4_0", "gguf_q4_1", "gguf_q4_k", "gguf_q5_0", "gguf_q5_1", "gguf_q5_k", "gguf_q6_k", "gguf_q8_0",
    "gguf_ternary_quant", "hqq", "ibert_gelu", "ibert_softmax", "icquant", "if4", "intactkv", "iq4_nl", "kbvq_moe",
    "kmeans_quantization", "leptoquant", "llm_fp4", "lo_bcq", "nf4", "nvfp4_quantization", "olive",
    "qoperator_quantize_activation", "qoperator_quantize_concat", "qoperator_quantize_conv",
    "qoperator_quantize_elementwise", "qoperator_quantize_gemm", "qoperator_quantize_matmul",
    "qoperator_quantize_pool", "qoperator_quantize_softmax", "qoperator_quantize_where", "qoq", "quantize_bf16",
    "quantize_fp16", "quantize_fp8", "quarot", "quip_sharp", "static_quantize_conv", "static_quantize_int16_conv",
    "static_quantize_int16_matmul", "static_quantize_matmul", "weight_only_quantize_conv",
    "weight_only_quantize_int16_conv", "weight_only_quantize_int16_matmul", "weight_only_quantize_int4_conv",
    "weight_only_quantize_int4_matmul", "weight_only_quantize_int8_block_conv",
    "weight_only_quantize_int8_block_matmul", "weight_only_quantize_matmul", "weight_only_quantize_matmul_nbits",
    "weight_only_quantize_mxfp4_matmul", "zeroquant",
)  # fmt: skip

ONNXSIM: Mapping[str, str] = MappingProxyType(
    {
        **ONNXOPTIMIZER,
        **_each(_QUANTIZES, *_ONNXSIM_QUANTIZERS),
        **_each(
            _PRUNES,
            "magnitude_pruning_attention", "magnitude_pruning_conv", "magnitude_pruning_global",
            "magnitude_pruning_matmul",
        ),
        **_each(
            _DEVICE,
            "dilated_conv_to_taps", "explicit_conv_padding", "gemm_transA_to_transpose",
            "rewrite_arg_reduce_select_last_index", "rewrite_bev_pool_to_scatter", "rewrite_bool_where",
            "rewrite_deform_conv_to_gather", "rewrite_gatherelements_to_gather", "rewrite_gathernd_to_gather",
            "rewrite_gridsample_to_gather", "rewrite_implicit_broadcast", "rewrite_msdeformattn_to_gridsample",
            "rewrite_scatterelements_to_scatternd", "rewrite_tensor_scatter_to_scatter_elements",
            "rewrite_trt_batched_nms", "rewrite_trt_batched_rotated_nms", "split_large_gather",
        ),
        **_each(_MORE_WORK, "fuse_matmul_into_conv", "fuse_reduce_sum_into_conv", "neg_to_mul", "pow2_to_mul"),
        "defuse_matmul_integer_to_float": "it undoes quantization: other numbers are no optimization",
        "eliminate_reshape_around_elementwise": "it removes what fuse_matmul_add_bias_into_gemm_batched leaves",
        "explicit_auto_pad": _AUTO_PAD,
        "fuse_gqa": _DECODERS,
        "fuse_lp_normalization": "the runtime's LpNormalization gives 0 where the division by a zero norm gives NaN",
        "fuse_rope": "the standard operator's kernel must be there and faster, which is not shown for CPU",
        "maxpool_rowmajor_when_indices_unused": "storage_order counts only for indices, which nobody reads there",
        "rank0_to_rank1": "it changes the interface of the model, which no pass may",
    }
)  # fmt: skip

ONNXRUNTIME: Mapping[str, str] = MappingProxyType(
    {
        "BiasDropoutFusion": _OTHER_EP,
        "BiasSoftmaxFusion": _OTHER_EP,
        "EmbedLayerNormFusion": "on CPU it is slower than the operators that it replaces",
        "EnsureUniqueDQForNodeUnit": _QDQ_HELP,
        "FreeDimensionOverrideTransformer": "it applies a session option; `graphopt optimize --shape` fixes dimensions",
        "GroupQueryAttentionFusion": _OTHER_EP,
        "GroupQueryAttentionPreNormFusion": _OTHER_EP,
        "LabelEncoderFusion": "the domain ai.onnx.ml is outside what graphopt rewrites",
        "MatMulActivationFusion": _OTHER_EP,
        "MatMulNBitsFusion": _QDQ,
        "QDQFinalCleanupTransformer": "it changes numbers: what a pair rounds away would come back",
        **_each(_SLOWER_SKIP, "SkipLayerNormFusion", "BiasSkipLayerNormFusion"),
        "SwiGluFusion": _OTHER_EP,
        "WeightBiasQuantization": _QDQ_HELP,
        "WhereDummyDq": _QDQ_HELP,
    }
)  # fmt: skip

ONNXSLIM: Mapping[str, str] = MappingProxyType({})

ONNXSCRIPT: Mapping[str, str] = MappingProxyType(
    {
        "Flatten2Reshape": _FREE_VIEW,
        "LiftSubgraphInitializersToMainGraphPass": "weights in a branch are read there at no cost; names stay in scope",
        "NormalizePadFormatConv": _AUTO_PAD,
        "NormalizePadFormatConvInteger": _AUTO_PAD,
        "RemoveUnusedOpsetsPass": "an unused import costs nothing, and the author's header stays as it is",
        "gemm_to_matmul_add_rule": "it splits what fuse_matmul_add_bias_into_gemm joins",
    }
)  # fmt: skip

BY_PEER: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "onnxoptimizer": ONNXOPTIMIZER,
        "onnxsim": ONNXSIM,
        "onnxruntime": ONNXRUNTIME,
        "onnxslim": ONNXSLIM,
        "onnxscript": ONNXSCRIPT,
    }
)
