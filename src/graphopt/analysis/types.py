"""Types and shapes of values: one run of `onnx.shape_inference` for a model, and rules for single nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Any
from weakref import WeakKeyDictionary

import onnx
from onnx.onnx_cpp2py_export import shape_inference  # what `onnx.shape_inference` calls, without its text parser

from graphopt.analysis.alike import may_end_the_process
from graphopt.analysis.doubted import STOP, stop_doubts
from graphopt.analysis.nodes import infer_by_rules, infer_node, knows
from graphopt.analysis.propagation import (
    contents_may_explode,
    follows_long_vectors,
    longest_vector,
    may_follow_products,
    may_make_vectors,
)
from graphopt.analysis.shapes import ShapeAnalysis
from graphopt.analysis.siblings import NamesApart, names_meet
from graphopt.analysis.skeleton import Skeleton
from graphopt.ir import Dim, Graph, Model, Node, TensorType, Value, ValueType
from graphopt.ir.schema import READING_TYPES
from graphopt.ir.seal import check_unsealed
from graphopt.ir.types import GENERATED, KNOWN_TYPES, decode_type, is_told, shapes_differ

_counters: WeakKeyDictionary[Model, int] = WeakKeyDictionary()


def infer_types(model: Model, data_prop: bool = True) -> None:
    """Infer the type of every value of a model, including subgraphs, and write it to `Value.type`.

    Trusted sources, in this order:

    * the contents of initializers and `Constant` nodes;
    * the declared types of the main graph's inputs, including symbols: they are the contract with the caller, and the
      runtime checks them;
    * types that the standard's inference derives from these;
    * the declared element types of the graph outputs, and the declared types of outputs of operators that inference
      does not know (custom and contrib ones), since there is no other source. If the declarations of other values
      contradict inference, declarations are stale: then only element type and rank of the latter are kept.

    All other declarations (`value_info`, shapes of outputs and of the inputs of bodies) are often wrong or stale,
    checked by no runtime, and not used. A value that cannot be inferred has type None afterwards. Values of model-local
    functions have no types, since each call has its own.

    Unknown dimensions that are equal by construction share a generated name (`unk__12`), never used again.

    Args:
        model: the model; only `Value.type` changes.
        data_prop: whether to follow the contents of small integer tensors too.
    """
    check_unsealed("types")
    ops = {node.op for node in model.nodes()}
    untyped = 0 if READING_TYPES.isdisjoint(ops) else _untyped(model)
    _infer_all(model, ops, data_prop)
    while untyped and untyped != (untyped := _untyped(model)):
        _infer_all(model, ops, data_prop)


def _untyped(model: Model) -> int:
    """How many nodes are hidden from inference because the type of their operand is not known."""
    return sum(node.op in READING_TYPES and may_end_the_process(node) for node in model.nodes())


def _infer_all(model: Model, ops: Set[str], data_prop: bool) -> None:
    behind = any(map(knows, ops))
    if behind:
        _forget(model)
    data_prop = data_prop and not contents_may_explode(model)
    skeleton = Skeleton(model)
    if data_prop and may_make_vectors(model):
        lengths = _infer(model, skeleton, data_prop=False)
        data_prop = lengths is not None and not (
            follows_long_vectors(lengths.graph, longest_vector(model)) or may_follow_products(model, lengths.graph)
        )
    result = _infer(model, skeleton, data_prop)
    if result is None:
        result = _infer(model, skeleton := Skeleton(model, output_types=False), data_prop)
    if result is not None and skeleton.seeds and _stale(model.graph, result.graph):
        skeleton = Skeleton(model, output_types=False, seed_dims=False)
        result = _infer(model, skeleton, data_prop)
    writer = _Writer(model, skeleton.seeds)
    writer.write(result)
    if result is None:
        _infer_each(model.graph)
        return
    if behind or model.opset() >= _BROADCASTING:
        _infer_further(writer.left)
    if "Loop" in ops:
        # The standard's inference does not infer shapes of loop-carried values.
        ShapeAnalysis(model, zero_sizes=True).refine()


def _forget(model: Model) -> None:
    """Drop types that our own rules derived earlier for operators that inference does not know, to derive them again.

    Their generated symbols are from an earlier inference, and no other value would have them now.
    """
    for node in model.nodes():
        if not knows(node.op) or not any(map(_has_given_names, node.results)):
            continue
        for value, again in zip(node.outputs, infer_by_rules(node), strict=True):
            if value is not None and value.declared is None and isinstance(again, TensorType):
                value.type = None


def _has_given_names(value: Value) -> bool:
    return any(isinstance(dim, str) and dim.startswith(GENERATED) for dim in value.shape or ())


_BROADCASTING = 7
"""The first opset whose operators broadcast like our shape rules."""
_MOST_ROUNDS = 16
"""Most rounds of removing doubtful shapes; removing their consequences seldom reveals more."""


def _infer(model: Model, skeleton: Skeleton, data_prop: bool) -> onnx.ModelProto | None:
    """The inferred model, or None if inference fails on the whole model."""
    try:
        apart = data_prop and names_meet(model)
        for _ in range(_MOST_ROUNDS):
            result = _inferred_apart(skeleton.proto) if apart else _inferred(skeleton.proto, data_prop)
            if not stop_doubts(model.graph, skeleton.proto.graph, result.graph):
                return result
        return None
    except Exception:
        # The C++ side raises many types: InferenceError, RuntimeError, ValidationError, IndexError.
        return None


def _inferred(proto: onnx.ModelProto, data_prop: bool) -> onnx.ModelProto:
    return onnx.ModelProto.FromString(shape_inference.infer_shapes(proto.SerializeToString(), False, False, data_prop))


def _inferred_apart(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Infer with contents a model whose subgraphs share names of values."""
    asked = onnx.ModelProto()
    asked.CopyFrom(proto)
    names = NamesApart(asked.graph)
    result = _inferred(asked, data_prop=True)
    names.undo(result.graph)
    return result


def _infer_each(graph: Graph) -> None:
    """Infer node by node, if inference failed on the model because of a single malformed node."""
    for node in graph:
        for value, value_type in zip(node.outputs, infer_node(node), strict=True):
            if value is not None and value_type is not None:
                value.type = value_type
        for subgraph in node.subgraphs.values():
            _infer_each(subgraph)


def _infer_further(nodes: Iterable[Node]) -> None:
    """Complete the standard's inference by our own rules.

    This runs for every model, whatever its operators are, so that a pass that adds an operator does not refine types of
    unrelated nodes. The standard's inference is called again for readers of values that are found, including readers
    of whose results only the rank was known.

    Args:
        nodes: the nodes for which inference left a shape unknown.
    """
    found: dict[Value, None] = {}
    for node in nodes:
        types = infer_by_rules(node) if found.keys().isdisjoint(node.operands) else infer_node(node)
        for value, value_type in zip(node.outputs, types, strict=True):
            if value is not None and value.shape is None and isinstance(value_type, TensorType):
                value.type = value_type
                found[value] = None
    told = list(found)
    for value in told:  # the loop appends to the list
        for reader in value.users:
            told += _told_by(reader)


def _told_by(node: Node) -> list[Value]:
    """Infer a node's results again, refine unknown sizes, and return the refined results."""
    if all(each.shape is None or all(map(is_told, each.shape)) for each in node.results):
        return []
    told = []
    for value, value_type in zip(node.outputs, infer_node(node), strict=True):
        old = value.shape if value is not None else None
        if value is None or old is None or not isinstance(value_type, TensorType):
            continue
        new = value_type.shape or ()
        if len(old) != len(new):
            continue
        merged = tuple([two if is_told(two) and not is_told(one) else one for one, two in zip(old, new, strict=True)])
        if merged != old:
            value.type = TensorType(value_type.dtype, merged)
            told.append(value)
    return told


def _stale(graph: Graph, result: onnx.GraphProto) -> bool:
    """Whether the declared shape of some value contradicts inference."""
    values = graph.values
    for info in (*result.value_info, *result.output):
        value = values.get(info.name)
        if value is None or value._info is None or value.producer is None:
            continue
        declared, inferred = decode_type(value._info.type), decode_type(info.type)
        if (
            isinstance(declared, TensorType)
            and isinstance(inferred, TensorType)
            and shapes_differ(declared.shape, inferred.shape)
        ):
            return True
    return False


class _Writer:
    """Writes inferred types to the values, with generated symbols that no earlier run used.

    Attributes:
        left: the nodes with results whose shape was not inferred, except those of functions; nodes of subgraphs
            precede their owner.
    """

    def __init__(self, model: Model, seeds: Iterable[Value]) -> None:
        self.model = model
        self.left: list[Node] = []
        self.names: dict[str, str] = {}
        self.decoded: dict[bytes, ValueType | None] = {}
        declared = (value.shape or () for value in (*model.graph.inputs, *seeds))
        self.taken = {dim for shape in declared for dim in shape if isinstance(dim, str)}

    def write(self, result: onnx.ModelProto | None) -> None:
        self.graph(self.model.graph, None if result is None else result.graph)
        left = list(self.left)
        for function in self.model.functions:
            self.graph(function, None)
        self.left = left

    def graph(self, graph: Graph, result: onnx.GraphProto | None) -> None:
        known: dict[str, onnx.TypeProto] = {}
        if result is not None:
            known = {info.name: info.type for info in _infos(result, inner=graph.owner is not None)}
        if graph.owner is not None or graph.is_function:
            for value in graph.inputs:
                self._set(value, known.get(value.name), trusted=False)
        protos: Sequence[Any] = result.node if result is not None else ()
        if len(protos) > len(graph):
            protos = [proto for proto in protos if proto.op_type != STOP]
        decode = self._decode
        for number, node in enumerate(graph):
            constant, is_left = node.op == "Constant", False
            for output in node.outputs:
                if output is None:
                    continue
                proto = None if constant else known.get(output.name)
                if proto is None:
                    self._set(output, None, trusted=_opaque(node))
                    is_left = is_left or output.shape is None
                else:
                    output._defer_type(decode, proto)
                    tensor = proto.tensor_type
                    is_left = is_left or not tensor.HasField("shape") or tensor.elem_type not in KNOWN_TYPES
            if node.subgraphs:
                graphs = {a.name: a.g for a in protos[number].attribute} if result is not None else {}
                for name, subgraph in node.subgraphs.items():
                    self.graph(subgraph, graphs.get(name))
            if is_left:
                self.left.append(node)

    def _set(self, value: Value, proto: onnx.TypeProto | None, *, trusted: bool) -> None:
        tensor = value.constant_tensor
        if tensor is not None:
            if value.producer is not None:
                value.type = TensorType(tensor.dtype, tensor.dims)
        elif proto is not None:
            value._defer_type(self._decode, proto)
        elif not trusted:
            value.type = None

    def _decode(self, proto: onnx.TypeProto) -> ValueType | None:
        """Decode a type on first use, since most are never used; equal types are one object."""
        key = proto.SerializeToString()
        found = self.decoded.get(key)
        if found is None:
            found = self.decoded[key] = self._decode_new(proto)
        return found

    def _decode_new(self, proto: onnx.TypeProto) -> ValueType | None:
        inferred = decode_type(proto)
        if isinstance(inferred, TensorType):
            shape = inferred.shape
            if shape is not None and any(type(dim) is str for dim in shape):
                return TensorType(inferred.dtype, tuple(map(self._dim, shape)))
        elif inferred is not None:
            return decode_type(onnx.TypeProto.FromString(inferred.SerializeToString()))
        return inferred

    def _dim(self, dim: Dim) -> Dim:
        if not isinstance(dim, str) or not dim.startswith(GENERATED) or dim in self.taken:
            return dim
        name = self.names.get(dim)
        if name is None:
            number = _counters.get(self.model, 0)
            while f"{GENERATED}{number}" in self.taken:
                number += 1
            _counters[self.model] = number + 1
            name = self.names[dim] = f"{GENERATED}{number}"
        return name


def _infos(graph: onnx.GraphProto, *, inner: bool) -> Iterable[onnx.ValueInfoProto]:
    yield from graph.value_info
    yield from graph.output
    if inner:
        yield from graph.input


def _opaque(node: Node) -> bool:
    return not node.op.startswith("call ") and (node.schema is None or bool(node.domain))
