"""A small copy of a model without weights, with all that shape inference needs.

It is built field by field, so that a model of two gigabytes is never copied.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import onnx

from graphopt.analysis.alike import UNKNOWN, as_call, as_node, body_alike, may_end_the_process
from graphopt.analysis.calls import CallSizes
from graphopt.analysis.disagreements import may_disagree
from graphopt.analysis.overridable import CallersChoice, is_default
from graphopt.analysis.propagation import KEPT_BYTES, WRONG_SLICE, is_of_shape, vector_length
from graphopt.ir import Graph, Model, Node, OpInfo, Tensor, TensorType, Value
from graphopt.ir.attributes import encode_attribute
from graphopt.ir.flush import emit
from graphopt.ir.schema import has_its_operands, only_types, op_schema
from graphopt.ir.types import MOST_AXES, encode_type, without_sizes

_KEPT_TYPES = frozenset({
    onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL, onnx.TensorProto.FLOAT,
    onnx.TensorProto.DOUBLE,
})  # fmt: skip
_KEPT_FLOATS = 64
"""Floats up to this many bytes keep their data: before onnx 1.23, inference of `Range` crashes on one without data."""


class Skeleton:
    """The stripped proto of a model.

    Attributes:
        proto: the stripped model.
        seeds: outputs of operators that inference does not know, with declared types that were kept.
    """

    def __init__(self, model: Model, *, output_types: bool = True, seed_dims: bool = True) -> None:
        """Strip a model.

        Args:
            model: the model.
            output_types: whether to declare the element types of the graph outputs.
            seed_dims: whether to keep declared dimensions of opaque operators' outputs, not only their rank.
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
            # Inference rejects the whole model if a domain is not imported.
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
        target.name = "graph"  # its own name may not be valid text
        for value in graph.inputs:
            self._input(value, target.input.add(name=value.name), inner=graph.owner is not None)
        for value in graph.initializers:
            tensor = value.tensor
            if tensor is None or is_default(value):
                continue
            if value.is_const or value.is_input:
                _strip(tensor, target.initializer.add(name=value.name))
            else:
                # Values that training changes have a fixed size, but contents that inference must not use.
                target.input.add(name=value.name, type=encode_type(TensorType(tensor.dtype, tensor.dims)))
        if graph.owner is not None:
            _show_captured(graph, target)
        self._nodes(graph, target)
        for value in graph.outputs:
            self._output(value, target.output.add(name=value.name))

    def _input(self, value: Value, target: onnx.ValueInfoProto, *, inner: bool) -> None:
        value_type = value.type
        if inner and value_type is None:
            # Without a previous inference, the declared element type is needed.
            value_type = value.declared
        if value_type is None:
            return
        told = encode_type(value_type)
        # Declared shapes of a body's inputs are checked by no runtime, and their symbols are local.
        target.type.CopyFrom(without_sizes(told) if inner else told)

    def _output(self, value: Value, target: onnx.ValueInfoProto) -> None:
        value_type = value.type
        if value_type is None and value.graph.owner is not None:
            value_type = value.declared
        if value_type is None or not self._output_types:
            return
        if value.producer is None:
            return  # inference would use the output's declaration as the type of the input or constant
        target.type.CopyFrom(without_sizes(encode_type(value_type)))

    def _nodes(self, graph: Graph, target: onnx.GraphProto | onnx.FunctionProto) -> None:
        protos: list[onnx.NodeProto] = []
        sliced, in_function = False, graph.in_function
        known: dict[str, tuple[OpInfo | None, tuple[str, ...]]] = {}
        for node in graph:
            op = node.op
            if op not in known:
                known[op] = node.schema, _axis_attributes_of(node)
            schema, axes = known[op]
            unknown = (node.domain or op == UNKNOWN) and not in_function and isinstance(target, onnx.GraphProto)
            if unknown and _has_real_axes(node, _NAMING_AXES) and (proto := self._alike(node)) is not None:
                protos.append(proto)
                continue
            malformed = schema is not None and _is_malformed(node, schema, axes)
            if malformed or may_end_the_process(node) or (in_function and may_disagree(node)):
                protos.append(_stand_in(node))
            elif op == "Slice" and _is_misread(node):
                protos.append(_later_slice(node))
                sliced = True
            elif node.subgraphs or (op == "Constant" and not _is_shown_as_read(node)):
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
        """A standard operator, or a function of standard operators, in place of a contrib operator."""
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
        """Import the domain of functions that exist for inference only."""
        if not any(entry.domain == _LATER for entry in self.proto.opset_import):
            self.proto.ir_version = max(self.proto.ir_version, _IR_WITH_FUNCTIONS)
            self.proto.opset_import.add(domain=_LATER, version=1)

    def _slice_as_function(self) -> None:
        """Add the `Slice` of opset 11 as a function: the one whose inference is right, if it is not of a shape."""
        if any(function.domain == _LATER and function.name == "Slice" for function in self.proto.functions):
            return
        self._later()
        function = self.proto.functions.add(name="Slice", domain=_LATER)
        function.input.extend(_SLICED)
        function.output.append("result")
        function.opset_import.add(domain="", version=WRONG_SLICE + 1)
        function.node.add(op_type="Slice", input=_SLICED, output=["result"])

    def _seed(self, node: Node, target: onnx.GraphProto) -> None:
        if node.op.startswith("call "):
            return
        if node.domain == "ai.onnx.ml" and node.schema is not None:
            _state_only_types(node, target)
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
                    # The declared shape came from the default.
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


def _state_only_types(node: Node, target: onnx.GraphProto) -> None:
    """Declare the fixed element types of an operator's outputs, which inference omits for many `ai.onnx.ml` ones."""
    types = only_types(node.op_type, node.domain, node.graph.opset(node.domain))
    for value, dtype in zip(node.outputs, types, strict=False):
        if value is not None and dtype is not None:
            target.value_info.add(name=value.name, type=encode_type(TensorType(dtype, None)))


_CAPTURED_BYTES = 1024
"""Most bytes of a captured constant that is shown: it is copied into each subgraph that reads it."""


def _show_captured(graph: Graph, target: onnx.GraphProto) -> None:
    """Copy small captured constants into a subgraph: inference does not read constants of enclosing graphs."""
    captured = {v: None for node in graph for v in node.inputs if v is not None and v.graph is not graph}
    for value in captured:
        tensor = value.constant_tensor
        if tensor is not None and tensor.nbytes <= _CAPTURED_BYTES and _is_shown(tensor):
            tensor.fill(target.initializer.add(name=value.name), value.name)


_LATER = "graphopt.later"
_SLICED = ("data", "starts", "ends", "axes", "steps")
_IR_WITH_FUNCTIONS = 8


def _is_misread(node: Node) -> bool:
    """Whether inference misreads a `Slice`.

    At opset 10 it keeps the symbols of sliced axes. From opset 13 on it follows the contents of vectors, and treats a
    start that is not known as 0.
    """
    if node.graph.opset() == WRONG_SLICE:
        return not is_of_shape(node)
    starts = node.input(1)
    return node.graph.opset() >= _FOLLOWS_SLICES and starts is not None and not starts.is_const


_FOLLOWS_SLICES = 13


def _later_slice(node: Node) -> onnx.NodeProto:
    proto = onnx.NodeProto(op_type="Slice", domain=_LATER)
    proto.input.extend("" if v is None else v.name for v in node.inputs)
    proto.output.extend("" if v is None else v.name for v in node.outputs)
    return proto


def is_safe(node: Node, schema: OpInfo) -> bool:
    """Whether the standard's inference may be called for a node: it crashes the process on some malformed nodes.

    The number of operands must be valid, and attributes that name or count axes must be within the rank of any tensor:
    inference reads them as 32-bit integers, and uses them as indices without a check.
    """
    return _has_its_operands(node, schema) and _has_real_axes(node, _axis_attributes_of(node))


def _has_real_axes(node: Node, names: Iterable[str]) -> bool:
    for name in names:
        value = node.attrs.get(name)
        if value is None:
            continue
        for axis in value if isinstance(value, tuple) else (value,):
            if not isinstance(axis, int) or not -MOST_AXES <= axis <= MOST_AXES:
                return False
    return True


_NAMING_AXES = frozenset({
    "axis", "axes", "batch_axis", "batch_dims", "perm", "scan_input_axes", "scan_output_axes", "time_axis",
})  # fmt: skip


def _axis_attributes_of(node: Node) -> tuple[str, ...]:
    """The attributes of a node's operator that name or count axes."""
    schema = node.schema
    return () if schema is None else _axis_attributes(node.op_type, node.domain, schema.since_version)


@lru_cache(maxsize=4096)
def _axis_attributes(op_type: str, domain: str, version: int) -> tuple[str, ...]:
    schema = op_schema(op_type, domain, version)
    return tuple(sorted(_NAMING_AXES & schema.attributes.keys())) if schema is not None else ()


def may_be_inferred(model: Model) -> bool:
    """Whether the standard's inference may be run on a model as it is: no call or node makes it hang or crash."""
    if not _calls_are_few(model):
        return False
    for node in model.nodes():
        schema = node.schema
        if schema is not None and _is_malformed(node, schema, _axis_attributes_of(node)):
            return False
        if may_end_the_process(node):
            return False
    return True


def _is_malformed(node: Node, schema: OpInfo, axes: tuple[str, ...]) -> bool:
    """Whether inference may misbehave on a node."""
    return (
        node.op.startswith("malformed ")
        or not _has_its_operands(node, schema)
        or (bool(axes) and not _has_real_axes(node, axes))
    )


def _has_its_operands(node: Node, schema: OpInfo) -> bool:
    if node.op == "GatherND" and node.attr("batch_dims", 0) < 0:
        return False
    if node.op == "Expand" and (shape := node.input(1)) is not None and vector_length(shape.shape) > MOST_AXES:
        return False  # at opset 8 inference lists as many axes
    if node.op == "Split" and node.attr("num_outputs", 0) not in (0, len(node.outputs)):
        return False  # inference computes `num_outputs` sizes, and indexes them by output
    return has_its_operands(node.op, schema, node.inputs)


def _stand_in(node: Node) -> onnx.NodeProto:
    """An operator unknown to inference, in place of a malformed node."""
    return onnx.NodeProto(op_type="Malformed", output=["" if v is None else v.name for v in node.outputs])


def _is_graph_list(value: Any) -> bool:
    return isinstance(value, onnx.AttributeProto) and value.type == onnx.AttributeProto.GRAPHS


def _is_shown_as_read(node: Node) -> bool:
    """Whether inference gets a `Constant` unchanged."""
    tensor = node.attrs.get("value") if node._proto is not None and not node.changed else None
    return (
        isinstance(tensor, Tensor) and tensor.source is None and node.constant_tensor() is tensor and _is_shown(tensor)
    )


def _constant(node: Node, target: onnx.NodeProto) -> None:
    target.op_type = "Constant"
    target.output.extend(["" if v is None else v.name for v in node.outputs])
    tensor = node.constant_tensor()
    if tensor is not None:
        attribute = target.attribute.add(name="value", type=onnx.AttributeProto.TENSOR)
        _strip(tensor, attribute.t)
    else:
        target.attribute.extend(emit(node).attribute)


def _strip(tensor: Tensor, target: onnx.TensorProto) -> None:
    """Copy type and dims of a tensor; its data only if inference may read it."""
    if _is_shown(tensor):
        tensor.fill(target, target.name)
        return
    target.data_type = tensor.dtype
    target.dims.extend(tensor.dims)


def _is_shown(tensor: Tensor) -> bool:
    """Whether inference gets the data of a tensor."""
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
    limit = _KEPT_FLOATS if tensor.dtype in floats else KEPT_BYTES
    return tensor.dtype in _KEPT_TYPES and tensor.nbytes <= limit


_MAX_INFERRED = 100_000


def _calls_are_few(model: Model) -> bool:
    """Whether inference can enter the functions, which it does at every call.

    Functions that call each other twice expand eighty nodes to 2**40, and recursion does not end.
    """
    if not model.functions:
        return True
    sizes = CallSizes(model)
    return max(map(sizes.of, (model.graph, *model.functions))) <= _MAX_INFERRED
