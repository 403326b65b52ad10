"""Passes that join operators."""

PASSES: dict[str, str] = {
    "adjust_add": "fusion.canonical:AdjustAdd",
    "fuse_add_bias_into_conv": "fusion.conv_affine:FuseAddBiasIntoConv",
    "fuse_bn_into_conv": "fusion.conv_batchnorm:FuseBnIntoConv",
    "fuse_concat_into_reshape": "fusion.concat:FuseConcatIntoReshape",
    "fuse_consecutive_concats": "fusion.concat:FuseConsecutiveConcats",
    "fuse_consecutive_log_softmax": "fusion.softmax:FuseConsecutiveLogSoftmax",
    "fuse_consecutive_reduce_unsqueeze": "fusion.reduce:FuseConsecutiveReduceUnsqueeze",
    "fuse_consecutive_slices": "fusion.slices:FuseConsecutiveSlices",
    "fuse_consecutive_squeezes": "fusion.squeeze:FuseConsecutiveSqueezes",
    "fuse_consecutive_transposes": "fusion.transpose:FuseConsecutiveTransposes",
    "fuse_consecutive_unsqueezes": "fusion.squeeze:FuseConsecutiveUnsqueezes",
    "fuse_matmul_add_bias_into_gemm": "fusion.gemm:FuseMatmulAddBiasIntoGemm",
    "fuse_mul_into_conv": "fusion.conv_affine:FuseMulIntoConv",
    "fuse_pad_into_conv": "fusion.padding:FusePadIntoConv",
    "fuse_pad_into_max_pool": "fusion.padding:FusePadIntoMaxPool",
    "fuse_pad_into_pool": "fusion.padding:FusePadIntoPool",
    "fuse_parallel_convs": "fusion.parallel_convs:FuseParallelConvs",
    "fuse_qkv": "fusion.qkv:FuseQkv",
    "fuse_transpose_into_gemm": "fusion.gemm:FuseTransposeIntoGemm",
    "rewrite_where": "fusion.where:RewriteWhere",
}
