"""Fusions into operators of domain `com.microsoft`, beyond the standard, that ONNX Runtime's CPU provider has."""

from graphopt_passes.naming import passes_of

PASSES = passes_of(
    "fusion.contrib",
    ("gelu", "FuseFastGelu", "FuseErfGelu", "FuseQuickGelu", "ConvertQuickGeluToSilu", "FuseAddBiasIntoGelu"),
    ("opset", "ConvertOpset"),
    ("functions", "ReplaceAttention"),
    ("normalization", "FuseBranchwiseRmsNorm", "ReplaceSkipLayerNormalization"),
    ("matmul", "FuseTransposeIntoMatmul", "FuseScaleIntoMatmul"),
    ("moved_scales", "FuseScaleIntoMovedMatmul"),
    ("attention", "FuseSelfAttention"),
    ("activation", "FuseActivationIntoGemm", "FuseAddIntoConv", "FuseActivationIntoConv"),
    ("standard", "ReplaceContribQuantization"),
    ("signed_operators", "ConvertSignedOperators"),
    ("signed", "ConvertInt8ToUint8"),
    ("weights", "ConvertQuantizedWeights"),
    ("constants", "FoldDequantizedParameters"),
    ("lookups", "MoveGatherBeforeDequantize", "ConvertInt4GatherToBytes"),
    ("moves", "MoveReshapeBeforeDequantize", "MoveQuantizeBeforeReshape", "MoveMaxBeforeDequantize"),
    ("quantized", "FuseQdqIntoOp"),
    ("float_products", "FuseDequantizeIntoMatmul"),
    ("word_products", "ConvertWordMatmulToBytes"),
    ("int4", "FuseInt4IntoMatmul"),
    ("blocks", "ConvertGroupsToBlocks", "ConvertFractionalZerosToSums"),
    ("requantize", "EliminateRescaledQdq", "FuseRequantization", "EliminateNopRequantization",
     "FuseScaleIntoDequantize"),
    ("moves", "FuseQdqIntoSplit"),
    ("integer", "FuseScaleIntoMatmulInteger", "FuseDynamicQuantizeIntoMatmul", "ConvertScaledCastToDequantize"),
)  # fmt: skip
