"""Skeletons: real exported graphs whose large weights are recipes, refilled with the same numbers every time.

A skeleton is a gzipped ModelProto in which the data of each large float tensor gave way to a seed and a distribution.
Loading one needs onnx and numpy only. Everything else of the export (names, attributes, small constants, metadata)
is there byte for byte. `benchmarks.skeleton_make` writes them.

    from benchmarks.skeleton import load_skeleton, names, sample_inputs
    model = load_skeleton("ts/resnet18")
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from benchmarks.zoo import DRESSES, ZOO

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "models" / "skeletons"
MARK = "*skeleton*"  # the `location` of a tensor that is to be refilled; no file is called that
KNOTS = 17
_CHUNK = 1 << 20
_TYPES = {
    TensorProto.FLOAT: np.dtype("<f4"),
    TensorProto.DOUBLE: np.dtype("<f8"),
    TensorProto.FLOAT16: np.dtype("<f2"),
}


def names(dress: str | None = None) -> list[str]:
    """The skeletons there are, as `dress/name`, in the order of the zoo; of one dress when it is given."""
    return [
        f"{wanted}/{name}"
        for wanted in (DRESSES if dress is None else (dress,))
        for name in ZOO
        if (FOLDER / wanted / f"{name}.onnx.gz").exists()
    ]


def load_skeleton(key: str) -> ModelProto:
    """The model called `dress/name`, its weights refilled: the same bytes on every load."""
    return refill(read_skeleton(FOLDER / f"{key}.onnx.gz"))


def read_skeleton(path: Path) -> ModelProto:
    """A skeleton file as it is, with recipes in the place of weights."""
    model = ModelProto()
    model.ParseFromString(gzip.decompress(path.read_bytes()))
    return model


def refill(model: ModelProto) -> ModelProto:
    """Replace, in place, each recipe of `model` by the numbers it stands for."""
    for tensor in tensors(model):
        if is_recipe(tensor):
            recipe = {entry.key: entry.value for entry in tensor.external_data}
            data = draw(recipe, int(np.prod(tensor.dims)), _TYPES[tensor.data_type])
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.raw_data = data.tobytes()
    return model


def is_recipe(tensor: TensorProto) -> bool:
    """Whether `tensor` is a recipe that `refill` replaces."""
    return bool(tensor.external_data) and tensor.external_data[0].value == MARK


def tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Every dense tensor of the model: initializers and attributes, of inner graphs and functions too."""
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


def draw(recipe: dict[str, str], count: int, dtype: np.dtype) -> np.ndarray:
    """`count` numbers by `recipe`.

    Only the raw stream of PCG64 is used, which NumPy keeps stable from version to version; the distributions that
    NumPy builds on it carry no such promise.
    """
    bits = np.random.PCG64(int(recipe["seed"]))
    out = np.empty(count, dtype)
    knots = np.array([float(part) for part in recipe["knots"].split()]) if "knots" in recipe else None
    for start in range(0, count, _CHUNK):
        raw = bits.random_raw(min(_CHUNK, count - start))
        stop = start + len(raw)
        out[start:stop] = _by_knots(raw, knots) if knots is not None else _bell(raw, recipe)
    return out


def _by_knots(raw: np.ndarray, knots: np.ndarray) -> np.ndarray:
    uniform = (raw >> np.uint64(11)) * 2.0**-53
    return np.interp(uniform, np.linspace(0.0, 1.0, len(knots)), knots)


def _bell(raw: np.ndarray, recipe: dict[str, str]) -> np.ndarray:
    """A sum of four uniform numbers: as good as a normal one for a weight, and exact on every machine."""
    quarters = raw.view("<u2").reshape(-1, 4)
    total = quarters[:, 0].astype(np.int32)
    for column in (1, 2, 3):
        total += quarters[:, column]
    z = (total - 131070).astype(np.float32) * np.float32(3.0**0.5 / 65536)
    z *= np.float32(recipe["std"])
    z += np.float32(recipe["mean"])
    return z


def sample_inputs(key: str, model: ModelProto, batch: int = 2, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs that the model called `dress/name` accepts; symbolic axes get `batch` and the zoo's own sizes."""
    random = np.random.default_rng(seed)
    specs = {spec.name: spec for spec in ZOO[key.rpartition("/")[2]].inputs}
    feed: dict[str, np.ndarray] = {}
    for value in model.graph.input:
        spec = specs[value.name]
        dims = value.type.tensor_type.shape.dim
        shape = [
            dim.dim_value if dim.HasField("dim_value") else (batch if axis == 0 else spec.shape[axis])
            for axis, dim in enumerate(dims)
        ]
        if spec.kind == "ids":
            feed[value.name] = random.integers(0, spec.bound, shape, np.int64)
        elif spec.kind == "mask":
            feed[value.name] = np.ones(shape, np.int64)
            feed[value.name][-1, -shape[1] // 4 :] = 0
        else:
            feed[value.name] = random.standard_normal(shape, np.float32)
    return feed


def refilled_bytes(model: ModelProto) -> int:
    """How large the refilled model is, without refilling it."""
    recipes = [tensor for tensor in tensors(model) if is_recipe(tensor)]
    weights = sum(int(np.prod(tensor.dims)) * _TYPES[tensor.data_type].itemsize for tensor in recipes)
    return model.ByteSize() + weights


def save_skeleton(model: ModelProto, path: Path) -> int:
    """Write a model of recipes; the same bytes for the same model. Returns the size of the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = gzip.compress(model.SerializeToString(deterministic=True), 9, mtime=0)
    path.write_bytes(data)
    return len(data)


def as_array(tensor: TensorProto) -> np.ndarray:
    """The numbers of a tensor that is stored in the model."""
    return onnx.numpy_helper.to_array(tensor)
