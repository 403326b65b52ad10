"""Which pass of a peer corresponds to which pass of graphopt.

graphopt takes over onnxoptimizer's names and follows their manner elsewhere: `eliminate_...` removes, `fuse_A_into_B`
merges, `fold_...` computes, `convert_...` changes the form. A pass without a counterpart is absent here, and
`graphopt.peers.reasons` says why; a pass of graphopt may also name its equivalents in its own record.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


ONNXOPTIMIZER: Mapping[str, str] = MappingProxyType(
    _same(
        "adjust_add",
        "adjust_slice_and_matmul",
        "eliminate_common_subexpression",
        "eliminate_consecutive_idempotent_ops",
        "eliminate_deadend",
        "eliminate_duplicate_initializer",
        "eliminate_identity",
        "eliminate_if_with_const_cond",
        "eliminate_nop_cast",
        "eliminate_nop_concat",
        "eliminate_nop_dropout",
        "eliminate_nop_expand",
        "eliminate_nop_flatten",
        "eliminate_nop_monotone_argmax",
        "eliminate_nop_pad",
        "eliminate_nop_reshape",
        "eliminate_nop_split",
        "eliminate_nop_transpose",
        "eliminate_nop_with_unit",
        "eliminate_shape_gather",
        "eliminate_shape_op",
        "eliminate_slice_after_shape",
        "eliminate_unused_initializer",
        "extract_constant_to_initializer",
        "fuse_add_bias_into_conv",
        "fuse_bn_into_conv",
        "fuse_concat_into_reshape",
        "fuse_consecutive_concats",
        "fuse_consecutive_log_softmax",
        "fuse_consecutive_reduce_unsqueeze",
        "fuse_consecutive_slices",
        "fuse_consecutive_squeezes",
        "fuse_consecutive_transposes",
        "fuse_consecutive_unsqueezes",
        "fuse_matmul_add_bias_into_gemm",
        "fuse_pad_into_conv",
        "fuse_pad_into_pool",
        "fuse_qkv",
        "fuse_transpose_into_gemm",
        "replace_einsum_with_matmul",
        "rewrite_where",
        "set_unique_name_for_nodes",
    )
)

# Passes that onnxsim runs by default and can skip by name, but that none of its lists shows.
ONNXSIM_UNLISTED = (
    "eliminate_loop_with_const_trip_count",
    "eliminate_nop_reduce",
    "eliminate_nop_softmax",
    "eliminate_optional_get_element",
    "eliminate_optional_has_element",
    "eliminate_reshape_around_elementwise",
    "eliminate_reshape_family_on_constant",
    "eliminate_sequence_at_construct",
    "eliminate_sequence_length_construct",
    "fuse_attention",
    "fuse_consecutive_mul",
    "fuse_consecutive_reduce",
    "fuse_consecutive_reshapes",
    "fuse_gelu",
    "fuse_gqa",
    "fuse_layer_norm",
    "fuse_lp_normalization",
    "fuse_matmul_add_bias_into_gemm_batched",
    "fuse_mul_into_conv",
    "fuse_preceding_mul_into_conv",
    "fuse_reshape_family",
    "fuse_rms_norm",
    "fuse_rope",
    "fuse_split_gather_concat",
    "rewrite_arg_reduce_select_last_index",
    "rewrite_bool_where",
)

_ONNXSIM_SAME = (
    "eliminate_nop_reduce",
    "eliminate_nop_softmax",
    "eliminate_optional_get_element",
    "eliminate_optional_has_element",
    "eliminate_sequence_at_construct",
    "eliminate_sequence_length_construct",
    "fuse_consecutive_mul",
    "fuse_consecutive_reshapes",
    "fuse_gelu",
    "fuse_matmul_add_bias_into_gemm_batched",
    "fuse_mul_into_conv",
    "fuse_preceding_mul_into_conv",
)

ONNXSIM: Mapping[str, str] = MappingProxyType(
    {
        **ONNXOPTIMIZER,
        **_same(*_ONNXSIM_SAME),
        "constant_folding": "fold_constants",
        "eliminate_reshape_family_on_constant": "fold_constants",
        "fuse_consecutive_squeeze_unsqueeze": "eliminate_squeeze_unsqueeze",
        "fuse_layer_norm": "fuse_layer_normalization",
        "fuse_reshape_family": "fuse_consecutive_reshapes",
        "fuse_rms_norm": "fuse_rms_normalization",
    }
)

ONNXRUNTIME: Mapping[str, str] = MappingProxyType(
    {
        # level 1, rules
        "EliminateIdentity": "eliminate_identity",
        "EliminateSlice": "eliminate_nop_slice",
        "UnsqueezeElimination": "fold_constants",
        "EliminateDropout": "eliminate_nop_dropout",
        "ExpandElimination": "eliminate_nop_expand",
        "CastElimination": "eliminate_nop_cast",
        "CastChainElimination": "fuse_consecutive_casts",
        "PreShapeNodeElimination": "eliminate_cast_before_shape",
        "NoopElimination": "eliminate_nop_with_unit",
        "DivMulFusion": "fuse_div_mul",
        "FuseReluClip": "fuse_relu_into_clip",
        "GemmSumFusion": "fuse_sum_into_gemm",
        "GemmTransposeFusion": "fuse_transpose_into_gemm",
        "NotWhereFusion": "rewrite_where",
        "ConvAddFusion": "fuse_add_bias_into_conv",
        "ConvMulFusion": "fuse_mul_into_conv",
        "ConvBNFusion": "fuse_bn_into_conv",
        "Pad_Fusion": "fuse_pad_into_conv",
        "MatMul_BatchNormalization_Fusion": "fuse_bn_into_matmul",
        # level 1, transformers
        "DoubleQDQPairsRemover": "eliminate_double_qdq",
        "ConstantSharing": "eliminate_duplicate_initializer",
        "CommonSubexpressionElimination": "eliminate_common_subexpression",
        "ConstantFolding": "fold_constants",
        "MatMulAddFusion": "fuse_matmul_add_bias_into_gemm",
        "ReshapeFusion": "fuse_concat_into_reshape",
        "GeluFusionL1": "fuse_gelu",
        "LayerNormFusionL1": "fuse_layer_normalization",
        # level 2
        "TransposeOptimizer_CPUExecutionProvider": "move_transposes",
        "ClipQuantRewrite": "eliminate_clip_before_quantize",
        "ReluQuantRewrite": "eliminate_relu_before_quantize",
        "GeluFusionL2": "fuse_erf_gelu",
        "LayerNormFusionL2": "fuse_layer_normalization",
        "SimplifiedLayerNormFusion": "fuse_branchwise_rms_norm",
        "QDQS8ToU8Transformer": "convert_int8_to_uint8",
        "QDQSelectorActionTransformer": "fuse_qdq_into_op",
        "MatMulIntegerToFloatFusion": "fuse_scale_into_matmul_integer",
        "DynamicQuantizeMatMulFusion": "fuse_dynamic_quantize_into_matmul",
        "GemmActivationFusion": "fuse_activation_into_gemm",
        "ConvActivationFusion": "fuse_activation_into_conv",
        "MatmulTransposeFusion": "fuse_transpose_into_matmul",
        "MatMulScaleFusion": "fuse_scale_into_matmul",
        "BiasGeluFusion": "fuse_add_bias_into_gelu",
        "FastGeluFusion": "fuse_fast_gelu",
        "QuickGeluFusion": "fuse_quick_gelu",
        # levels 3 and 4
        "NchwcTransformer": "convert_layout_nchwc",
        "NhwcTransformer": "convert_layout_nhwc",
        "ConvAddActivationFusion": "fuse_add_into_conv",
        "FuseFp16InitializerToFp32NodeTransformer": "fold_constants",
    }
)

ONNXSLIM: Mapping[str, str] = MappingProxyType(
    {
        "constant_folding": "fold_constants",
        "dead_node_elimination": "eliminate_deadend",
        "subexpression_elimination": "eliminate_common_subexpression",
        "weight_tying": "eliminate_duplicate_initializer",
        "EliminationConcat": "fuse_consecutive_concats",
        "EliminationReshape": "fuse_consecutive_reshapes",
        "EliminationReshapeAs": "fuse_concat_into_reshape",
        "EliminationSlice": "fuse_consecutive_slices",
        "EliminationTranspose": "fuse_consecutive_transposes",
        "EliminationUnsqueeze": "fuse_consecutive_unsqueezes",
        "EliminationTransposeAsReshape": "convert_transpose_to_reshape",
        "FusionConcatReshape": "fuse_concat_into_reshape",
        "FusionConvAdd": "fuse_add_bias_into_conv",
        "FusionConvTransposeAdd": "fuse_add_bias_into_conv",
        "FusionConvBN": "fuse_bn_into_conv",
        "FusionConvTransposeBN": "fuse_bn_into_conv",
        "FusionConvMul": "fuse_mul_into_conv",
        "FusionConvTransposeMul": "fuse_mul_into_conv",
        "FusionGemm": "fuse_matmul_add_bias_into_gemm",
        "FusionGemmMul": "fuse_mul_into_gemm",
        "FusionGemmAdd": "fuse_add_bias_into_gemm",
        "FusionPadConv": "fuse_pad_into_conv",
        "FusionReduce": "fuse_consecutive_reduce_unsqueeze",
    }
)

ONNXSCRIPT: Mapping[str, str] = MappingProxyType(
    {
        # passes
        "FoldConstantsPass": "fold_constants",
        "RemoveUnusedNodesPass": "eliminate_deadend",
        "RemoveUnusedFunctionsPass": "eliminate_unused_function",
        "LiftConstantsToInitializersPass": "extract_constant_to_initializer",
        "DeduplicateInitializersPass": "eliminate_duplicate_initializer",
        "CommonSubexpressionEliminationPass": "eliminate_common_subexpression",
        "IdentityEliminationPass": "eliminate_identity",
        # rules
        "CastCast": "fuse_consecutive_casts",
        "CastIdentity": "eliminate_nop_cast",
        "ExpandIdentity": "eliminate_nop_expand",
        "ReshapeReshape": "fuse_consecutive_reshapes",
        "TransposeIdentity": "eliminate_nop_transpose",
        "TransposeTranspose": "fuse_consecutive_transposes",
        "UnsqueezeUnsqueeze": "fuse_consecutive_unsqueezes",
        "SqueezeReshape1d": "fuse_consecutive_reshapes",
        "collapse_slice_rule": "eliminate_nop_slice",
        "collapse_slice2_rule": "eliminate_nop_slice",
        "FuseBatchNormIntoConv": "fuse_bn_into_conv",
        "FuseBatchNormIntoConvTranspose": "fuse_bn_into_conv",
        "FuseBatchNormIntoGemm": "fuse_bn_into_gemm",
        "AffineConvFusion": "fuse_preceding_mul_into_conv",
        "ConvAffineFusion": "fuse_mul_into_conv",
        "FuseConvPad": "fuse_pad_into_conv",
        "FuseConvIntegerPad": "fuse_pad_into_conv",
        "FuseSuccessiveRelu": "eliminate_consecutive_idempotent_ops",
        "FuseSuccessiveClip": "fuse_consecutive_clips",
        "FuseSuccessiveClipRelu": "fuse_relu_into_clip",
        "FuseSuccessiveReluClip": "fuse_relu_into_clip",
        "FuseSuccessiveMin": "fuse_consecutive_min_max",
        "FuseSuccessiveMax": "fuse_consecutive_min_max",
        "cast_constant_of_shape_rule": "fuse_cast_into_constant_of_shape",
        "cast_constant_of_shape_without_value_rule": "fuse_cast_into_constant_of_shape",
        "FuseMinMaxToClip": "fuse_min_max_into_clip",
        "FuseMaxMinToClip": "fuse_min_max_into_clip",
        "MaterializeReshapeShape": "fuse_concat_into_reshape",
        "MatMulAddToGemm": "fuse_matmul_add_bias_into_gemm",
        "TransAMatMulAddToGemm": "fuse_matmul_add_bias_into_gemm",
        "TransBMatMulAddToGemm": "fuse_matmul_add_bias_into_gemm",
        "TransABMatMulAddToGemm": "fuse_matmul_add_bias_into_gemm",
        "mul_by_1_rule": "eliminate_nop_with_unit",
        "add_0_rule": "eliminate_nop_with_unit",
        "sub_0_rule": "eliminate_nop_with_unit",
        "div_by_1_rule": "eliminate_nop_with_unit",
        "dropout_zero_rule": "eliminate_nop_dropout",
        "dropout_inference_rule": "eliminate_nop_dropout",
        "ScatterAllDynamic": "eliminate_nop_scatter",
        "ScatterAllStatic": "eliminate_nop_scatter",
        "RemoveOptionalBiasFromConv": "eliminate_zero_bias",
        "RemoveOptionalBiasFromConvTranspose": "eliminate_zero_bias",
        "RemoveOptionalBiasFromQLinearConv": "eliminate_zero_bias",
        "RemoveOptionalBiasFromGemm": "eliminate_zero_bias",
        "one_reshape_matmul_reshape_rule": "fuse_reshapes_into_matmul",
        "two_reshapes_matmul_reshape_rule": "fuse_reshapes_into_matmul",
    }
)
