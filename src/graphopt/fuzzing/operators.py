"""Draws a node: operands and attributes by the operator's schema at the opset, values by the table of makers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from onnx import TensorProto, defs

from graphopt.errors import UsageError
from graphopt.fuzzing.building import FRAGILE, Builder, element_type, stored
from graphopt.fuzzing.makers import MAKERS, RANKS, Maker, Scene, like
from graphopt.fuzzing.rarities import FIRST, RARE
from graphopt.verify.values import Array, numpy_dtype

OLDEST = 7
"""The first opset whose operators broadcast as they do today."""

NEWEST = min(defs.onnx_opset_version(), 26)
"""The newest opset that the runtime may support."""

OPSETS = (7, 8, 9, 10, 11, 11, 12, 13, 13, 14, 15, 16, 17, 17, 18, 18, 19, 20, 21, 21, 22, 23, 24, 25)
"""Opsets to draw from; those that exporters use most occur twice."""

_Formal = defs.OpSchema.FormalParameter
_Option = defs.OpSchema.FormalParameterOption

ELEMENTS: dict[str, int] = {
    f"tensor({name})": number
    for name, number in {
        "float": TensorProto.FLOAT, "double": TensorProto.DOUBLE, "float16": TensorProto.FLOAT16,
        "bfloat16": TensorProto.BFLOAT16, "bool": TensorProto.BOOL, "string": TensorProto.STRING,
        "int8": TensorProto.INT8, "int16": TensorProto.INT16, "int32": TensorProto.INT32, "int64": TensorProto.INT64,
        "uint8": TensorProto.UINT8, "uint16": TensorProto.UINT16, "uint32": TensorProto.UINT32,
        "uint64": TensorProto.UINT64, "int4": TensorProto.INT4, "uint4": TensorProto.UINT4,
        "float8e4m3fn": TensorProto.FLOAT8E4M3FN, "float8e5m2": TensorProto.FLOAT8E5M2,
    }.items()
}  # fmt: skip
_NAMES = {number: name for name, number in ELEMENTS.items()}
_LIKELY = ("tensor(float)", "tensor(float)", "tensor(int64)", "tensor(int32)", "tensor(bool)", "tensor(float16)")

APART = frozenset(
    {"If", "Loop", "Scan", "SequenceMap", "Constant", "RandomNormal", "RandomUniform", "RandomNormalLike",
     "RandomUniformLike", "Multinomial", "Bernoulli", "ImageDecoder"}
)  # fmt: skip
"""Operators with subgraphs, which `control` writes, constants, and operators with random results."""

FREQUENT = (
    "Add", "Sub", "Mul", "Div", "Relu", "Sigmoid", "Tanh", "Clip", "Conv", "MatMul", "Gemm", "BatchNormalization",
    "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Concat", "Split", "Slice", "Gather", "Pad", "Cast", "Identity",
    "ReduceMean", "ReduceSum", "ReduceMax", "Softmax", "MaxPool", "AveragePool", "Expand", "Where", "Shape", "Max",
    "Flatten", "LayerNormalization", "Resize", "QuantizeLinear", "DequantizeLinear", "Neg", "Not", "Equal", "Pow",
    "Erf", "Dropout", "Tile", "ConstantOfShape", "LeakyRelu", "PRelu", "GlobalAveragePool", "Einsum", "ConvTranspose",
    "Min", "Sqrt",
)  # fmt: skip
"""The operators that real models consist of; drawn more often."""


@lru_cache(maxsize=64)
def operators(opset: int) -> tuple[str, ...]:
    """The standard operators at an opset that a single node can exercise."""
    found = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "" and schema.since_version <= opset and schema.name not in APART:
            found[schema.name] = schema
    return tuple(sorted(name for name in found if _current(name, opset) is not None and not _opaque(name, opset)))


def check_ops(ops: Iterable[str]) -> None:
    """Check that models can be drawn from these operators.

    Raises:
        UsageError: one is not a standard operator, or no single node can exercise it.
    """
    for op in ops:
        if not any(op in operators(opset) for opset in OPSETS):
            raise UsageError(f"ops: expected operators of the standard, found {op!r}")


@lru_cache(maxsize=4096)
def _current(op: str, opset: int) -> defs.OpSchema | None:
    try:
        schema = defs.get_schema(op, opset, "")
    except defs.SchemaError:
        return None
    return None if schema.deprecated else schema


def _opaque(op: str, opset: int) -> bool:
    """Whether its first operand or its result is a sequence or an optional, which are written in groups of nodes."""
    schema = _current(op, opset)
    assert schema is not None
    formals = [*schema.inputs, *schema.outputs[:1]]
    return any(not any(t in ELEMENTS for t in formal.types) for formal in formals)


def grow(b: Builder, op: str, pick: Callable[[Callable[[Array], bool]], str | None] | None = None) -> list[str] | None:
    """Add a node of an operator whose first operand is one of the values so far, or a new one.

    Args:
        b: the model.
        op: the operator.
        pick: chooses the first operand; the builder's own choice if None.

    Returns:
        The names of its outputs; None if the node does not run.
    """
    schema = _current(op, b.opset)
    if schema is None:
        return None
    node = _Node(b, schema)
    first = None
    if schema.inputs:
        known = op not in FIRST and b.draw.chance(0.85)
        first = (pick or b.pick)(node.takes) if known else None
        first = first if first is not None else node.fresh()
        if first is None:
            return None
    return node.add(first)


def _maker(op: str, name: str) -> Maker | None:
    return RARE.get((op, name)) or MAKERS.get((op, name)) or MAKERS.get(("", name))


class _Node:
    """One node that is being drawn."""

    def __init__(self, b: Builder, schema: defs.OpSchema) -> None:
        self.b, self.schema, self.draw = b, schema, b.draw
        self.types: dict[str, int] = {}
        self.allowed = schema.inputs[0].types if schema.inputs else set()
        self.ranks = RANKS.get(schema.name)

    def takes(self, array: Array) -> bool:
        """Whether a value may be the first operand."""
        if self.ranks is not None and array.ndim not in self.ranks:
            return False
        if self.schema.name in FRAGILE and not array.size:
            return False
        return _NAMES.get(element_type(array), "") in self.allowed

    def fresh(self) -> str | None:
        """A new first operand: an input, or sometimes a constant."""
        rank = self.draw.one(self.ranks) if self.ranks is not None else None
        array = FIRST[self.schema.name](self.draw) if self.schema.name in FIRST else None
        if array is None:
            known = [t for t in sorted(self.allowed) if t in ELEMENTS]
            likely = [t for t in _LIKELY if t in known]
            if not known:
                return None
            chosen = ELEMENTS[self.draw.one(likely if likely and self.draw.chance(0.7) else known)]
            dtype = numpy_dtype(chosen)
            assert dtype is not None
            shape = self.draw.shape(rank)
            array = self.draw.array(dtype, [max(d, 1) for d in shape] if self.schema.name in FRAGILE else shape)
        narrow = _NAMES[element_type(array)] in ("tensor(int4)", "tensor(uint4)")
        return self.b.constant(array) if narrow or self.draw.chance(0.12) else self.b.input(array)

    def add(self, first: str | None) -> list[str] | None:
        """Choose the attributes, then the other operands, and add the node."""
        held = self.b.held[first] if first is not None else np.zeros((), np.float32)
        scene = Scene(self.draw, self.schema.name, self.b.opset, held)
        if self.schema.inputs:
            self.types[self.schema.inputs[0].type_str] = element_type(held)
        attrs = self._attributes(scene)
        operands = [first] if first is not None else []
        for formal in self._formals():
            made = self._operand(scene, formal)
            if made is None:
                if formal.option == _Option.Optional:
                    operands.append("")
                    continue
                return None
            operands.append(made)
        return self.b.emit(self.schema.name, operands, attrs, outputs=self._outputs(scene))

    def _formals(self) -> list[_Formal]:
        formals = list(self.schema.inputs)
        if not formals:
            return []
        if formals[-1].option == _Option.Variadic:
            formals += formals[-1:] * self.draw.one((0, 1, 1, 2) if len(formals) == 1 else (0, 1))
        return formals[1:]

    def _attributes(self, scene: Scene) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, attribute in self.schema.attributes.items():
            maker = _maker(scene.op, name)
            if maker is None and not attribute.required:
                continue
            try:
                value = maker(scene) if maker is not None else _plain(self.draw, attribute)
            except (IndexError, KeyError, ValueError):
                value = None  # there is no such axis: the runtime or the next choice decides
            if value is not None:
                scene.chosen[name] = value
                found[name] = _attribute_value(attribute, value)
        return found

    def _operand(self, scene: Scene, formal: _Formal) -> str | None:
        maker = _maker(scene.op, formal.name)
        if maker is None and formal.option == _Option.Optional:
            return None
        if maker is None and (found := self._joined(scene, formal)) is not None:
            return found
        try:
            made = self._data(scene, formal) if maker is None else maker(scene)
        except (IndexError, KeyError, ValueError):
            return None
        if made is None:
            return None
        array = self._suited(np.asarray(made), formal)
        if array is None:
            return None
        scene.chosen[formal.name] = array
        if self.draw.chance(0.12):
            return self.b.input(array) if _NAMES[element_type(array)] != "tensor(int4)" else self.b.constant(array)
        return self.b.constant(array)

    def _data(self, scene: Scene, formal: _Formal) -> Array:
        """A data operand: of the first one's type, or of another one if the schema has another type for it."""
        made = like(scene)
        if formal.type_str in self.types:
            return made
        known = [t for t in _LIKELY if t in formal.types]
        dtype = numpy_dtype(ELEMENTS[self.draw.one(known)]) if known else None
        return made if dtype is None else self.draw.array(dtype, made.shape)

    def _joined(self, scene: Scene, formal: _Formal) -> str | None:
        """Another value of the graph that is compatible with the first operand."""
        if formal.type_str != self.schema.inputs[0].type_str or not self.draw.chance(0.6):
            return None

        def fits(array: Array) -> bool:
            if array.dtype != scene.x.dtype:
                return False
            try:
                return np.broadcast_shapes(array.shape, scene.shape) == scene.shape
            except ValueError:
                return False

        return self.b.pick(fits)

    def _suited(self, array: Array, formal: _Formal) -> Array | None:
        """The array in a type that the operand may have."""
        bound = self.types.get(formal.type_str)
        if bound is None:
            name = _NAMES.get(element_type(array), "")
            known = [t for t in sorted(formal.types) if t in ELEMENTS]
            if not known:
                return None
            default = next((t for t in ("tensor(int64)", "tensor(float)") if t in known), known[0])
            bound = ELEMENTS[name if name in known else default]
            if formal.type_str in {each.type_str for each in self.schema.inputs}:
                self.types[formal.type_str] = bound
        dtype = numpy_dtype(bound)
        if dtype is None or (array.dtype.kind in "OSU") != (bound == TensorProto.STRING):
            return None
        with np.errstate(all="ignore"):
            return array if bound == TensorProto.STRING else array.astype(dtype)

    def _outputs(self, scene: Scene) -> int:
        most = min(self.schema.max_output, 4)
        if scene.op == "Split":
            return len(scene.chosen["split"]) if "split" in scene.chosen else int(scene.chosen.get("num_outputs", 2))
        least = max(self.schema.min_output, 1)
        return self.draw.between(least, most) if most > least and self.draw.chance(0.35) else least


def _plain(draw: Any, attribute: defs.OpSchema.Attribute) -> Any:
    """A value for a required attribute that is not in the table."""
    kind = str(attribute.type).rpartition(".")[2]
    return {"INT": draw.one((0, 1, 2)), "FLOAT": draw.one((0.5, 1.0)), "INTS": [1, 1], "STRING": ""}.get(kind)


def _attribute_value(attribute: defs.OpSchema.Attribute, value: Any) -> Any:
    """A drawn value in the attribute's own type."""
    kind = str(attribute.type).rpartition(".")[2]
    if kind == "TENSOR":
        return stored(np.asarray(value), "")
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if kind == "INTS":
        return [int(v) for v in np.asarray(value).reshape(-1)]
    if kind == "FLOATS":
        return [float(v) for v in np.asarray(value).reshape(-1)]
    if kind == "FLOAT":
        return float(np.asarray(value).reshape(-1)[0])
    if kind == "INT":
        return int(np.asarray(value).reshape(-1)[0])
    return value
