"""Schemas of operators at an opset, as plain Python data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import onnx
from onnx import AttributeProto, TensorProto, defs

from graphopt.records import dataclass

_COMMUTATIVE = frozenset(
    {
        "Add",
        "Mul",
        "And",
        "Or",
        "Xor",
        "Equal",
        "BitwiseAnd",
        "BitwiseOr",
        "BitwiseXor",
        "Max",
        "Min",
        "Sum",
        "Mean",
    }
)
_NOT_DETERMINISTIC = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)


RUNTIMES_OWN = "SimplifiedLayerNormalization"
"""The operator that ONNX Runtime adds to the standard's domain; other tools do not know it."""

READING_TYPES = frozenset({"RegexFullMatch", "ai.onnx.ml::DictVectorizer", "ai.onnx.ml::LabelEncoder"})
"""Operators whose inference reads the type of their operand even if there is none, which ends the process."""

CONTRIB_DOMAINS = frozenset({"com.microsoft", "com.microsoft.nchwc"})
CONTRIB_KINDS: dict[str, int] = {
    **dict.fromkeys(
        (
            "K", "N", "axis", "bits", "block_size", "ceil_mode", "channels", "channels_last", "gather_axis", "group",
            "num_heads", "opset", "quantize_axis", "transA", "transB", "transBatchA", "transBatchB",
        ),
        AttributeProto.INT,
    ),
    **dict.fromkeys(("dilations", "kernel_shape", "pads", "strides"), AttributeProto.INTS),
    **dict.fromkeys(("alpha", "beta", "epsilon"), AttributeProto.FLOAT),
    **dict.fromkeys(("auto_pad", "mode"), AttributeProto.STRING),
}  # fmt: skip
"""The types of attributes of ONNX Runtime's own operators, of which onnx has no schemas, by their names."""

COUNTS = frozenset(
    {"blocksize", "dilations", "group", "kernel_shape", "kv_num_heads", "num_groups", "num_heads", "q_num_heads"}
    | {"hidden_size", "strides"}
)
"""Attributes of any operator that are counts or distances: a node with a number below 1 is malformed."""
UNSAID = frozenset({("com.microsoft::MRotaryEmbedding", "num_heads"), ("com.microsoft::RotaryEmbedding", "num_heads")})
"""Counts of operators for which 0 means that the shapes of operands determine them."""


FLAGS = frozenset(
    {"allowzero", "antialias", "ceil_mode", "center_point_box", "count_include_pad", "exclude_outside", "exclusive"}
    | {"fmod", "is_causal", "keepdims", "largest", "linear_before_reset", "noop_with_empty_axes", "reverse", "saturate"}
    | {"select_last_index", "sorted", "transA", "transB", "upper"}
)
"""Boolean attributes of any operator: the meaning of numbers other than 0 and 1 differs between runtimes and
operators, so that a node with another number is malformed."""


@dataclass(frozen=True, slots=True)
class OpInfo:
    """One version of an operator.

    Attributes:
        since_version: the opset that introduced this version.
        defaults: attribute name to default value, for attributes that have one.
        required: names of the attributes that must be given.
        attributes: attribute name to its `onnx.AttributeProto.AttributeType`.
        min_inputs: fewest inputs, without trailing optional ones.
        max_inputs: most inputs.
        variadic: whether the last input may repeat.
        outputs: number of declared outputs (a variadic last one counts once).
        deterministic: False for random operators.
        commutative: whether the inputs may be swapped without changing the result.
        has_function: whether the standard defines the operator by a function body.
    """

    since_version: int
    defaults: dict[str, Any]
    required: frozenset[str]
    attributes: dict[str, int]
    min_inputs: int
    max_inputs: int
    variadic: bool
    outputs: int
    deterministic: bool
    commutative: bool
    has_function: bool


_OPTIONAL_FIRST = {"Loop": 2, "Scan": 1}
"""Number of optional operands before required ones: Loop's trip count and condition, Scan's lengths in opset 8."""

_SCAN_OF_BATCHES = 8


def has_its_operands(op: str, schema: OpInfo, inputs: Sequence[object | None]) -> bool:
    """Whether a node has all required operands and not too many.

    Args:
        op: the operator.
        schema: its schema.
        inputs: the operands, None for one that is left out.
    """
    if not schema.min_inputs <= len(inputs) <= schema.max_inputs:
        return False
    if None not in inputs:
        return True
    first = _OPTIONAL_FIRST.get(op, 0)
    if op == "Scan" and schema.since_version > _SCAN_OF_BATCHES:
        first = 0
    return None not in inputs[first : schema.min_inputs]


@lru_cache(maxsize=4096)
def op_schema(op_type: str, domain: str, opset: int) -> OpInfo | None:
    """The version of an operator at an opset.

    Args:
        op_type: operator name.
        domain: operator domain, "" for the standard one.
        opset: version of the domain that the model imports.

    Returns:
        The schema, or None if the `onnx` package does not know the operator there.
    """
    if not 0 < opset < 1 << 31:
        return None
    try:
        schema = defs.get_schema(op_type, opset, domain)
    except (defs.SchemaError, RuntimeError):
        return None
    if schema.deprecated:
        return None
    variadic = bool(schema.inputs) and schema.inputs[-1].option == defs.OpSchema.FormalParameterOption.Variadic
    return OpInfo(
        since_version=schema.since_version,
        defaults={name: _default(a) for name, a in schema.attributes.items() if a.default_value.type},
        required=frozenset(name for name, a in schema.attributes.items() if a.required),
        attributes={name: _number(a.type) for name, a in schema.attributes.items()},
        min_inputs=schema.min_input,
        max_inputs=schema.max_input,
        variadic=variadic,
        outputs=len(schema.outputs),
        deterministic=op_type not in _NOT_DETERMINISTIC,
        commutative=domain == "" and op_type in _COMMUTATIVE,
        has_function=bool(
            getattr(schema, "has_function", False) or getattr(schema, "has_context_dependent_function", False)
        ),
    )


@lru_cache(maxsize=256)
def only_types(op_type: str, domain: str, opset: int) -> tuple[int | None, ...]:
    """The element type of each output if the standard allows only one, for all inputs; None for other outputs.

    Args:
        op_type: operator name.
        domain: operator domain, "" for the standard one.
        opset: version of the domain that the model imports; the operator is known there.
    """
    return tuple(map(_only_type, defs.get_schema(op_type, opset, domain).outputs))


def _only_type(output: Any) -> int | None:
    known = element_types(output.types)
    return next(iter(known)) if len(known) == len(output.types) == 1 else None


def element_types(names: Iterable[str]) -> frozenset[int]:
    """The element types of the tensor types among type strings of schemas, such as `tensor(float)`."""
    inner = (name.removeprefix("tensor(").removesuffix(")") for name in names if name.startswith("tensor("))
    return frozenset(int(TensorProto.DataType.Value(name.upper())) for name in inner)


def _number(kind: Any) -> int:
    return int(kind.value)


_FIELDS = {AttributeProto.INT: "i", AttributeProto.FLOAT: "f", AttributeProto.STRING: "s"}


def _default(attribute: defs.OpSchema.Attribute) -> Any:
    proto = attribute.default_value
    usual = _FIELDS.get(proto.type)
    value: Any = getattr(proto, usual) if usual is not None else onnx.helper.get_attribute_value(proto)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return tuple(v.decode() if isinstance(v, bytes) else v for v in value)
    return value


@lru_cache(maxsize=1)
def latest_opset() -> int:
    """The newest standard opset that the `onnx` package knows."""
    return int(defs.onnx_opset_version())


def is_commutative(op: str) -> bool:
    """Whether the inputs of an operator, given by key, may be swapped."""
    return op in _COMMUTATIVE


@lru_cache(maxsize=1024)
def op_versions(key: str) -> tuple[OpInfo, ...]:
    """Every version of an operator that the `onnx` package knows, newest first; none for custom operators.

    Args:
        key: the key by which rules are dispatched: `Conv`, `com.microsoft::FusedConv`.
    """
    domain, _, op_type = key.rpartition("::")
    found: list[OpInfo] = []
    opset = latest_opset()
    while opset > 0:
        info = op_schema(op_type, domain, opset)
        if info is not None:
            found.append(info)
        opset = (info.since_version if info is not None else opset) - 1
    return tuple(found)
