"""Networks of many families, written by code with random weights: what the exported skeletons do not have.

    from benchmarks.architectures import ARCHITECTURES, build
    model, inputs = build("sknet")

`benchmarks.skeleton` knows them as `made/NAME`. They are static, of batch 1 (recommendations: more), and small enough
to be measured in a second each.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx

from benchmarks.architectures.classifiers import CLASSIFIERS
from benchmarks.architectures.images import IMAGES
from benchmarks.architectures.net import Net
from benchmarks.architectures.sequences import SEQUENCES
from benchmarks.zoo import Input
from graphopt.demo.skeletons import refill

ARCHITECTURES: dict[str, Callable[[Net], tuple[str, ...]]] = {
    each.__name__: each for each in (*CLASSIFIERS, *IMAGES, *SEQUENCES)
}


def build(name: str) -> tuple[onnx.ModelProto, list[Input]]:
    """A network with its weights, and what it reads."""
    net = Net()
    results = ARCHITECTURES[name](net)
    return refill(net.model(*results)), net.inputs
