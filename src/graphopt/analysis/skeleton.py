"""A copy of a model that weighs next to nothing: what shape inference needs, and no weights.

Built field by field, so that a model of two gigabytes is never copied.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any

import onnx

from graphopt.analysis.alike import as_call, as_node, body_alike
from graphopt.analysis.calls import CallSizes
from graphopt.analysis.disagreements import may_disagree
from graphopt.analysis.lengths import NEVER_LONGER, SIZES_IN_ATTRIBUTES
from graphopt.analysis.overridable import CallersChoice, is_default
from graphopt.ir import Graph, Model, Node, OpInfo, Tensor, TensorType, Value
from graphopt.ir.attributes import encode_attribute
from graphopt.ir.flush import emit
from graphopt.ir.schema import has_its_operands, op_schema
from graphopt.ir.types import encode_type

KEPT_BYTES = 1024 * 8
"""Integer tensors up to this size keep their data: shapes, axes and indices are read by inference."""

_KEPT_TYPES = frozenset({
    onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL, onnx.TensorProto.FLOAT,
})  # fmt: skip
_KEPT_FLOATS = 64


class Skeleton:
    """The stripped proto of a model, and how it maps back to the view.

    Attributes:
        proto: the stripped model.
        seeds: outputs of operators that inference does not know, whose declared types were kept.
    """

    def __init__(self, model: Model, *, output_types: bool = True, seed_dims: bool = True) -> None:
        """Strip a model.

        Args:
            model: the model.
            output_types: whether to state the element types of the graph outputs.
            seed_dims: whether declared dimensions of opaque operators' outputs are kept, or only their rank.
        """
        self.proto = onnx.ModelProto(ir_version=model._proto.ir_version)
        self.seeds: list[Value] = []
        self._output_types = output_types
        self._seed_dims = seed_dims
        self._choice: CallersChoice | None = None
        for domain, version in model.graph.opsets.items():
            self.proto.opset_import.add(domain=domain, version=version)
        for function in model.functions if _calls_are_few(model) else ():
            self._function(function)
        self._graph(model.graph, self.proto.graph)
        for domain in {node.domain for node in model.nodes()} - model.graph.opsets.keys():
            # Inference refuses the whole model for an operator of a domain that is not imported.
            self.proto.opset_import.add(domain=domain, version=1)

    def _function(self, graph: Graph) -> None:
        source = graph._proto
        assert isinstance(source, onnx.FunctionProto)
        target = self.proto.functions.add(name=source.name, domain=source.domain, overload=source.overload)
        target.input.extend(source.input)
        target.output.extend(source.output)
        target.attribute.extend(source.attribute)
        target.attribute_proto.extend(source.attribute_proto)
        for domain, version in graph.opsets.items():
            target.opset_import.add(domain=domain, version=version)
        self._nodes(graph, target)

    def _graph(self, graph: Graph, target: onnx.GraphProto) -> None:
        target.name = "graph"  # its own need not be text
        for value in graph.inputs:
            self._input(value, target.input.add(name=value.name), inner=graph.owner is not None)
        for value in graph.initializers:
            tensor = value.tensor
            if tensor is None or is_default(value):
                continue
            if value.is_const or value.is_input:
                _strip(tensor, target.initializer.add(name=value.name))
            else:
                # What training changes has a size, and contents that no inference may rely on.
                target.input.add(name=value.name, type=encode_type(TensorType(tensor.dtype, tensor.dims)))
        if graph.owner is not None:
            _show_captured(graph, target)
        self._nodes(graph, target)
        for value in graph.outputs:
            self._output(value, target.output.add(name=value.name))

    def _input(self, value: Value, target: onnx.ValueInfoProto, *, inner: bool) -> None:
        value_type = value.type
        if inner and value_type is None:
            # Where nothing was inferred yet, inference needs the declared element type to begin with.
            value_type = value.declared
        if value_type is None:
            return
        if inner and isinstance(value_type, TensorType):
            # What a body declares of its inputs is not checked by anyone, and its symbols are its own.
            value_type = TensorType(value_type.dtype, None)
        target.type.CopyFrom(encode_type(value_type))

    def _output(self, value: Value, target: onnx.ValueInfoProto) -> None:
        value_type = value.type
        if value_type is None and value.graph.owner is not None:
            value_type = value.declared
        if value_type is None or not self._output_types:
            return
        if isinstance(value_type, TensorType):
            value_type = TensorType(value_type.dtype, None)
        target.type.CopyFrom(encode_type(value_type))

    def _nodes(self, graph: Graph, target: onnx.GraphProto | onnx.FunctionProto) -> None:
        protos: list[onnx.NodeProto] = []
        sliced, in_function = False, graph.in_function
        schemas: dict[str, OpInfo | None] = {}
        for node in graph:
            op = node.op
            schema = schemas[op] if op in schemas else schemas.setdefault(op, node.schema)
            contrib = node.domain and not in_function and isinstance(target, onnx.GraphProto)
            if contrib and _has_real_axes(node, _NAMING_AXES) and (proto := self._alike(node)) is not None:
                protos.append(proto)
                continue
            malformed = schema is not None and (op.startswith("malformed ") or not is_safe(node, schema))
            if malformed or (in_function and may_disagree(node)):
                protos.append(_stand_in(node))
            elif op == "Slice" and graph.opset() == WRONG_SLICE and not _is_of_shape(node):
                protos.append(_later_slice(node))
                sliced = True
            elif node.subgraphs or node.op == "Constant":
                protos.append(onnx.NodeProto())
                if node.subgraphs:
                    self._owner(node, protos[-1])
                else:
                    _constant(node, protos[-1])
            else:
                protos.append(emit(node))
            if (node.domain or schema is None) and isinstance(target, onnx.GraphProto):
                self._seed(node, target)
        target.node.extend(protos)
        if sliced:
            self._slice_as_function()
            if isinstance(target, onnx.FunctionProto):
                target.opset_import.add(domain=_LATER, version=1)

    def _alike(self, node: Node) -> onnx.NodeProto | None:
        """An operator of the standard, or a function of such, in the place of a contrib one."""
        body = body_alike(node)
        if body is None or len(node.outputs) != 1:
            return None
        if len(body) == 1:
            return as_node(body, node)
        self._later()
        function, call = as_call(body, node, f"{node.op_type}{len(self.proto.functions)}", _LATER)
        self.proto.functions.append(function)
        return call

    def _later(self) -> None:
        """Import the domain of functions that only inference sees."""
        if not any(entry.domain == _LATER for entry in self.proto.opset_import):
            self.proto.ir_version = max(self.proto.ir_version, _IR_WITH_FUNCTIONS)
            self.proto.opset_import.add(domain=_LATER, version=1)

    def _slice_as_function(self) -> None:
        """State the `Slice` of the next opset, as a function: inference at opset 10 lets names of sizes stay."""
        if any(function.domain == _LATER and function.name == "Slice" for function in self.proto.functions):
            return
        self._later()
        function = self.proto.functions.add(name="Slice", domain=_LATER)
        function.input.extend(_SLICED)
        function.output.append("result")
        function.opset_import.add(domain="", version=WRONG_SLICE + 1)
        function.node.add(op_type="Slice", input=_SLICED, output=["result"])

    def _seed(self, node: Node, target: onnx.GraphProto) -> None:
        if node.op.startswith("call ") or (node.domain == "ai.onnx.ml" and node.schema is not None):
            return
        for value in node.outputs:
            value_type = value.type if value is not None else None
            if value is None or value_type is None:
                continue
            self.seeds.append(value)
            shape = value_type.shape if isinstance(value_type, TensorType) else None
            if isinstance(value_type, TensorType) and shape is not None:
                if self._choice is None:
                    self._choice = CallersChoice(node.graph.model)
                if self._choice.sizes_any(node):
                    # What is declared came from the default.
                    value_type = TensorType(value_type.dtype, None)
                elif not self._seed_dims:
                    value_type = TensorType(value_type.dtype, (None,) * len(shape))
            target.value_info.add(name=value.name, type=encode_type(value_type))

    def _owner(self, node: Node, target: onnx.NodeProto) -> None:
        target.op_type, target.domain, target.overload = node.op_type, node.domain, node.overload
        target.name = node.name
        target.input.extend("" if v is None else v.name for v in node.inputs)
        target.output.extend("" if v is None else v.name for v in node.outputs)
        names = dict.fromkeys(node.attrs)
        names.update(dict.fromkeys(key for key in node.subgraphs if not key.endswith("]")))
        for name in names:
            graph = node.subgraphs.get(name)
            if graph is not None:
                attribute = target.attribute.add(name=name, type=onnx.AttributeProto.GRAPH)
                self._graph(graph, attribute.g)
            elif not _is_graph_list(node.attrs[name]):
                target.attribute.append(encode_attribute(name, node.attrs[name]))


_CAPTURED_BYTES = 1024
"""Constants of outer graphs are copied into each body that reads them, so less of them is."""


def _show_captured(graph: Graph, target: onnx.GraphProto) -> None:
    """Store small constants of outer graphs in a body that reads them: inference looks at no others' contents."""
    captured = {v: None for node in graph for v in node.inputs if v is not None and v.graph is not graph}
    for value in captured:
        tensor = value.constant_tensor
        if tensor is not None and tensor.nbytes <= _CAPTURED_BYTES and _is_shown(tensor):
            tensor.fill(target.initializer.add(name=value.name), value.name)


WRONG_SLICE = 10
"""At this opset the standard's inference gives parts of axes of a name that very name."""

_LATER = "graphopt.later"
_SLICED = ("data", "starts", "ends", "axes", "steps")
_IR_WITH_FUNCTIONS = 8


def _is_of_shape(node: Node) -> bool:
    """Whether a part of a shape is taken, whose contents inference follows, and whose length has no name."""
    for _ in range(_DEEPEST):
        value = node.input(0)
        if value is None or value.producer is None or value.producer.op not in (*_FOLLOWERS, "Shape"):
            return False
        node = value.producer
        if node.op == "Shape":
            return True
    return False


def _later_slice(node: Node) -> onnx.NodeProto:
    proto = onnx.NodeProto(op_type="Slice", domain=_LATER)
    proto.input.extend("" if v is None else v.name for v in node.inputs)
    proto.output.extend("" if v is None else v.name for v in node.outputs)
    return proto


def is_safe(node: Node, schema: OpInfo) -> bool:
    """Whether the standard's inference can be asked about a node: on some malformed ones it ends the process.

    No required operand may be missing and none too many, and no attribute that names or counts axes may be beyond
    what any tensor has: inference reads those as 32-bit integers and takes them for positions in memory.
    """
    return _has_its_operands(node, schema) and _has_real_axes(
        node, _axis_attributes(node.op_type, node.domain, schema.since_version)
    )


def _has_real_axes(node: Node, names: Iterable[str]) -> bool:
    for name in names:
        value = node.attrs.get(name)
        if value is None:
            continue
        for axis in value if isinstance(value, tuple) else (value,):
            if not isinstance(axis, int) or not -_MOST_AXES <= axis <= _MOST_AXES:
                return False
    return True


_MOST_AXES = 64
"""No runtime knows tensors of more."""

_NAMING_AXES = frozenset({
    "axis", "axes", "batch_axis", "batch_dims", "perm", "scan_input_axes", "scan_output_axes", "time_axis",
})  # fmt: skip


@lru_cache(maxsize=4096)
def _axis_attributes(op_type: str, domain: str, version: int) -> tuple[str, ...]:
    schema = op_schema(op_type, domain, version)
    return tuple(sorted(_NAMING_AXES & schema.attributes.keys())) if schema is not None else ()


def _has_its_operands(node: Node, schema: OpInfo) -> bool:
    if node.op == "GatherND" and node.attr("batch_dims", 0) < 0:
        return False
    if node.op == "Split" and node.attr("num_outputs", 0) > len(node.outputs):
        return False  # inference makes a list of so many sizes
    return has_its_operands(node.op, schema, node.inputs)


def _stand_in(node: Node) -> onnx.NodeProto:
    """An operator that inference knows nothing of, in the place of a malformed node."""
    return onnx.NodeProto(op_type="Malformed", output=["" if v is None else v.name for v in node.outputs])


def _is_graph_list(value: Any) -> bool:
    return isinstance(value, onnx.AttributeProto) and value.type == onnx.AttributeProto.GRAPHS


def _constant(node: Node, target: onnx.NodeProto) -> None:
    target.op_type = "Constant"
    target.output.extend("" if v is None else v.name for v in node.outputs)
    tensor = node.constant_tensor()
    if tensor is not None:
        attribute = target.attribute.add(name="value", type=onnx.AttributeProto.TENSOR)
        _strip(tensor, attribute.t)
    else:
        target.attribute.extend(emit(node).attribute)


def _strip(tensor: Tensor, target: onnx.TensorProto) -> None:
    """Type and dims of a tensor; its data only when inference may want to read it."""
    if _is_shown(tensor):
        tensor.fill(target, target.name)
        return
    target.data_type = tensor.dtype
    target.dims.extend(tensor.dims)


def _is_shown(tensor: Tensor) -> bool:
    """Whether inference is given what a tensor holds."""
    limit = _KEPT_FLOATS if tensor.dtype == onnx.TensorProto.FLOAT else KEPT_BYTES
    return tensor.dtype in _KEPT_TYPES and tensor.nbytes <= limit


_MAX_INFERRED = 100_000


def _calls_are_few(model: Model) -> bool:
    """Whether inference can go into the functions, which it does at every call.

    Functions that call each other twice make 2**40 nodes of eighty, and into one that calls itself it goes for ever.
    """
    if not model.functions:
        return True
    sizes = CallSizes(model)
    return max(map(sizes.of, (model.graph, *model.functions))) <= _MAX_INFERRED


_MAX_FOLLOWED = 1 << 16


def contents_may_explode(model: Model) -> bool:
    """Whether the standard's data propagation would drown: it follows vectors of any length.

    A chain of `Concat` that doubles a shape at every step has 2**40 elements after forty nodes. This is an upper bound
    of what would be followed, by one pass over the nodes. A vector of known length is followed even where nothing is
    known of its contents: a `Range` of a few bytes makes one of gigabytes.
    """
    bounds: dict[Value, float] = {}
    limit = longest_vector(model)
    if any(_length(value.shape) > limit for value in model.graph.inputs):
        return True
    ops = set()
    for node in model.nodes():
        ops.add(node.op)
        if node.op in _TOLD_A_SIZE and (_makes_long(node, bounds) or _told_length(node) > limit):
            return True
    if "Concat" not in ops:
        return False
    sizes: dict[Value, int] = {}
    for node in model.nodes():
        size = 64 if node.op in ("Shape", "Size") else _followed_by(node, sizes)
        if size > _MAX_FOLLOWED:
            return True
        if size:
            sizes.update([(value, size) for value in node.outputs if value is not None])
    return False


def _followed_by(node: Node, sizes: dict[Value, int]) -> int:
    """Elements that are followed of the results of a node; 0 as soon as one of its operands is not followed."""
    found = []
    for value in node.inputs:
        if value is not None:
            size = _followed(value, sizes)
            if not size:
                return 0
            found.append(size)
    return sum(found) if node.op == "Concat" else max(found, default=0)


_LONG = 1 << 20
"""Vectors above this length are no shapes, and following one takes seconds."""

_TOLD_A_SIZE = frozenset({
    "AffineGrid", "BlackmanWindow", "CenterCropPad", "ConstantOfShape", "Expand", "HammingWindow", "HannWindow",
    "MaxUnpool", "OneHot", "Pad", "Range", "Reshape", "Resize", "Tile", "Upsample",
})  # fmt: skip
"""Operators with operands, or an attribute before they had these, that say how long the result is."""


_GROWING = frozenset({"ConstantOfShape", "Expand", "Tile"})
"""Those whose result is as large as all the sizes together say; flattened, it is one vector."""


def longest_vector(model: Model) -> int:
    """How long vectors may be: their elements are followed anew by each operator, and take 150 bytes each time."""
    followers = sum(node.op in _FOLLOWERS for node in model.nodes())
    return max(_NO_SHAPE, _LONG // max(followers, 1))


_NO_SHAPE = 64
"""Shapes are never longer, so vectors up to this length are followed in models of any size."""


def _length(shape: Sequence[object] | None) -> int:
    """The length of a vector; 0 where it is not known, or not a vector's."""
    return shape[0] if shape is not None and len(shape) == 1 and isinstance(shape[0], int) else 0


_MAKES_VECTORS = frozenset({"ConstantOfShape", "Expand", "Reshape", "Tile"})


def _told_length(node: Node) -> float:
    """The length of a vector that a constant operand of one element states."""
    value = node.inputs[-1] if node.inputs and node.op in _MAKES_VECTORS else None
    array = value.const(8) if value is not None else None
    return max(_sizes(array), default=0) if array is not None and array.size == 1 and array.dtype.kind in "iu" else 0


_FOLLOWERS = frozenset({
    "Add", "Cast", "Concat", "Gather", "Mul", "Size", "Slice", "Squeeze", "Sub", "Unsqueeze",
})  # fmt: skip
"""Operators that data propagation follows, whatever the element type."""

_DEEPEST = 32


def may_make_vectors(model: Model) -> bool:
    """Whether a vector may become long: then lengths are inferred before contents are followed.

    It may wherever an operator is not known to give vectors no longer than its operands are, or than its bounded
    attributes and constant operands say. Arithmetic on a few numbers as a row and as a column makes many, too, and a
    reshape makes one vector of them.
    """
    limit = longest_vector(model)
    if any(dim > limit for value in model.graph.inputs for dim in value.shape or () if isinstance(dim, int)):
        return True
    bounds: dict[Value, float] = {}
    return any(_may_lengthen(node, bounds, limit) for node in model.nodes())


def _may_lengthen(node: Node, bounds: dict[Value, float], limit: int) -> bool:
    op = node.op
    if op in ("Flatten", "Reshape"):
        return _may_flatten(node)
    if op in NEVER_LONGER:
        return False
    if op in _TOLD_A_SIZE:
        return _makes_long(node, bounds, limit)
    if op in SIZES_IN_ATTRIBUTES:
        return _states_long(node, limit)
    known = not op.startswith("call ") and node.schema is None
    return any(value is not None and not _is_small(value, limit, declared=known) for value in node.outputs)


def _is_small(value: Value, limit: int, *, declared: bool) -> bool:
    """Whether no dimension is above a limit, as inferred before.

    Args:
        value: the value.
        limit: the limit.
        declared: whether inference knows of it what is declared, nothing else.
    """
    shape = value.shape
    if shape is None:
        return declared
    return all(dim <= limit if isinstance(dim, int) else declared for dim in shape)


def _may_flatten(node: Node) -> bool:
    source, result = node.input(0), node.output(0)
    shape = source.shape if source is not None else None
    if shape is not None and math.prod(dim for dim in shape if isinstance(dim, int)) <= _LONG:
        return False
    if node.op == "Flatten":
        return result is not None and any(user.op in ("Gather", "Squeeze") for user in result.users)
    target = node.input(1)
    array = target.const(64) if target is not None else None
    if array is not None:
        return array.size <= 1 or (array.size == 2 and -1 in array)
    producer = target.producer if target is not None else None
    if producer is None or producer.op == "Shape":
        return False
    return producer.op != "Concat" or len(producer.inputs) < 2


def follows_long_vectors(graph: onnx.GraphProto, limit: int, outer: Collection[str] = ()) -> bool:
    """Whether an operator that data propagation follows reads a vector above a length, in a graph with its shapes.

    Args:
        graph: the graph.
        limit: the length.
        outer: long vectors of the graphs around it.
    """
    long = set(outer)
    for info in (*graph.value_info, *graph.input, *graph.output):
        dims = info.type.tensor_type.shape.dim
        if len(dims) == 1 and dims[0].dim_value > limit:
            long.add(info.name)
    if long and any(not long.isdisjoint(node.input) for node in graph.node if node.op_type in _FOLLOWERS):
        return True
    inner = (a.g for node in graph.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH)
    return any(follows_long_vectors(each, limit, long) for each in inner)


_WIDE = 1 << 12
"""Sizes from which on a product of two makes a vector that is no shape."""

_FLATTENING = frozenset({"Flatten", "Reshape", "Squeeze"})


def may_follow_products(model: Model, graph: onnx.GraphProto) -> bool:
    """Whether vectors of unknown length are followed that may be flattened products of large computed sizes.

    Where a size is computed, only contents tell how long a vector of all the elements is, so that it is too late then.

    Args:
        model: the model.
        graph: its graph with the lengths that are known without contents.
    """
    bounds: dict[Value, float] = {}
    types = {info.name: info.type.tensor_type for info in (*graph.value_info, *graph.output)}
    if not any(dim.dim_value > _LONG for tensor in types.values() for dim in tensor.shape.dim) and not any(
        n.op in _GROWING and not _is_constant(n) and _makes_long(n, bounds, _WIDE) for n in model.nodes()
    ):
        return False
    unknown = {name for name, tensor in types.items() if _is_unknown_vector(tensor)}
    made = (node.output[0] for node in graph.node if node.op_type in _FLATTENING | _GROWING and node.output)
    risky = unknown.intersection(made)
    return bool(risky) and any(not risky.isdisjoint(n.input) for n in graph.node if n.op_type in _FOLLOWERS)


def _is_constant(node: Node) -> bool:
    """Whether the operand that states the size is constant, so that no contents are needed to know it."""
    value = node.inputs[-1] if node.inputs else None
    return value is not None and value.is_const


def _is_unknown_vector(tensor: onnx.TypeProto.Tensor) -> bool:
    dims = tensor.shape.dim
    return len(dims) == 1 and not dims[0].HasField("dim_value")


def _largest(value: Value | None, known: dict[Value, float], depth: int = 0) -> float:
    """A bound of the numbers that propagation would compute from constants and fixed shapes; 0 where there is none."""
    if value is None or depth > _DEEPEST:
        return 0
    if value not in known:
        known[value] = _work_out(value, known, depth)
    return known[value]


def _work_out(value: Value, known: dict[Value, float], depth: int) -> float:
    array, node = value.const(64), value.producer
    if array is not None:
        return max(_sizes(array), default=0) if array.dtype.kind in "iuf" else 0
    if node is None:
        return 0
    if node.op in ("Shape", "Size"):
        source = node.input(0)
        dims = [dim for dim in (source.shape or ()) if isinstance(dim, int)] if source is not None else []
        return float(math.prod(dims) if node.op == "Size" else max(dims, default=0))
    if node.op not in _FOLLOWERS:
        return 0
    if node.op not in ("Add", "Concat", "Mul", "Sub"):
        return _largest(node.input(0), known, depth + 1)
    parts = [_largest(part, known, depth + 1) for part in node.inputs]
    return math.prod(parts) if node.op == "Mul" else max(parts, default=0) if node.op == "Concat" else sum(parts)


def _makes_long(node: Node, known: dict[Value, float], limit: int = _LONG) -> bool:
    if _states_long(node, limit):
        return True
    if node.inputs and _largest(node.inputs[-1], known) > limit:
        return True
    for value in node.inputs if node.op == "Range" else node.inputs[-2:]:
        array = value.const(64) if value is not None else None
        if array is None or array.dtype.kind not in "iuf" or not array.size:
            continue
        sizes = _sizes(array)
        if max(sizes) > limit or (node.op in _GROWING and math.prod([max(size, 1) for size in sizes]) > 4 * limit):
            return True
    return False


def _states_long(node: Node, limit: int) -> bool:
    """Whether an attribute states a size above a limit."""
    for name in SIZES_IN_ATTRIBUTES.get(node.op, ()):
        stated = node.attr(name)
        if stated is not None and max(stated if isinstance(stated, tuple) else (stated,), default=0) > limit:
            return True
    return False


def _sizes(array: Any) -> list[float]:
    return [abs(float(size)) for size in array.reshape(-1).tolist()]


def _followed(value: Value, sizes: dict[Value, int]) -> int:
    size = sizes.get(value)
    if size is None:
        tensor = value.constant_tensor
        if tensor is None or (tensor.nbytes > KEPT_BYTES and len(tensor.dims) != 1):
            return 0
        # Of a long vector only the length is followed, which takes less.
        size = tensor.numel if tensor.nbytes <= KEPT_BYTES else tensor.numel // 16
    return size
