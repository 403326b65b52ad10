"""Passes that join operators."""

PASSES: dict[str, str] = {
    "fuse_add_bias_into_conv": "fusion.conv_affine:FuseAddBiasIntoConv",
    "fuse_bn_into_conv": "fusion.conv_batchnorm:FuseBnIntoConv",
    "fuse_consecutive_transposes": "fusion.transpose:FuseConsecutiveTransposes",
    "fuse_matmul_add_bias_into_gemm": "fusion.gemm:FuseMatmulAddBiasIntoGemm",
    "fuse_mul_into_conv": "fusion.conv_affine:FuseMulIntoConv",
    "fuse_pad_into_conv": "fusion.padding:FusePadIntoConv",
}
