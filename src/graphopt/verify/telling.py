"""Values that a model compares its inputs with, or looks up: random inputs rarely contain them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from graphopt.verify.source import all_nodes, constant_tensors
from graphopt.verify.values import Array

_COMPARING = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
_KEYS = frozenset({"cats_int64s", "classlabels_int64s", "int64_vocabulary", "keys_int64s", "pool_int64s"})
_LONG = 1 << 10
_ORDINARY = 1e3
_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Told:
    """Values that a model compares with, or looks up: texts, whole numbers and floats."""

    texts: tuple[str, ...]
    numbers: tuple[int, ...]
    floats: tuple[float, ...]

    def among(self, rng: np.random.Generator, array: Array, low: int | None = None, high: int | None = None) -> Array:
        """Random values, some of them replaced with these values, as far as they are in a range."""
        if array.dtype.kind in "OSU":
            found = np.array(self.texts, dtype=object)
        elif array.dtype.kind in "iu" and array.dtype.itemsize > 1:
            kind = np.iinfo(array.dtype)
            low, high = kind.min if low is None else low, kind.max if high is None else high
            found = np.array([n for n in self.numbers if low <= n <= high], dtype=array.dtype)
        elif array.dtype.kind == "f":
            found = np.array(self.floats).astype(array.dtype)
        else:
            return array
        if not found.size:
            return array
        chosen = np.asarray(rng.random(array.shape)) < _SHARE
        return np.asarray(np.where(chosen, rng.choice(found, array.shape), array), dtype=array.dtype)


def told(model: onnx.ModelProto) -> Told:
    """The constants that a model and its functions compare with, and the keys of their tables."""
    bodies = [model.graph.node, *(function.node for function in model.functions)]
    nodes = [node for body in bodies for node in all_nodes(body)]
    constants = constant_tensors(model.graph, nodes)
    compared = [constants[i] for n in nodes if n.op_type in _COMPARING for i in n.input if i in constants]
    texts = {t for n in nodes for a in n.attribute for t in a.strings} | {t for c in compared for t in c.string_data}
    numbers = {i for n in nodes for a in n.attribute if a.name in _KEYS for i in a.ints}
    numbers.update(int(number) for tensor in compared for number in _numbers(tensor, "iu"))
    floats = {float(number) for tensor in compared for number in _numbers(tensor, "f") if abs(number) <= _ORDINARY}
    readable = sorted(text.decode(errors="replace") for text in texts)
    return Told(tuple(readable[:_LONG]), tuple(sorted(numbers)[:_LONG]), tuple(sorted(floats)[:_LONG]))


def _numbers(tensor: onnx.TensorProto, kinds: str) -> Array:
    array = onnx.numpy_helper.to_array(tensor)
    return array.reshape(-1)[:_LONG] if array.dtype.kind in kinds else np.zeros(0)
