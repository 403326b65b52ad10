"""Passes that choose the memory layout of values."""

PASSES: dict[str, str] = {
    "convert_channel_shuffle_to_gather": "layout.shuffle:ConvertChannelShuffleToGather",
    "convert_conv_1d_to_2d": "layout.rows:ConvertConv1dTo2d",
    "convert_conv_3d_to_2d": "layout.volumes:ConvertConv3dTo2d",
    "convert_feed_forward_to_conv": "layout.feed_forward:ConvertFeedForwardToConv",
    "convert_gemm_to_conv": "layout.heads:ConvertGemmToConv",
    "convert_layer_normalization_axis": "layout.norms:ConvertLayerNormalizationAxis",
    "convert_softmax_axis": "layout.softmax:ConvertSoftmaxAxis",
    "convert_layout_nchwc": "layout.nchwc:ConvertLayoutNchwc",
    "convert_layout_nhwc": "layout.nhwc:ConvertLayoutNhwc",
    "convert_tokens_to_image": "layout.tokens:ConvertTokensToImage",
    "eliminate_nop_reorder": "layout.pixels:EliminateNopReorder",
}
