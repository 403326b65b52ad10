"""Random permutations on both sides of a reshape that parts and joins what it is given."""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from graphopt import PassManager
from graphopt.verify import compare

NAME = "fuse_transposes_around_reshape"


def grouped(pieces: list[int], draw: random.Random) -> list[list[int]]:
    """Neighbours joined at random, as the axes of a shape."""
    groups: list[list[int]] = [[]]
    for piece in pieces:
        if groups[-1] and draw.random() < 0.5:
            groups.append([])
        groups[-1].append(piece)
    return groups


def drawn(seed: int) -> onnx.ModelProto:
    """`Reshape`, `Transpose`, `Reshape`, `Transpose`, `Reshape`, of which the first and the last may be missing."""
    draw = random.Random(seed)
    sizes = [draw.choice([1, 2, 2, 3, 4, 5]) for _ in range(draw.randint(2, 6))]
    nodes, tensors, groups = [], [], grouped(list(range(len(sizes))), draw)
    value, dims = "x", [int(np.prod([sizes[piece] for piece in group])) for group in groups]

    def reshape(groups: list[list[int]]) -> None:
        nonlocal value
        shape = np.array([np.prod([sizes[piece] for piece in group]) for group in groups], np.int64)
        tensors.append(numpy_helper.from_array(shape, f"shape{len(nodes)}"))
        nodes.append(helper.make_node("Reshape", [value, tensors[-1].name], [f"v{len(nodes)}"]))
        value = nodes[-1].output[0]

    if draw.random() < 0.4:
        dims = [int(np.prod(dims))]
        reshape(groups)
    for number in range(2):
        perm = draw.sample(range(len(groups)), len(groups))
        nodes.append(helper.make_node("Transpose", [value], [f"v{len(nodes)}"], perm=perm))
        value, groups = nodes[-1].output[0], grouped([piece for axis in perm for piece in groups[axis]], draw)
        if number == 0 or draw.random() < 0.6:
            reshape(groups)
    given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, dims)
    graph = helper.make_graph(nodes, "g", [given], [helper.make_empty_tensor_value_info(value)], tensors)
    return onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_every_element_is_where_it_was(first: int) -> None:
    fired = 0
    for seed in range(first, first + 50):
        model = drawn(seed)
        result = PassManager(passes=NAME, strict=True).run(model)
        fired += result.hits.get(NAME, 0)
        (dims,) = ([dim.dim_value for dim in given.type.tensor_type.shape.dim] for given in model.graph.input)
        x = np.arange(np.prod(dims), dtype=np.float32).reshape(dims)
        assert compare(model, result.model, inputs={"x": x}, numerics="exact").ok, seed
        assert not PassManager(passes=NAME).run(result.model).events, seed
    assert fired > 10
