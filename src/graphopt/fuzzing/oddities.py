"""Changes of golden cases that other optimizers handle less: second outputs, equal sizes, strings, large numbers."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, defs, helper, numpy_helper

from graphopt.fuzzing.building import stored
from graphopt.fuzzing.stock import opset_of, schema_of
from graphopt.fuzzing.variants import FLOATS, KINDS, Change, _array, _constants, _lists, _put, graphs_of, resize_all

_FACTORS = (1e20, 1e25, 1e30, 1e-20, 1e-25, 1e4, 0.0)
_WORDS = ("a", "b", "", "grün", "1", "nan")


def _more_outputs(model: ModelProto, rng: random.Random) -> bool:
    """Add optional outputs of an operator, such as a mask, as graph outputs or with a reader."""
    opset = opset_of(model)
    found = [node for node in model.graph.node if not node.domain and _left(node, opset)]
    if not found:
        return False
    node = rng.choice(found)
    for number in range(_left(node, opset)):
        name = f"{node.output[0]} and {number}"
        node.output.append(name)
        reader = rng.choice(("", "Identity", "Cast"))
        if reader:
            more: dict[str, Any] = {"to": TensorProto.FLOAT} if reader == "Cast" else {}
            model.graph.node.append(helper.make_node(reader, [name], [f"{name} read"], **more))
            name = f"{name} read"
        model.graph.output.append(onnx.ValueInfoProto(name=name))
    return True


def _left(node: NodeProto, opset: int) -> int:
    """How many more outputs an operator may have."""
    schema = schema_of(node, opset)
    formals = [] if schema is None else schema.outputs
    if any(formal.option == defs.OpSchema.FormalParameterOption.Variadic for formal in formals):
        return 0
    return max(len(formals) - len(node.output), 0)


def _equal_sizes(model: ModelProto, rng: random.Random) -> bool:
    """Make two sizes, or all of them, equal: an axis can no longer be identified by its size."""
    dims = [dim.dim_value for info in model.graph.input for dim in info.type.tensor_type.shape.dim]
    sizes = sorted({size for size in (*dims, *(d for t in _constants(model) for d in t.dims)) if size > 1})
    if len(sizes) < 2:
        return False
    one, *others = rng.sample(sizes, len(sizes))
    for other in others if rng.random() < 0.4 else others[:1]:
        resize_all(model, other, one, with_lists=rng.random() < 0.7)
    return True


def _equal_lists(model: ModelProto, rng: random.Random) -> bool:
    """Change a list wherever it occurs: empty, reordered, shorter, or counted from the other end."""
    lists = [tensor for tensor in _lists(model) if tensor.dims and tensor.dims[0]]
    listed = [a for node in model.graph.node for a in node.attribute if a.type == AttributeProto.INTS]
    if not lists and not listed:
        return False
    old = rng.choice([*(_array(tensor).tolist() for tensor in lists), *(list(a.ints) for a in listed)])
    new = rng.choice(([], old[:-1], old[::-1], [-1 - number for number in old]))
    for tensor in lists:
        array = _array(tensor)
        if array.tolist() == old:
            _put(tensor, np.array(new, array.dtype))
    for attribute in listed:
        if list(attribute.ints) == old:
            attribute.ints[:] = new
    return True


def _strings(model: ModelProto, rng: random.Random) -> bool:
    """Strings in place of floats, which operators that only move data take as well."""
    infos = [info.type.tensor_type for graph in graphs_of(model.graph) for info in (*graph.input, *graph.output)]
    floats = [info for info in infos if info.elem_type in FLOATS]
    for info in floats:
        info.elem_type = TensorProto.STRING
    for tensor in _constants(model):
        if tensor.data_type in FLOATS:
            words = np.array([rng.choice(_WORDS) for _ in range(int(np.prod(tensor.dims)))], object)
            tensor.CopyFrom(stored(words.reshape(tuple(tensor.dims)), tensor.name))
    return bool(floats)


def _magnitude(model: ModelProto, rng: random.Random) -> bool:
    """Constants that are very large, very small or zero: all of them, or one."""
    floats = [tensor for tensor in _constants(model) if tensor.data_type in (TensorProto.FLOAT, TensorProto.DOUBLE)]
    factor = rng.choice(_FACTORS)
    for tensor in floats if rng.random() < 0.5 else floats[:1]:
        array = numpy_helper.to_array(tensor)
        _put(tensor, (array * factor).astype(array.dtype))
    return bool(floats)


ODDITIES: dict[str, Change] = {
    **KINDS, "more outputs": _more_outputs, "equal sizes": _equal_sizes, "equal lists": _equal_lists,
    "strings": _strings, "magnitude": _magnitude,
}  # fmt: skip
"""Changes for sessions that test only other optimizers."""
