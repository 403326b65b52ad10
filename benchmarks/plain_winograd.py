"""Measures layers of 3x3 convolutions on this machine: `python -m benchmarks.plain_winograd 64x64x56 ...`.

Each argument is CxKxH: input channels, output channels, height and width. Every line has the median milliseconds of
a convolution with `Relu` at batch 1 on one thread, direct and by both algorithms, alternating, so that other work on
the machine slows all alike. Runtime optimizations are on, so the direct one is blocked, with reorders at both ends.
"""

from __future__ import annotations

import sys
from statistics import median
from time import perf_counter

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from graphopt import Options, PassManager
from graphopt.system.sessions import open_session
from graphopt_passes.algorithm.transforms import TILES

DEFAULT = ("48x48x56", "64x64x56", "96x96x28", "128x128x28", "256x256x14", "512x512x7", "256x256x56", "512x512x28")
_PASS = "convert_conv_to_winograd"


def layer(inputs: int, outputs: int, side: int) -> onnx.ModelProto:
    """A model of one convolution with bias and `Relu`."""
    random = np.random.default_rng(0)
    kernel = np.asarray(random.standard_normal((outputs, inputs, 3, 3)) / np.sqrt(9 * inputs), np.float32)
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1] * 4), helper.make_node("Relu", ["c"], ["y"])]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, side, side])
        for name, channels in (("x", inputs), ("y", outputs))
    ]
    constants = [numpy_helper.from_array(kernel, "w"), numpy_helper.from_array(np.zeros(outputs, np.float32), "b")]
    graph = helper.make_graph(nodes, "layer", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def measure(inputs: int, outputs: int, side: int, runs: int = 25) -> list[float]:
    """Median milliseconds of a layer: direct, then with each tile size of `TILES`."""
    plain = layer(inputs, outputs, side)
    models = [plain]
    for tile in TILES:
        options = Options(extra={_PASS: {"force": tile}})
        models.append(PassManager(passes=_PASS, options=options).run(plain).model)
    sessions = [open_session(model, level="all") for model in models]
    x = np.random.default_rng(1).standard_normal((1, inputs, side, side)).astype(np.float32)
    times: list[list[float]] = [[] for _ in sessions]
    for turn in range(runs + 2):
        for session, taken in zip(sessions, times, strict=True):
            start = perf_counter()
            session.run(None, {"x": x})
            if turn >= 2:
                taken.append((perf_counter() - start) * 1e3)
    return [median(taken) for taken in times]


def main(arguments: list[str]) -> None:
    """Measure the given layers, or those of the built-in table."""
    sys.stdout.write(f"{'layer':14}{'direct':>9}" + "".join(f"{f'F({tile},3)':>9}" for tile in TILES) + "\n")
    for text in arguments or DEFAULT:
        inputs, outputs, side = (int(part) for part in text.split("x"))
        sys.stdout.write(f"{text:14}" + "".join(f"{time:9.2f}" for time in measure(inputs, outputs, side)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
