"""Sizes that a model only declares, and no machine has room for, are no reason to write lists of that length."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import pytest

from graphopt.manager import PassManager
from graphopt.testing import Case, cases
from tests.hostile.mutations import GOLDEN

HUGE = 1 << 44
FOUND = [
    "convert_average_pool_to_conv",
    "convert_channel_normalization_to_last",
    "convert_conv_3d_to_2d",
    "convert_conv_pads_to_pad",
    "convert_conv_to_winograd",
    "convert_conv_transpose_3d_to_2d",
    "convert_depth_to_space_to_moves",
    "convert_depthwise_bytes_to_lanes",
    "convert_einsum_to_product",
    "convert_group_normalization_to_instance",
    "convert_groups_to_instance_normalization",
    "convert_halves_to_rotary_embedding",
    "convert_layer_normalization_axis",
    "convert_layout_nchwc",
    "convert_leading_max_to_parts",
    "convert_leading_reduction_to_matmul",
    "convert_leading_reduction_to_rows",
    "convert_lrn_to_pool",
    "convert_resize_to_products",
    "convert_roll_to_gather",
    "convert_softmax_to_rows",
    "convert_stft_to_product",
    "convert_three_channels_to_four",
    "convert_turned_halves_to_rotary_embedding",
    "convert_turned_pairs_to_rotary_embedding",
    "eliminate_nop_scatter",
    "fuse_mul_add_into_batch_normalization",
    "fuse_qdq_into_op",
    "fuse_transpose_into_flattened_gemm",
]
"""Passes that once ran out of memory, out of 64 bits, or did not end."""


def enlarged(model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """The model with one of the sizes of its inputs enlarged, wherever they have it."""
    shapes = [given.type.tensor_type.shape for given in model.graph.input]
    for size in sorted({dim.dim_value for shape in shapes for dim in shape.dim if dim.dim_value}):
        changed = onnx.ModelProto.FromString(model.SerializeToString())
        for dim in (dim for given in changed.graph.input for dim in given.type.tensor_type.shape.dim):
            if dim.dim_value == size:
                dim.dim_value = HUGE
        del changed.graph.value_info[:]
        for dim in (dim for result in changed.graph.output for dim in result.type.tensor_type.shape.dim):
            dim.Clear()
        yield changed


@pytest.mark.parametrize("rule", FOUND)
def test_no_list_is_as_long_as_a_declared_size(rule: str) -> None:
    for case in map(Case.read, cases(GOLDEN / rule)):
        if "FIRES" not in case.head:
            continue
        for model in enlarged(case.model()):
            result = PassManager(passes=rule, target=case.target, numerics="fast", strict=True).run(model)
            assert result.model.ByteSize() < model.ByteSize() + (1 << 20)


def test_a_part_is_found_without_counting_positions() -> None:
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[{HUGE},3] x, float[2,3] z) => (float[n,3] y)'
        f" <int64[1] s = {{1}}, int64[1] e = {{{HUGE}}}, int64[1] a = {{0}}>"
        " { c = Concat<axis = 0>(x, z)  t = Sin(c)  y = Slice(t, s, e, a) }"
    )
    result = PassManager(passes="eliminate_computed_part_of_concat", strict=True).run(model)
    assert [node.op_type for node in result.model.graph.node] == ["Slice", "Sin"]
