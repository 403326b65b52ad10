"""Skeletons: real exported graphs whose large weights are recipes, always refilled with the same numbers.

A skeleton is a gzipped ModelProto in which the data of each large float tensor is replaced with a seed and a
distribution. Loading one only needs onnx and numpy. Everything else of the export (names, attributes, small constants,
metadata) is kept byte for byte. `benchmarks.skeleton_make` writes them.

    from benchmarks.skeleton import load_skeleton, names, sample_inputs
    model = load_skeleton("ts/resnet18")

Networks that `benchmarks.architectures` writes by code are available in the same way, as `made/NAME`.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, TensorProto

from benchmarks.architectures import ARCHITECTURES, build
from benchmarks.zoo import DRESSES, ZOO
from graphopt.demo.skeletons import MARK, TYPES, draw, is_recipe, read_skeleton, refill, tensors

__all__ = [
    "KNOTS", "MADE", "MARK", "as_array", "draw", "is_recipe", "load_skeleton", "names", "read_skeleton", "refill",
    "refilled_bytes", "sample_inputs", "save_skeleton", "tensors",
]  # fmt: skip

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "models" / "skeletons"
KNOTS = 17


MADE = "made"
"""The dress of networks that are written by code; `names` only lists them for this dress."""


def names(dress: str | None = None) -> list[str]:
    """The names of skeletons, as `dress/name`, in the order of the zoo; of one dress if given."""
    if dress == MADE:
        return [f"{MADE}/{name}" for name in ARCHITECTURES]
    return [
        f"{wanted}/{name}"
        for wanted in (DRESSES if dress is None else (dress,))
        for name in ZOO
        if (FOLDER / wanted / f"{name}.onnx.gz").exists()
    ]


def load_skeleton(key: str) -> ModelProto:
    """The model called `dress/name`, its weights refilled: the same bytes on every load."""
    dress, _, name = key.partition("/")
    if dress == MADE:
        return build(name)[0]
    return refill(read_skeleton(FOLDER / f"{key}.onnx.gz"))


def sample_inputs(key: str, model: ModelProto, batch: int = 2, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs that the model called `dress/name` accepts; symbolic axes get `batch` and the zoo's own sizes."""
    random = np.random.default_rng(seed)
    dress, _, name = key.rpartition("/")
    specs = {spec.name: spec for spec in (build(name)[1] if dress == MADE else ZOO[name].inputs)}
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
    """The size of the refilled model, without refilling it."""
    recipes = [tensor for tensor in tensors(model) if is_recipe(tensor)]
    weights = sum(int(np.prod(tensor.dims)) * TYPES[tensor.data_type].itemsize for tensor in recipes)
    return model.ByteSize() + weights


def save_skeleton(model: ModelProto, path: Path) -> int:
    """Write a model of recipes, with the same bytes for the same model. Returns the size of the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = gzip.compress(model.SerializeToString(deterministic=True), 9, mtime=0)
    path.write_bytes(data)
    return len(data)


def as_array(tensor: TensorProto) -> np.ndarray:
    """The numbers of a tensor that is stored in the model."""
    return onnx.numpy_helper.to_array(tensor)
