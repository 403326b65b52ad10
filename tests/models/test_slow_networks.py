"""Networks that slow operators hold up, generated small: the forms fire on them, are right, and settle."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from benchmarks.slow_networks import EXPORTED
from graphopt import Options, PassManager
from graphopt.pipeline import registry
from graphopt.system.sessions import open_session
from graphopt_passes.algorithm.work import Weighed

WEIGHED = [name for name in registry().names() if issubclass(registry().rule_class(name), Weighed)]
FORCED = Options(extra={name: {"force": True} for name in (*WEIGHED, "convert_conv_1d_to_2d", "convert_conv_3d_to_2d")})
FIRES = {
    "diffusion U-Net with attention": {"fuse_mul_add_into_batch_normalization"},
    "vision transformer, images of any size": {"convert_constant_resize_to_products"},
    "ConvNeXt": {"convert_channel_normalization_to_last", "convert_global_average_pool_to_reduce_mean"},
    "3-D U-Net": {"convert_conv_3d_to_2d", "convert_conv_transpose_3d_to_2d"},
    "segmentation by a pyramid of tokens": {"convert_softmax_of_few", "move_conv_before_resize"},
    "decoder step, grouped queries, 2047 cached": {
        "convert_halves_to_rotary_embedding",
        "convert_repeated_heads_to_rows",
    },
    "the same with sizes that have names": {"convert_halves_to_rotary_embedding", "convert_repeated_heads_to_rows"},
    "prefill of 256 tokens, grouped queries": {"convert_halves_to_rotary_embedding", "convert_repeated_heads_to_rows"},
    "mixture of experts, 64 tokens": set(),
    "vocoder": {"convert_conv_1d_to_2d"},
    "decoder of a codec, Snake": {"convert_conv_1d_to_2d", "convert_pow_to_products"},
    "speech separator": {"convert_conv_1d_to_2d", "fuse_layer_normalization"},
}
"""Which forms each network is to get, where they are written whatever they cost."""


@pytest.mark.parametrize("name", EXPORTED)
def test_forms_fire_on_a_network_and_are_right(name: str) -> None:
    model, feed = EXPORTED[name](small=True)
    onnx.checker.check_model(model, full_check=True)
    manager = PassManager("all", options=FORCED, strict=True, target="avx512")
    result, standard = manager.run(model), PassManager("extended", options=FORCED, strict=True).run(model)
    assert {*result.hits, *standard.hits} >= FIRES[name]
    again = manager.run(result.model)
    assert again.model.SerializeToString() == result.model.SerializeToString(), again.hits
    expected, found = (open_session(each).run(None, feed) for each in (model, standard.model))
    for one, two in zip(expected, found, strict=True):
        assert np.allclose(one, two, rtol=1e-4, atol=1e-4 * np.abs(one).max())
