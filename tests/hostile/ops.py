"""Small models of one operator each, drawn at random: every schema, every version, odd values, part or all constant."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, defs, helper, numpy_helper

from tests.backend_models import backend_inputs, backend_models
from tests.hostile.hints import AXES, CHOICES, SHAPES, SIZES, small_ints

OLDEST = 7
"""Opsets before this one broadcast by attributes; folding leaves them alone."""

NEWEST = 28
"""What the installed runtime knows."""

_ELEMENTS = {
    f"tensor({name})": number
    for name, number in {
        "float": TensorProto.FLOAT, "double": TensorProto.DOUBLE, "float16": TensorProto.FLOAT16,
        "bfloat16": TensorProto.BFLOAT16, "bool": TensorProto.BOOL, "string": TensorProto.STRING,
        "int8": TensorProto.INT8, "int16": TensorProto.INT16, "int32": TensorProto.INT32, "int64": TensorProto.INT64,
        "uint8": TensorProto.UINT8, "uint16": TensorProto.UINT16, "uint32": TensorProto.UINT32,
        "uint64": TensorProto.UINT64, "int4": TensorProto.INT4, "uint4": TensorProto.UINT4,
        "float8e4m3fn": TensorProto.FLOAT8E4M3FN, "float8e5m2": TensorProto.FLOAT8E5M2,
        "float8e4m3fnuz": TensorProto.FLOAT8E4M3FNUZ, "float8e5m2fnuz": TensorProto.FLOAT8E5M2FNUZ,
        "float4e2m1": TensorProto.FLOAT4E2M1, "complex64": TensorProto.COMPLEX64,
        "complex128": TensorProto.COMPLEX128,
    }.items()
}  # fmt: skip

_LIKELY = ("tensor(float)", "tensor(int64)", "tensor(int32)", "tensor(double)", "tensor(bool)", "tensor(uint8)")

_FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.5, 3.0, 1e-7, 1e-40, 65504.0, 3e38, np.inf, -np.inf, np.nan)
_STRINGS = ("", "a", "b", "-1.5", "7", "nan", "grün", "a b")

Case = tuple[str, onnx.ModelProto, dict[str, Any]]


@lru_cache(maxsize=1)
def schemas() -> list[tuple[defs.OpSchema, int]]:
    """Every version of every operator of the standard, with an opset of that version; control flow has other tests."""
    found = []
    for schema in defs.get_all_schemas_with_history():
        opset = max(schema.since_version, OLDEST)
        if schema.domain != "" or schema.deprecated or opset > NEWEST:
            continue
        now = defs.get_schema(schema.name, opset, "")
        graphs = any(a.type == defs.OpSchema.AttrType.GRAPH for a in schema.attributes.values())
        if now.since_version == schema.since_version and not now.deprecated and not graphs:
            found.append((schema, opset))
    return sorted(found, key=lambda pair: (pair[0].name, pair[1]))


def cases(seed: int, chosen: str = "") -> Iterator[Case]:
    """One model of each schema: its name, the model and a feed for what is not constant.

    Args:
        seed: of the random numbers; the same cases come out for the same seed.
        chosen: only this operator.
    """
    for schema, opset in schemas():
        if chosen in ("", schema.name):
            name = f"{schema.name}-{opset}-{seed}"
            yield (name, *_Draw(schema, opset, random.Random(name)).model())


class _Draw:
    """One model, drawn."""

    def __init__(self, schema: defs.OpSchema, opset: int, rng: random.Random) -> None:
        self.schema, self.opset, self.rng = schema, opset, rng
        self.types: dict[str, str] = {}
        self.rank = rng.choice((0, 1, 1, 2, 2, 3, 4, 4))
        self.dims = [rng.choice((0, 1, 1, 2, 2, 3, 4) if rng.random() < 0.3 else (1, 2, 3, 4)) for _ in range(5)]
        self.wild = rng.random() < 0.5

    def model(self) -> tuple[onnx.ModelProto, dict[str, Any]]:
        """The model and its feed."""
        tensors = [None if self._left_out(formal) else self._tensor(formal) for formal in self._formals()]
        while tensors and tensors[-1] is None:
            tensors.pop()
        names = ["" if tensor is None else tensor.name for tensor in tensors]
        attributes = {n: v for n, a in self.schema.attributes.items() if (v := self._attribute(a)) is not None}
        least = max(self.schema.min_output, 1)
        count = self.rng.randint(least, min(self.schema.max_output, 4)) if self.rng.random() < 0.5 else least
        node = helper.make_node(self.schema.name, names, [f"y{i}" for i in range(count)])
        for key, value in attributes.items():
            kind = getattr(onnx.AttributeProto, self.schema.attributes[key].type.name)
            node.attribute.append(helper.make_attribute(key, value, attr_type=kind))
        known = {tensor.name: tensor for tensor in tensors if tensor is not None}
        fed = [n for n in known if self.rng.random() < 0.4] if self.rng.random() < 0.3 else []
        inputs = [helper.make_tensor_value_info(n, known[n].data_type, list(known[n].dims)) for n in fed]
        outputs = [helper.make_value_info(n, onnx.TypeProto()) for n in node.output]
        constants = [tensor for n, tensor in known.items() if n not in fed]
        graph = helper.make_graph([node], "g", inputs, outputs, constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        return model, {n: numpy_helper.to_array(known[n]) for n in fed}

    def _formals(self) -> list[defs.OpSchema.FormalParameter]:
        formals = list(self.schema.inputs)
        if formals and formals[-1].option == defs.OpSchema.FormalParameterOption.Variadic:
            formals += formals[-1:] * (self.rng.randint(1, 3) - 1)
        return formals

    def _left_out(self, formal: defs.OpSchema.FormalParameter) -> bool:
        return formal.option == defs.OpSchema.FormalParameterOption.Optional and self.rng.random() < 0.45

    def _element(self, formal: defs.OpSchema.FormalParameter) -> int:
        known = self.types.get(formal.type_str)
        if known is None:
            allowed = [t for t in sorted(formal.types) if t in _ELEMENTS] or ["tensor(float)"]
            likely = [t for t in _LIKELY if t in allowed]
            known = self.rng.choice(likely if likely and self.rng.random() < 0.5 else allowed)
            self.types[formal.type_str] = known
        return _ELEMENTS[known]

    def _tensor(self, formal: defs.OpSchema.FormalParameter) -> TensorProto:
        dtype = self._element(formal)
        name = f"{formal.name}{self.rng.randrange(10**9)}"
        shape = self._shape(formal.name)
        hinted = small_ints(self.schema.name, formal.name, self.rank, self.rng)
        if hinted is not None and dtype not in (TensorProto.STRING, TensorProto.BOOL):
            values: Any = np.array(hinted).reshape(-1 if np.ndim(hinted) else ())
        else:
            values = np.array([self._value(dtype) for _ in range(int(np.prod(shape)))], object).reshape(shape)
        return _stored(name, values, dtype)

    def _shape(self, name: str) -> list[int]:
        hint = SHAPES.get((self.schema.name, name), SHAPES.get(("", name)))
        if hint is not None and self.rng.random() < 0.9:
            return [self.dims[d] if d >= 0 else -d for d in hint]
        rank = SIZES.get(self.schema.name, self.rank) if self.rng.random() < 0.9 else self.rank
        shape = self.dims[: min(rank, 5)]
        if self.rng.random() < 0.3:  # broadcasting: leading dimensions missing, others 1
            shape = [1 if self.rng.random() < 0.4 else d for d in shape[self.rng.randint(0, len(shape)) :]]
        return shape

    def _value(self, dtype: int) -> Any:
        if dtype == TensorProto.STRING:
            return self.rng.choice(_STRINGS)
        if dtype == TensorProto.BOOL:
            return self.rng.random() < 0.5
        kind = helper.tensor_dtype_to_np_dtype(dtype)
        integer = kind.kind in "iu" or dtype in (TensorProto.INT4, TensorProto.UINT4)
        if not integer:
            return self.rng.choice(_FLOATS) if self.wild else self.rng.randint(-8, 8) / 4
        info = ml_dtypes.iinfo(kind) if kind.kind == "V" or kind.itemsize == 0 else None
        low, high = _bounds(kind) if info is None else (int(info.min), int(info.max))
        odd = (low, high, 0, 1, -1, 2, 3, -3, 7, high // 2)
        return min(max(self.rng.choice(odd) if self.wild else self.rng.randint(-3, 3), low), high)

    def _attribute(self, attribute: defs.OpSchema.Attribute) -> Any:
        if not attribute.required and self.rng.random() < 0.5:
            return None
        choices = CHOICES.get((self.schema.name, attribute.name), CHOICES.get(("", attribute.name)))
        if choices is not None:
            return self.rng.choice(choices)
        kind = attribute.type.name
        if kind == "INT":
            return self.rng.choice((-1, 0, 0, 1, 1, 2))
        if kind == "FLOAT":
            return self.rng.choice((0.0, 0.5, 1.0, 2.0, -1.5))
        if kind == "INTS":
            return self._ints(attribute.name)
        if kind == "TENSOR":
            dtype = self.rng.choice(sorted(_ELEMENTS.values()))
            return _stored("value", np.array([self._value(dtype)], object), dtype)
        return None

    def _ints(self, name: str) -> list[int]:
        rank = SIZES.get(self.schema.name, self.rank)
        if name == "perm":
            return self.rng.sample(range(rank), rank)
        if name in AXES:
            axes = self.rng.sample(range(rank), self.rng.randint(0, rank)) or [0]
            return [a - rank if self.rng.random() < 0.3 else a for a in axes]
        count = {"pads": 2 * (rank - 2) if self.schema.name != "Pad" else 2 * rank}.get(name, max(rank - 2, 1))
        low = 0 if name in ("pads", "output_padding") else 1
        return [self.rng.randint(low, 2) for _ in range(max(count, 0))]


def _bounds(kind: np.dtype) -> tuple[int, int]:
    info = np.iinfo(kind) if kind.isbuiltin == 1 else ml_dtypes.iinfo(kind)
    return int(info.min), int(info.max)


def _stored(name: str, values: np.ndarray, dtype: int) -> TensorProto:
    if dtype == TensorProto.STRING:
        flat = [str(value).encode() for value in values.reshape(-1)]
        return helper.make_tensor(name, dtype, list(values.shape), flat)
    with np.errstate(all="ignore"):
        array = values.astype(np.float64) if any(isinstance(v, float) for v in values.reshape(-1)) else values
        return numpy_helper.from_array(array.astype(helper.tensor_dtype_to_np_dtype(dtype)), name)


def backend_cases(seed: int, chosen: str = "") -> Iterator[Case]:
    """The operator cases of onnx with inputs that are constant, all or some of them, and odd numbers in places.

    Args:
        seed: of the random numbers.
        chosen: only cases whose name holds this.
    """
    inputs = backend_inputs()
    for name, model in backend_models().items():
        if chosen in name and name in inputs and not any(a.g.node for n in model.graph.node for a in n.attribute):
            rng = random.Random(f"{name}{seed}")
            feed = inputs[name][rng.randrange(len(inputs[name]))]
            if (
                all(isinstance(array, np.ndarray) for array in feed.values())
                and model.opset_import[0].version <= NEWEST
            ):
                yield (f"{name}-{seed}", *_with_constants(model, feed, rng))


def _with_constants(
    model: onnx.ModelProto, feed: dict[str, Any], rng: random.Random
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    result, left = onnx.ModelProto(), dict(feed)
    result.CopyFrom(model)
    every, odd = rng.random() < 0.6, rng.random() < 0.5
    for value in list(result.graph.input):
        array = left.get(value.name)
        if array is None:
            continue
        if odd and array.dtype in (np.float32, np.float64, np.float16):
            with np.errstate(all="ignore"):
                strange = np.array([rng.choice(_FLOATS) for _ in range(array.size)]).astype(array.dtype)
            places = np.array([rng.random() < 0.3 for _ in range(array.size)], bool).reshape(array.shape)
            array = left[value.name] = np.where(places, strange.reshape(array.shape), array)
        if every or rng.random() < 0.5:
            tensor = numpy_helper.from_array(array, value.name)
            tensor.data_type = value.type.tensor_type.elem_type
            result.graph.initializer.append(tensor)
            result.graph.input.remove(value)
            del left[value.name]
    return result, left
