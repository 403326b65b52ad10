"""Fusions to operators beyond the standard, of domain `com.microsoft`, that ONNX Runtime's CPU provider has."""

PASSES: dict[str, str] = {
    "fuse_fast_gelu": "fusion.contrib.gelu:FuseFastGelu",
    "fuse_erf_gelu": "fusion.contrib.gelu:FuseErfGelu",
    "fuse_quick_gelu": "fusion.contrib.gelu:FuseQuickGelu",
    "fuse_add_bias_into_gelu": "fusion.contrib.gelu:FuseAddBiasIntoGelu",
    "fuse_branchwise_rms_norm": "fusion.contrib.normalization:FuseBranchwiseRmsNorm",
    "replace_skip_layer_normalization": "fusion.contrib.skip:ReplaceSkipLayerNormalization",
    "fuse_transpose_into_matmul": "fusion.contrib.matmul:FuseTransposeIntoMatmul",
    "fuse_scale_into_matmul": "fusion.contrib.matmul:FuseScaleIntoMatmul",
    "fuse_activation_into_gemm": "fusion.contrib.activation:FuseActivationIntoGemm",
    "fuse_add_into_conv": "fusion.contrib.activation:FuseAddIntoConv",
    "fuse_activation_into_conv": "fusion.contrib.activation:FuseActivationIntoConv",
    "convert_int8_to_uint8": "fusion.contrib.signed:ConvertInt8ToUint8",
    "convert_quantized_weights": "fusion.contrib.weights:ConvertQuantizedWeights",
    "fold_dequantized_parameters": "fusion.contrib.constants:FoldDequantizedParameters",
    "fuse_qdq_into_op": "fusion.contrib.quantized:FuseQdqIntoOp",
    "fuse_requantization": "fusion.contrib.requantize:FuseRequantization",
    "fuse_qdq_into_split": "fusion.contrib.moves:FuseQdqIntoSplit",
    "fuse_scale_into_matmul_integer": "fusion.contrib.integer:FuseScaleIntoMatmulInteger",
    "fuse_dynamic_quantize_into_matmul": "fusion.contrib.integer:FuseDynamicQuantizeIntoMatmul",
}
