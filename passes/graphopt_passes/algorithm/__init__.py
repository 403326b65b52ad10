"""Passes that choose which algorithm computes an operator."""

PASSES: dict[str, str] = {
    "convert_conv_to_winograd": "algorithm.winograd:ConvertConvToWinograd",
}
