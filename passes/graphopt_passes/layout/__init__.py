"""Passes that choose the memory layout of values."""

from graphopt_passes.naming import passes_of

PASSES = passes_of(
    "layout",
    ("halves", "ConvertFloat16ToFloat32"),
    ("weights_of_floats", "FoldDequantizedWeights", "FoldLeftDequantizedWeights"),
    ("bytes_of_blocks", "ConvertMatmulOfBytes"),
    ("shuffle", "ConvertChannelShuffleToGather"),
    ("rows", "ConvertConv1dTo2d"),
    ("volumes", "ConvertConv3dTo2d"),
    ("feed_forward", "ConvertFeedForwardToConv"),
    ("pixel_products", "ConvertPixelProductToConv"),
    ("neighbours", "ConvertFewOutputsToNeighbours"),
    ("heads", "ConvertGemmToConv"),
    ("axes", "ConvertLayerNormalizationAxis", "ConvertSoftmaxAxis"),
    ("nchwc", "ConvertLayoutNchwc"),
    ("nhwc", "ConvertLayoutNhwc"),
    ("tokens", "ConvertTokensToImage", "EliminateNopReorder"),
    ("edges", "ConvertConvPadsToPad"),
)  # fmt: skip
