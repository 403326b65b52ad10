"""Real exported graphs whose large weights are recipes, always refilled with the same numbers.

A skeleton is a gzipped ModelProto in which the data of each large float tensor is replaced with a seed and a
distribution. Loading one only needs onnx and numpy. Everything else of the export (names, attributes, small constants,
metadata) is kept byte for byte.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

MARK = "*skeleton*"  # the `location` of a tensor to be refilled; no file has this name
_CHUNK = 1 << 20
TYPES: dict[int, np.dtype[Any]] = {
    TensorProto.FLOAT: np.dtype("<f4"),
    TensorProto.DOUBLE: np.dtype("<f8"),
    TensorProto.FLOAT16: np.dtype("<f2"),
}

Array = np.ndarray[Any, np.dtype[Any]]


def read_skeleton(path: Path) -> ModelProto:
    """The contents of a skeleton file, with recipes in place of weights."""
    model = ModelProto()
    model.ParseFromString(gzip.decompress(path.read_bytes()))
    return model


def refill(model: ModelProto) -> ModelProto:
    """Replace, in place, each recipe of `model` with its numbers."""
    for tensor in tensors(model):
        if is_recipe(tensor):
            recipe = {entry.key: entry.value for entry in tensor.external_data}
            data = draw(recipe, int(np.prod(tensor.dims)), TYPES[tensor.data_type])
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.raw_data = data.tobytes()
    return model


def is_recipe(tensor: TensorProto) -> bool:
    """Whether `tensor` is a recipe that `refill` replaces."""
    return bool(tensor.external_data) and tensor.external_data[0].value == MARK


def tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Every dense tensor of the model: initializers and attributes, also in subgraphs and functions."""
    yield from _graph_tensors(model.graph)
    for function in model.functions:
        for node in function.node:
            yield from _node_tensors(node)


def _graph_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        yield from _node_tensors(node)


def _node_tensors(node: NodeProto) -> Iterator[TensorProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.TENSOR:
            yield attribute.t
        elif attribute.type == AttributeProto.TENSORS:
            yield from attribute.tensors
        elif attribute.type == AttributeProto.GRAPH:
            yield from _graph_tensors(attribute.g)
        elif attribute.type == AttributeProto.GRAPHS:
            for graph in attribute.graphs:
                yield from _graph_tensors(graph)


def draw(recipe: dict[str, str], count: int, dtype: np.dtype[Any]) -> Array:
    """Draw `count` numbers by `recipe`.

    Only the raw stream of PCG64 is used, which NumPy keeps stable across versions; NumPy does not promise that for its
    distributions.
    """
    bits = np.random.PCG64(int(recipe["seed"]))
    out = np.empty(count, dtype)
    knots = np.array([float(part) for part in recipe["knots"].split()]) if "knots" in recipe else None
    for start in range(0, count, _CHUNK):
        raw = bits.random_raw(min(_CHUNK, count - start))
        stop = start + len(raw)
        out[start:stop] = _by_knots(raw, knots) if knots is not None else _bell(raw, recipe)
    return out


def _by_knots(raw: Array, knots: Array) -> Array:
    uniform = (raw >> np.uint64(11)) * 2.0**-53
    return np.asarray(np.interp(uniform, np.linspace(0.0, 1.0, len(knots)), knots))


def _bell(raw: Array, recipe: dict[str, str]) -> Array:
    """A sum of four uniform numbers: close enough to a normal one for a weight, and exact on every machine."""
    quarters = raw.view("<u2").reshape(-1, 4)
    total = quarters[:, 0].astype(np.int32)
    for column in (1, 2, 3):
        total += quarters[:, column]
    z = (total - 131070).astype(np.float32) * np.float32(3.0**0.5 / 65536)
    z *= np.float32(recipe["std"])
    z += np.float32(recipe["mean"])
    found: Array = z
    return found
