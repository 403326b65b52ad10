"""Golden cases with one change: a size, a type, an axis, a bound, an opset; equal seeds give equal models."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from graphopt.fuzzing.building import strictly_inferred

OPSETS = (7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25)
FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)
_FEW = 32
"""Longer tensors are weights, whose elements are not drawn one by one."""
_LARGEST_SIZE = 64
_FLAGS = ("keepdims", "transA", "transB", "ceil_mode", "allowzero", "select_last_index")
_NUMERIC = (AttributeProto.INT, AttributeProto.INTS, AttributeProto.FLOAT)
_BOUNDS = frozenset({"Clip", "Relu", "Max", "Min", "Identity"})


Change = Callable[[ModelProto, random.Random], bool]
"""Applies one change to a model; returns whether it was applicable."""


@np.errstate(all="ignore")
def variant(model: ModelProto, seed: int, kinds: Mapping[str, Change] | None = None) -> tuple[str, ModelProto] | None:
    """A model with one change.

    Args:
        model: a model, which stays unchanged.
        seed: the seed of all choices.
        kinds: the changes to draw from; `KINDS` if None.

    Returns:
        The kind of the change and the model, which may be invalid; None if the change was not applicable.
    """
    rng = random.Random(seed)
    kinds = KINDS if kinds is None else kinds
    kind = rng.choice(list(kinds))
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    if not kinds[kind](changed, rng):
        return None
    if not _declare_outputs(changed):
        return None
    return kind, changed


def _declare_outputs(model: ModelProto) -> bool:
    """Declare outputs by inference; those that it cannot infer keep their element type, with no shape."""
    graph = model.graph
    declared = {info.name: onnx.ValueInfoProto.FromString(info.SerializeToString()) for info in graph.output}
    del graph.value_info[:]
    for info in graph.output:
        info.ClearField("type")
    for inner in list(graphs_of(graph))[1:]:
        for info in (*inner.input, *inner.output, *inner.value_info):
            info.type.tensor_type.ClearField("shape")
    inferred = strictly_inferred(model, check_type=False)
    if inferred is None:
        return False
    for info, known in zip(graph.output, inferred.graph.output, strict=True):
        if known.type.WhichOneof("value") is not None:
            info.CopyFrom(known)
        else:
            info.CopyFrom(declared[info.name])
            info.type.tensor_type.ClearField("shape")
    return True


def graphs_of(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and its subgraphs."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from graphs_of(attribute.g)


def _nodes(model: ModelProto) -> list[NodeProto]:
    inner = [node for graph in graphs_of(model.graph) for node in graph.node]
    return [*inner, *(node for function in model.functions for node in function.node)]


def _constants(model: ModelProto) -> list[TensorProto]:
    """Initializers, and tensors of `Constant` nodes."""
    found = [tensor for graph in graphs_of(model.graph) for tensor in graph.initializer]
    return found + [
        a.t for node in _nodes(model) if node.op_type == "Constant" for a in node.attribute if a.HasField("t")
    ]


def _array(tensor: TensorProto) -> np.ndarray:
    return numpy_helper.to_array(tensor).copy()


def _put(tensor: TensorProto, array: np.ndarray) -> None:
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), tensor.name))


def _lists(model: ModelProto) -> list[TensorProto]:
    """Short constants of integers: axes, positions, sizes."""
    kinds = (TensorProto.INT32, TensorProto.INT64)
    return [t for t in _constants(model) if t.data_type in kinds and np.prod(t.dims) <= _FEW and len(t.dims) <= 1]


def _dims(model: ModelProto) -> list[onnx.TensorShapeProto.Dimension]:
    return [dim for info in model.graph.input for dim in info.type.tensor_type.shape.dim]


def _other_size(rng: random.Random, size: int) -> int:
    return rng.choice([0, 1, size + 1, max(size - 1, 0), size * 2, size * 2 + 1, size * 4])


def _one_size(model: ModelProto, rng: random.Random) -> bool:
    """Change the size of one axis of one input or constant."""
    dims = [dim for dim in _dims(model) if dim.HasField("dim_value")]
    tensors = [t for t in _constants(model) if t.dims]
    if not dims and not tensors:
        return False
    if dims and (not tensors or rng.random() < 0.7):
        dim = rng.choice(dims)
        dim.dim_value = _other_size(rng, dim.dim_value)
        return dim.dim_value <= _LARGEST_SIZE
    tensor = rng.choice(tensors)
    shape = list(tensor.dims)
    axis = rng.randrange(len(shape))
    shape[axis] = _other_size(rng, shape[axis])
    if shape[axis] > _LARGEST_SIZE:
        return False
    _put(tensor, np.resize(_array(tensor), shape))
    return True


def _all_sizes(model: ModelProto, rng: random.Random) -> bool:
    """Change a size wherever it occurs: in inputs, in constants, and perhaps in lists."""
    sizes = sorted({dim.dim_value for dim in _dims(model) if dim.HasField("dim_value")})
    if not sizes:
        return False
    old = rng.choice(sizes)
    new, with_lists = _other_size(rng, old), rng.random() < 0.7
    resize_all(model, old, new, with_lists=with_lists)
    return new <= _LARGEST_SIZE


def resize_all(model: ModelProto, old: int, new: int, *, with_lists: bool) -> None:
    """Replace a size wherever it occurs: in inputs, in constants, and perhaps in lists."""
    for dim in _dims(model):
        if dim.HasField("dim_value") and dim.dim_value == old:
            dim.dim_value = new
    for tensor in _constants(model):
        shape, array = [new if size == old else size for size in tensor.dims], _array(tensor)
        if len(tensor.dims) == 1 and tensor.data_type in (TensorProto.INT32, TensorProto.INT64):
            if with_lists:
                _put(tensor, np.where(array == old, new, array).astype(array.dtype))
        elif shape != list(tensor.dims):
            _put(tensor, np.resize(array, shape))


def _name_size(model: ModelProto, rng: random.Random) -> bool:
    """Make the size of an axis of an input dynamic."""
    dims = [dim for dim in _dims(model) if dim.HasField("dim_value")]
    if not dims:
        return False
    size = rng.choice(dims).dim_value
    chosen = [dim for dim in dims if dim.dim_value == size]
    for dim in chosen if rng.random() < 0.5 else [rng.choice(chosen)]:
        dim.dim_param = "n"
    return True


def _list_types(model: ModelProto, rng: random.Random) -> bool:
    """Make lists int32 instead of int64, or vice versa: all of them, or one."""
    lists = _lists(model)
    if not lists:
        return False
    wide = rng.choice(lists).data_type
    for tensor in [t for t in lists if t.data_type == wide] if rng.random() < 0.7 else [rng.choice(lists)]:
        array = _array(tensor)
        if tensor.data_type == TensorProto.INT64:
            array = np.clip(array, -(1 << 31), (1 << 31) - 1)
        _put(tensor, array.astype(np.int32 if tensor.data_type == TensorProto.INT64 else np.int64))
    return True


def _list_numbers(model: ModelProto, rng: random.Random) -> bool:
    """Change one element of a list: counted from the other end, adjacent, or far away."""
    lists = [tensor for tensor in _lists(model) if np.prod(tensor.dims)]
    if not lists:
        return False
    tensor = rng.choice(lists)
    array = _array(tensor)
    at = rng.randrange(array.size)
    ends = {name for node in _nodes(model) if node.op_type == "Slice" for name in node.input[1:3]}
    far = [np.iinfo(array.dtype).max, np.iinfo(array.dtype).min] if tensor.name in ends else []
    flat, step = array.reshape(-1), rng.randint(1, 4)
    old = int(flat[at])
    if abs(old) < _LARGEST_SIZE:
        far += [old - step, old + step, -old, -old - 1]
    flat[at] = rng.choice([0, 1, -1, *far])
    _put(tensor, array)
    return bool(abs(int(flat[at])) <= _LARGEST_SIZE or far)


def _reorder(model: ModelProto, rng: random.Random) -> bool:
    """Reorder a list, or make it longer or shorter by one."""
    lists = [tensor for tensor in _lists(model) if tensor.dims and tensor.dims[0]]
    if not lists:
        return False
    tensor = rng.choice(lists)
    array = list(_array(tensor))
    how = rng.randrange(3)
    if how == 0:
        rng.shuffle(array)
    elif how == 1:
        array.pop(rng.randrange(len(array)))
    else:
        array.insert(rng.randrange(len(array) + 1), rng.choice([0, 1, -1, array[0]]))
    _put(tensor, np.array(array, helper.tensor_dtype_to_np_dtype(tensor.data_type)))
    return True


def _rank(model: ModelProto, rng: random.Random) -> bool:
    """Change a constant to more axes, fewer axes or broadcast sizes."""
    tensors = [t for t in _constants(model) if t not in _lists(model) and np.prod(t.dims) <= _LARGEST_SIZE]
    if not tensors:
        return False
    tensor = rng.choice(tensors)
    array = _array(tensor)
    size = rng.choice([dim.dim_value for dim in _dims(model)] or [2])
    shapes = [(1, *array.shape), (*array.shape, 1), (1, 1, *array.shape), (2, *array.shape), (size, *array.shape)]
    if array.ndim:
        shapes += [array.shape[1:], array.shape[:-1], (), (1,), (array.shape[-1],) * 2, (array.shape[0], 1)]
    else:
        shapes += [(2,), (3,), (4,)]
    grown = np.resize(array, rng.choice(shapes))
    if grown.dtype.kind == "f" and rng.random() < 0.7:  # make rows differ
        grown = (grown + np.arange(grown.size).reshape(grown.shape)).astype(grown.dtype)
    _put(tensor, grown)
    return True


def _number(model: ModelProto, rng: random.Random) -> bool:
    """Change one element of a constant, or all: the ends of the range, infinities, NaN, zeros, denormals, others."""
    tensors = [t for t in _constants(model) if t.data_type in FLOATS and 0 < np.prod(t.dims) <= _FEW]
    if not tensors:
        return False
    tensor = rng.choice(tensors)
    array = _array(tensor)
    info = np.finfo(array.dtype)
    flat = array.reshape(-1)
    other = flat[rng.randrange(flat.size)]
    numbers = [
        np.inf,
        -np.inf,
        np.nan,
        0.0,
        -0.0,
        1.0,
        -1.0,
        2.0,
        0.5,
        6.0,
        info.tiny / 4,
        -other,
        other * 2,
        info.tiny,
    ]
    if all(node.op_type in _BOUNDS for node in _nodes(model)):  # other operators may overflow
        numbers += [info.max, info.min, info.max / 2]
    chosen = rng.choice(numbers)
    flat[slice(None) if rng.random() < 0.3 else rng.randrange(flat.size)] = chosen
    _put(tensor, array)
    return True


def _element_type(model: ModelProto, rng: random.Random) -> bool:
    """Make all floats another type, or integers of another width if there are no floats."""
    infos = [info.type.tensor_type for graph in graphs_of(model.graph) for info in (*graph.input, *graph.output)]
    old = rng.choice([*FLOATS, TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT8, TensorProto.UINT8])
    new = rng.choice([*FLOATS, TensorProto.INT32, TensorProto.INT64, TensorProto.INT8, TensorProto.UINT8])
    found = [info for info in infos if info.elem_type == old]
    if not found or old == new:
        return False
    for info in found:
        info.elem_type = new
    for tensor in _constants(model):
        if tensor.data_type == old:
            with np.errstate(all="ignore"):
                _put(tensor, np.nan_to_num(_array(tensor)).astype(helper.tensor_dtype_to_np_dtype(new)))
    for node in _nodes(model):
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype") and attribute.i == old:
                attribute.i = new
    return True


def _opset(model: ModelProto, rng: random.Random) -> bool:
    """Declare another opset at which the operators may have had the same form."""
    standard = [*model.opset_import, *(entry for function in model.functions for entry in function.opset_import)]
    imports = [entry for entry in standard if not entry.domain]
    new = rng.choice(OPSETS)
    for entry in imports:
        entry.version = new
    model.ir_version = max(model.ir_version, 10) if new >= 21 else model.ir_version
    return bool(imports)


def _attribute(model: ModelProto, rng: random.Random) -> bool:
    """Change the number in one attribute, or leave the attribute out."""
    found = [
        (node, attribute) for node in _nodes(model) for attribute in node.attribute
        if attribute.type in _NUMERIC and not attribute.ref_attr_name
    ]  # fmt: skip
    if not found:
        return False
    node, attribute = rng.choice(found)
    if rng.random() < 0.15:
        node.attribute.remove(attribute)
    elif attribute.name in _FLAGS:
        attribute.i = 1 - attribute.i
    elif attribute.type == AttributeProto.INT:
        attribute.i = rng.choice([attribute.i + 1, attribute.i - 1, attribute.i - 3, attribute.i - 4, 0, 1, -1, 2])
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = rng.choice([0.0, 1.0, -1.0, 2.0, -attribute.f, 1e-5, 1e30, float("inf"), float("-inf")])
    else:
        _change_ints(attribute, rng)
    return True


def _change_ints(attribute: AttributeProto, rng: random.Random) -> None:
    numbers = list(attribute.ints)
    how = rng.random()
    if how < 0.3:
        rng.shuffle(numbers)
    elif how < 0.4:
        numbers.append(rng.choice([0, 1, -1]))
    elif how < 0.5 and numbers:
        numbers.pop()
    elif numbers:
        at = rng.randrange(len(numbers))
        numbers[at] = rng.choice([numbers[at] + 1, numbers[at] - 1, numbers[at] - len(numbers), 0, -1, 1, 2])
    attribute.ints[:] = numbers


def _operands(model: ModelProto, rng: random.Random) -> bool:
    """Reorder operands, leave one out, or replace one with another."""
    nodes = [node for node in _nodes(model) if len(node.input) > 1]
    if not nodes:
        return False
    node = rng.choice(nodes)
    how = rng.randrange(3)
    if how == 0:
        node.input[0], node.input[1] = node.input[1], node.input[0]
    elif how == 1:
        node.input.pop()
    else:
        names = [each.name for each in model.graph.input] + [each.name for each in model.graph.initializer]
        node.input[rng.randrange(len(node.input))] = rng.choice(names)
    return True


def _not_constant(model: ModelProto, rng: random.Random) -> bool:
    """Make a constant an input, or an overridable initializer."""
    tensors = list(model.graph.initializer)
    if not tensors:
        return False
    tensor = rng.choice(tensors)
    model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    model.graph.initializer.remove(tensor)
    return True


def _reader(model: ModelProto, rng: random.Random) -> bool:
    """Make an intermediate value a graph output."""
    outputs = {info.name for info in model.graph.output}
    inner = [name for node in model.graph.node for name in node.output if name and name not in outputs]
    if not inner:
        return False
    model.graph.output.append(onnx.ValueInfoProto(name=rng.choice(inner)))
    return True


def _name_rank(model: ModelProto, rng: random.Random) -> bool:
    """Make the rank of an input dynamic: its shape is given by a list at run time."""
    graph, initial = model.graph, {tensor.name for tensor in model.graph.initializer}
    found = [info for info in graph.input if info.name not in initial and info.type.tensor_type.shape.dim]
    fixed = [info for info in found if all(dim.HasField("dim_value") for dim in info.type.tensor_type.shape.dim)]
    if not fixed:
        return False
    info = rng.choice(fixed)
    sizes = np.array([dim.dim_value for dim in info.type.tensor_type.shape.dim], np.int64)
    given, shaped = f"{info.name}/sizes", f"{info.name}/shaped"
    graph.input.append(helper.make_tensor_value_info(given, TensorProto.INT64, ["rank"]))
    graph.initializer.append(numpy_helper.from_array(sizes, given))
    for node in (node for inner in graphs_of(graph) for node in inner.node):
        node.input[:] = [shaped if name == info.name else name for name in node.input]
    graph.node.insert(0, helper.make_node("Reshape", [info.name, given], [shaped]))
    return bool(sizes.all())


def _branch(model: ModelProto, rng: random.Random) -> bool:
    """Move the last nodes into both branches of an `If`, which captures values of the others."""
    graph = model.graph
    cut = rng.randrange(len(graph.node)) if graph.node else 0
    head, tail = graph.node[:cut], graph.node[cut:]
    made = {name for node in tail for name in node.output if name}
    given = [info for info in graph.output if info.name in made]
    if not given or any(attribute.HasField("g") for node in tail for attribute in node.attribute):
        return False
    branches: dict[str, Any] = {}
    for branch in ("then_branch", "else_branch"):
        names = {name: f"{name}/{branch[:4]}" for name in made}
        inner = helper.make_graph([], branch, [], [])
        for node in tail:
            copy = inner.node.add()
            copy.CopyFrom(node)
            copy.input[:] = [names.get(name, name) for name in node.input]
            copy.output[:] = [names.get(name, name) for name in node.output]
        inner.output.extend(helper.make_value_info(names[info.name], info.type) for info in given)
        branches[branch] = inner
    graph.input.append(helper.make_tensor_value_info("condition", TensorProto.BOOL, []))
    choice = helper.make_node("If", ["condition"], [info.name for info in given], **branches)
    del graph.node[:]
    graph.node.extend([*head, choice])
    return True


SIBLINGS = (
    ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Mean", "Sum"),
    ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Neg", "Abs", "Sqrt", "Reciprocal", "Exp", "Erf",
     "HardSigmoid", "Identity"),
    ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare"),
    ("Softmax", "LogSoftmax", "Hardmax"),
    ("ArgMax", "ArgMin"),
    ("MaxPool", "AveragePool"),
    ("Squeeze", "Unsqueeze"),
    ("MatMul", "Gemm"),
    ("LayerNormalization", "RMSNormalization"),
    ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"),
    ("And", "Or", "Xor"),
)  # fmt: skip


def _operator(model: ModelProto, rng: random.Random) -> bool:
    """Replace an operator with one of the same form."""
    found = [
        (node, family) for node in _nodes(model) for family in SIBLINGS if not node.domain and node.op_type in family
    ]
    if not found:
        return False
    node, family = rng.choice(found)
    node.op_type = rng.choice(family)
    return True


KINDS: dict[str, Change] = {
    "one size": _one_size, "all sizes": _all_sizes, "named size": _name_size, "type of lists": _list_types,
    "number of a list": _list_numbers, "order of a list": _reorder, "rank": _rank, "number": _number,
    "element type": _element_type, "opset": _opset, "attribute": _attribute, "operands": _operands,
    "not constant": _not_constant, "reader": _reader, "operator": _operator, "branch": _branch,
    "named rank": _name_rank,
}  # fmt: skip
"""Changes of golden cases."""
