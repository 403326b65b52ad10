"""The second phase: the blocked form of each operator, one file per family."""

from __future__ import annotations

from collections.abc import Callable

from graphopt.ir import Node
from graphopt_passes.layout.activations import ELEMENTWISE
from graphopt_passes.layout.form import Form
from graphopt_passes.layout.forms.channels_last import transposed
from graphopt_passes.layout.forms.channelwise import batch_normalization
from graphopt_passes.layout.forms.conv_transposes import transposed_convolution
from graphopt_passes.layout.forms.convolutions import convolution
from graphopt_passes.layout.forms.elementwise import combined, prelu, unary
from graphopt_passes.layout.forms.pieces import joined, sliced, split
from graphopt_passes.layout.forms.pools import absent, averaged, globally_pooled, pooled
from graphopt_passes.layout.forms.quantized import rounded
from graphopt_passes.layout.forms.resize import resized
from graphopt_passes.layout.forms.spatial import padded
from graphopt_passes.layout.known import Known
from graphopt_passes.layout.lanes import COMBINED

FORMS: dict[str, Callable[[Node, Known], Form]] = {
    "AveragePool": pooled,
    "BatchNormalization": batch_normalization,
    "Concat": joined,
    "Conv": convolution,
    "ConvTranspose": transposed_convolution,
    "DequantizeLinear": rounded,
    "GlobalAveragePool": globally_pooled,
    "GlobalLpPool": absent,
    "GlobalMaxPool": globally_pooled,
    "LpPool": absent,
    "MaxPool": pooled,
    "MaxRoiPool": absent,
    "PRelu": prelu,
    "Pad": padded,
    "ReduceMean": averaged,
    "Resize": resized,
    "Slice": sliced,
    "Split": split,
    "Transpose": transposed,
    "Upsample": resized,
    "com.microsoft::DequantizeLinear": rounded,
    "com.microsoft::FusedConv": convolution,
    **dict.fromkeys(COMBINED, combined),
    **dict.fromkeys(ELEMENTWISE, unary),
}
"""The function that reads the form of each operator; it declines nodes that cannot be blocked."""
