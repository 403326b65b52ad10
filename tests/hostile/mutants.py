"""Small models with one or more things wrong: operands, attributes, sizes, bytes; equal numbers give equal models."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from tests.backend_models import backend_inputs, backend_models
from tests.hostile import ops

_NUMBERS = (0, 1, -1, 2, -2, 7, 64, 1 << 31, -(1 << 31), (1 << 31) - 1, (1 << 63) - 1, -(1 << 63), 1 << 40)
_FLOATS = (0.0, -1.0, float("nan"), float("inf"), 1e38, -1e38, 1e-40)
_DIMS = (0, 1, 2, 3, -1, -7, 1 << 31, (1 << 63) - 1, -(1 << 63))
_ELEMENTS = (0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 14, 16, 21, 22, 99)

Change = Callable[[random.Random, onnx.ModelProto], None]


@lru_cache(maxsize=1)
def _sources() -> list[tuple[str, onnx.ModelProto, dict[str, Any]]]:
    """Models of one operator that are right: the cases that onnx ships, and those drawn from its schemas."""
    inputs = backend_inputs()
    known = [(name, model, inputs[name][0]) for name, model in backend_models().items() if name in inputs]
    drawn = [case for seed in range(2) for case in ops.cases(seed)]
    return [(name, model, feed) for name, model, feed in (*known, *drawn) if model.ByteSize() < 20_000]


def mutant(number: int) -> tuple[str, onnx.ModelProto | None]:
    """The model of a number and what it was made of; None where its bytes are no model any more."""
    rng = random.Random(f"mutant {number}")
    name, source, feed = rng.choice(_sources())
    model = onnx.ModelProto()
    model.CopyFrom(source)
    _hold(rng, model, feed)
    change(rng, model)
    if rng.random() < 0.1:
        data = bytearray(model.SerializeToString())
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            return name, onnx.ModelProto.FromString(bytes(data))
        except DecodeError:
            return name, None
    return name, model


def change(rng: random.Random, model: onnx.ModelProto) -> None:
    """Make one or more things of a model wrong."""
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        rng.choice(_CHANGES)(rng, model)


def _hold(rng: random.Random, model: onnx.ModelProto, feed: dict[str, Any]) -> None:
    """Make some inputs constant: inference looks into those."""
    for info in list(model.graph.input):
        array = feed.get(info.name)
        if isinstance(array, np.ndarray) and rng.random() < 0.6:
            tensor = numpy_helper.from_array(array, info.name)
            model.graph.initializer.append(tensor)
            model.graph.input.remove(info)


def _node(rng: random.Random, model: onnx.ModelProto) -> onnx.NodeProto | None:
    return rng.choice(model.graph.node) if model.graph.node else None


def _drop_operand(rng: random.Random, model: onnx.ModelProto) -> None:
    node = _node(rng, model)
    if node is None or not node.input:
        return
    at = rng.randrange(len(node.input))
    if rng.random() < 0.5:
        node.input[at] = ""
    else:
        del node.input[at]


def _repeat_operand(rng: random.Random, model: onnx.ModelProto) -> None:
    node = _node(rng, model)
    if node is not None and node.input:
        node.input.append(rng.choice(node.input))


def _swap_operands(rng: random.Random, model: onnx.ModelProto) -> None:
    node = _node(rng, model)
    if node is not None and node.input:
        names = list(node.input)
        rng.shuffle(names)
        node.input[:] = names


def _drop_result(rng: random.Random, model: onnx.ModelProto) -> None:
    node = _node(rng, model)
    if node is not None and len(node.output) > 1:
        node.output[rng.randrange(len(node.output))] = ""


def _attribute(rng: random.Random, model: onnx.ModelProto) -> None:
    node = _node(rng, model)
    if node is None or not node.attribute:
        return
    attribute = rng.choice(node.attribute)
    kind = rng.random()
    if kind < 0.2:
        node.attribute.remove(attribute)
    elif kind < 0.8 and attribute.type in (
        AttributeProto.INT,
        AttributeProto.INTS,
        AttributeProto.FLOAT,
        AttributeProto.FLOATS,
    ):
        _change_value(rng, attribute)
    else:
        name, other = attribute.name, _any_value(rng)
        attribute.CopyFrom(
            helper.make_attribute(name, other) if other != [] else AttributeProto(name=name, type=AttributeProto.INTS)
        )


def _change_value(rng: random.Random, attribute: onnx.AttributeProto) -> None:
    if attribute.type == AttributeProto.INT:
        attribute.i = rng.choice(_NUMBERS)
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = rng.choice(_FLOATS)
    else:
        values: Any = attribute.ints if attribute.type == AttributeProto.INTS else attribute.floats
        choices: Any = _NUMBERS if attribute.type == AttributeProto.INTS else _FLOATS
        kind = rng.random()
        if kind < 0.2:
            del values[:]
        elif kind < 0.5 and len(values):
            values[rng.randrange(len(values))] = rng.choice(choices)
        elif kind < 0.8:
            values.append(rng.choice(choices))
        elif len(values):
            del values[rng.randrange(len(values))]


def _any_value(rng: random.Random) -> Any:
    return rng.choice((rng.choice(_NUMBERS), [rng.choice(_NUMBERS)], [], rng.choice(_FLOATS), "text", [0.5]))


def _new_attribute(rng: random.Random, model: onnx.ModelProto) -> None:
    node = _node(rng, model)
    schema = None
    if node is not None:
        try:
            schema = onnx.defs.get_schema(node.op_type, model.opset_import[0].version, node.domain)
        except (onnx.defs.SchemaError, RuntimeError, IndexError, TypeError):
            return
    if node is None or schema is None or not schema.attributes:
        return
    name = rng.choice(sorted(schema.attributes))
    kind = schema.attributes[name].type.name
    if any(a.name == name for a in node.attribute):
        return
    if kind == "INT":
        node.attribute.append(helper.make_attribute(name, rng.choice(_NUMBERS)))
    elif kind == "INTS":
        values = [rng.choice(_NUMBERS) for _ in range(rng.randint(0, 4))]
        node.attribute.append(helper.make_attribute(name, values, attr_type=AttributeProto.INTS))
    elif kind == "FLOAT":
        node.attribute.append(helper.make_attribute(name, rng.choice(_FLOATS)))


def _shape(rng: random.Random, model: onnx.ModelProto) -> None:
    if not model.graph.input:
        return
    tensor = rng.choice(model.graph.input).type.tensor_type
    kind = rng.random()
    if kind < 0.15:
        tensor.ClearField("shape")
    elif kind < 0.3:
        tensor.elem_type = rng.choice(_ELEMENTS)
    elif kind < 0.5:
        tensor.shape.dim.add().dim_value = rng.choice(_DIMS)
    elif kind < 0.65 and tensor.shape.dim:
        del tensor.shape.dim[rng.randrange(len(tensor.shape.dim))]
    elif kind < 0.75:
        tensor.ClearField("shape")
        tensor.shape.SetInParent()
    elif tensor.shape.dim:
        rng.choice(tensor.shape.dim).dim_value = rng.choice(_DIMS)


def _constant(rng: random.Random, model: onnx.ModelProto) -> None:
    """Another rank, length, type or content of a constant; or dims that its bytes do not fill."""
    if not model.graph.initializer:
        return
    tensor = rng.choice(model.graph.initializer)
    kind = rng.random()
    if kind < 0.15:
        tensor.dims[:] = [rng.choice(_DIMS) for _ in range(rng.randint(0, 3))]
        return
    if kind < 0.25:
        tensor.data_type = rng.choice(_ELEMENTS)
        return
    dims = rng.choice(([], [0], [1], [2], [1, 1], [5], [0, 2], [1, 2], list(tensor.dims), list(tensor.dims)))
    dtype = (
        tensor.data_type
        if rng.random() < 0.7
        else rng.choice((TensorProto.INT64, TensorProto.INT32, TensorProto.FLOAT))
    )
    if dtype not in (TensorProto.INT64, TensorProto.INT32, TensorProto.FLOAT, TensorProto.BOOL, TensorProto.DOUBLE):
        dtype = TensorProto.INT64
    choices = _FLOATS if dtype in (TensorProto.FLOAT, TensorProto.DOUBLE) else _NUMBERS
    count = int(np.prod(dims)) if all(0 <= d < 100 for d in dims) else 0
    with np.errstate(all="ignore"):
        values = np.array([rng.choice(choices) for _ in range(min(count, 4096))])
    fits = all(0 <= d < 1 << 20 for d in dims)
    if fits and len(values) == int(np.prod(dims)):
        kind_of = helper.tensor_dtype_to_np_dtype(dtype)
        with np.errstate(all="ignore"):
            tensor.CopyFrom(numpy_helper.from_array(values.astype(kind_of).reshape(dims), tensor.name))


def _opset(rng: random.Random, model: onnx.ModelProto) -> None:
    if model.opset_import:
        rng.choice(model.opset_import).version = rng.choice(
            (1, 2, 5, 6, 7, 9, 10, 11, 12, 13, 16, 18, 21, 24, 0, -1, 1 << 40)
        )


def _operator(rng: random.Random, model: onnx.ModelProto) -> None:
    """Another operator with these operands."""
    node = _node(rng, model)
    if node is not None:
        node.op_type = rng.choice(sorted({schema.name for schema, _ in ops.schemas()}))


_CHANGES: tuple[Change, ...] = (
    _drop_operand, _drop_operand, _repeat_operand, _swap_operands, _drop_result, _attribute, _attribute, _attribute,
    _new_attribute, _new_attribute, _shape, _shape, _constant, _constant, _constant, _constant, _opset, _operator,
)  # fmt: skip
