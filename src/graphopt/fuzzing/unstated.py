"""Changes of golden cases to unusual combinations: attributes that are rarely stated, scales that cancel."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, defs, helper, numpy_helper

from graphopt.fuzzing.stock import opset_of, schema_of
from graphopt.fuzzing.uses import USES
from graphopt.fuzzing.variants import KINDS, Change, _constants, _nodes, _put

_TYPE_NAMES = frozenset({"to", "dtype", "output_dtype", "stash_type", "softmax_precision", "precision"})
"""Attributes that name an element type."""
_ELEMENT_TYPES = (
    TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16, TensorProto.INT64,
    TensorProto.INT8, TensorProto.UINT8, TensorProto.BOOL,
)  # fmt: skip
_INTEGERS = (0, 1, 2, -1, 3)
_FLOATS = (0.0, 1.0, -1.0, 0.5, 1e-5, 1e-30, 1e30)
_WORDS: dict[str, tuple[str, ...]] = {
    "auto_pad": ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
    "mode": ("constant", "edge", "reflect", "wrap", "nearest", "linear", "cubic", "bilinear", "DCR", "CRD"),
    "approximate": ("none", "tanh"),
    "direction": ("LEFT", "RIGHT", "forward", "reverse", "bidirectional"),
    "reduction": ("none", "add", "mul", "min", "max", "mean", "sum"),
    "coordinate_transformation_mode": (
        "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize",
    ),
    "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    "equation": ("ij,jk->ik",),
    "padding_mode": ("zeros", "border", "reflection"),
}  # fmt: skip
_LEAST_EXPONENT, _MOST_EXPONENT = 16, 100


def unstated(model: ModelProto, rng: random.Random) -> bool:
    """State an optional attribute that a node omits."""
    opset = opset_of(model)
    found = [(node, attribute) for node in _nodes(model) if not node.domain for attribute in _left(node, opset)]
    if not found:
        return False
    node, attribute = rng.choice(found)
    value = _drawn(attribute, rng)
    if value is None:
        return False
    node.attribute.append(helper.make_attribute(attribute.name, value))
    return True


def _left(node: NodeProto, opset: int) -> list[defs.OpSchema.Attribute]:
    """The attributes of an operator that a node does not state."""
    schema = schema_of(node, opset)
    stated = {attribute.name for attribute in node.attribute}
    known = {} if schema is None else schema.attributes
    return [attribute for name, attribute in sorted(known.items()) if name not in stated]


def _drawn(attribute: defs.OpSchema.Attribute, rng: random.Random) -> Any:
    """A value for an attribute; None if its type is not drawn, such as a graph."""
    kind, kinds = attribute.type, defs.OpSchema.AttrType
    if kind == kinds.INT:
        return rng.choice(_ELEMENT_TYPES if attribute.name in _TYPE_NAMES else _INTEGERS)
    if kind == kinds.INTS:
        return [rng.choice(_INTEGERS) for _ in range(rng.randint(1, 4))]
    if kind == kinds.FLOAT:
        return rng.choice(_FLOATS)
    if kind == kinds.FLOATS:
        return [rng.choice(_FLOATS) for _ in range(rng.randint(1, 3))]
    if kind == kinds.STRING:
        return rng.choice(_WORDS.get(attribute.name, ("", "unknown")))
    return None


@np.errstate(all="ignore")
def opposite_scales(model: ModelProto, rng: random.Random) -> bool:
    """Multiply one constant and divide another by the same factor."""
    kinds = (TensorProto.FLOAT, TensorProto.DOUBLE)
    floats = [tensor for tensor in _constants(model) if tensor.data_type in kinds]
    if len(floats) < 2:
        return False
    exponent = rng.randint(_LEAST_EXPONENT, _MOST_EXPONENT)
    for tensor, power in zip(rng.sample(floats, 2), (exponent, -exponent), strict=True):
        array = numpy_helper.to_array(tensor)
        _put(tensor, (array.astype(np.float64) * 2.0**power).astype(array.dtype))
    return True


USUAL_AND_UNSTATED: dict[str, Change] = {**KINDS, **USES, "unstated": unstated, "opposite scales": opposite_scales}
"""Changes for sessions that test our own rules."""
