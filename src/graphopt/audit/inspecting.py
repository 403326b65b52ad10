"""A description of a model: its interface, operators, weights, and requirements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from graphopt.analysis import infer_types
from graphopt.audit.columns import size
from graphopt.ir import Graph, Model, Source, Tensor, TensorType, Value, ValueType, captured_values, shown_op
from graphopt.ir.messages import as_text
from graphopt.showing import Shown
from graphopt.system.machine import METADATA_KEY

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

_STANDARD = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview.training")
_RUNTIME = ("com.microsoft", "com.microsoft.nchwc")


@dataclass(slots=True)
class Inspection(Shown):
    """A model in words and numbers.

    Attributes:
        producer: the program that wrote it, with the version.
        ir_version: the IR version.
        opsets: the version of each operator domain that it imports.
        inputs: type of each required input, by name.
        optional_inputs: type of each input with a default.
        outputs: type of each output, by name.
        symbols: names of the symbolic dimensions.
        nodes: nodes in all graphs.
        operators: the count of each operator, most frequent first.
        subgraphs: number of subgraphs of control flow operators.
        functions: model-local functions.
        parameters: elements of all weights: initializers and tensors of `Constant` nodes.
        weights: bytes of weights by element type.
        outside: bytes of weights in external files.
        denormals: denormal weights, with which processors compute slowly.
        peak: the most bytes of values that are live at once, with symbolic dimensions taken as 1; None if sizes are
            unknown.
        needs: the requirements to run it.
        metadata: the model's metadata.
    """

    producer: str
    ir_version: int
    opsets: dict[str, int]
    inputs: dict[str, str]
    optional_inputs: dict[str, str]
    outputs: dict[str, str]
    symbols: list[str]
    nodes: int
    operators: dict[str, int]
    subgraphs: int
    functions: int
    parameters: int
    weights: dict[str, int]
    outside: int
    denormals: int
    peak: int | None
    needs: list[str]
    metadata: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {"schema": 1, **asdict(self)}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.table import Table

        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for title, text in self.rows():
            table.add_row(title, text)
        yield table

    def rows(self) -> Iterator[tuple[str, str]]:
        """Title and text of each printed line."""
        if self.producer:
            yield "written by", self.producer
        yield "versions", f"IR {self.ir_version}, " + ", ".join(f"{d or 'ai.onnx'} {v}" for d, v in self.opsets.items())
        for title, types in (("input", self.inputs), ("default", self.optional_inputs), ("output", self.outputs)):
            yield from ((title, f"{name}: {stated}") for name, stated in types.items())
        if self.symbols:
            yield "not fixed", ", ".join(self.symbols)
        bodies = [_several(self.subgraphs, "body", "bodies") + " of control flow"] if self.subgraphs else []
        functions = [_several(self.functions, "function", "functions")] if self.functions else []
        inner = f", those of {' and '.join([*bodies, *functions])} included" if bodies or functions else ""
        yield "nodes", f"{self.nodes:,}{inner}"
        yield "operators", ", ".join(f"{op} {count}" for op, count in self.operators.items())
        by_type = ", ".join(f"{kind} {size(count)}" for kind, count in self.weights.items())
        outside = f"; {size(self.outside)} in files of their own" if self.outside else ""
        yield "weights", f"{self.parameters:,} elements: {by_type}{outside}" if self.parameters else "none"
        if self.denormals:
            yield "denormal", f"{self.denormals:,} weights: slow on many processors; level basic sets them to zero"
        yield "memory", self._memory()
        yield from (("needs", need) for need in self.needs)
        yield from (("metadata", f"{key}: {value}") for key, value in self.metadata.items())

    def _memory(self) -> str:
        if self.peak is None:
            return "sizes are not all known"
        return f"{size(self.peak)} of values at once" + (", with 1 for what is not fixed" if self.symbols else "")


def inspect(source: Source) -> Inspection:
    """Describe a model.

    Args:
        source: the model.

    Raises:
        ModelError: it cannot be read.
    """
    model = Model.load(source, opaque="missing")
    proto, graph = model.proto, model.graph
    ends = [*graph.inputs, *graph.outputs]
    declared = {value: value.type for value in ends if isinstance(value.type, TensorType)}
    infer_types(model)
    defaults = {value.name: value for value in graph.defaults}
    given = [value for value in graph.inputs if value.name not in defaults]
    weights: Counter[str] = Counter()
    tensors = list(_tensors(model))
    for tensor in tensors:
        weights[_type_name(tensor.dtype)] += tensor.nbytes
    given_names = {d for stated in declared.values() for d in stated.shape or () if isinstance(d, str)}
    types = {value: _interface(value, declared.get(value), given_names) for value in ends}
    symbols = {d for stated in types.values() if isinstance(stated, TensorType) for d in stated.shape or ()}
    return Inspection(
        producer=" ".join(as_text(each) for each in (proto.producer_name, proto.producer_version) if each),
        ir_version=model.ir_version,
        opsets={each.domain: each.version for each in proto.opset_import},
        inputs={value.name: _stated(types[value]) for value in given},
        optional_inputs={value.name: _stated(types[value]) for value in defaults.values()},
        outputs={value.name: _stated(types[value]) for value in graph.outputs},
        symbols=sorted(d for d in symbols if isinstance(d, str)),
        nodes=sum(1 for _ in model.nodes()),
        operators=dict(Counter(shown_op(node.op) for node in model.nodes()).most_common()),
        subgraphs=sum(1 for _ in model.graphs()) - 1 - len(model.functions),
        functions=len(model.functions),
        parameters=sum(tensor.numel for tensor in tensors),
        weights=dict(weights.most_common()),
        outside=sum(tensor.nbytes for tensor in tensors if _is_outside(tensor.original)),
        denormals=sum(_denormals(tensor.array()) for tensor in tensors if _is_read(tensor)),
        peak=_peak(graph),
        needs=_needs(model),
        metadata={as_text(key): as_text(value) for key, value in model.metadata.items()},
    )


def _several(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"


def _tensors(model: Model) -> Iterator[Tensor]:
    """All weights, in initializers and attributes."""
    for graph in model.graphs():
        yield from (value.tensor for value in graph.initializers if value.tensor is not None)
    for node in model.nodes():
        if node.op == "Constant" and (tensor := node.constant_tensor()) is not None:
            yield tensor


def _type_name(dtype: int) -> str:
    return TensorProto.DataType.Name(dtype).lower() if dtype in TensorProto.DataType.values() else f"type {dtype}"


def _interface(value: Value, declared: TensorType | None, names: Container[str]) -> ValueType | None:
    """The type that a caller sees: inferred sizes, else the declared ones, without symbols that inference made up.

    The result of an unknown operator has only its declared type.
    """
    inferred = value.type
    if not isinstance(inferred, TensorType) or inferred.shape is None:
        return declared or inferred
    stated = declared.shape if declared is not None and declared.rank == inferred.rank else None
    dims = zip(inferred.shape, stated or (None,) * len(inferred.shape), strict=True)
    shape = tuple(d if isinstance(d, int) or (said is None and d in names) else said for d, said in dims)
    return replace(inferred, shape=shape)


def _stated(stated: ValueType | None) -> str:
    if not isinstance(stated, TensorType):
        return "unknown" if stated is None else str(stated.WhichOneof("value"))
    dims = "?" if stated.shape is None else ",".join("?" if dim is None else str(dim) for dim in stated.shape)
    return f"{_type_name(stated.dtype)}[{dims}]"


def _is_outside(original: TensorProto | None) -> bool:
    return original is not None and original.data_location == TensorProto.EXTERNAL


def _is_read(tensor: Tensor) -> bool:
    return tensor.dtype == TensorProto.FLOAT and not tensor.is_opaque


def _denormals(array: np.ndarray[Any, Any]) -> int:
    magnitude = np.abs(array)
    return int(np.count_nonzero((magnitude > 0) & (magnitude < np.finfo(np.float32).tiny)))


def _peak(graph: Graph) -> int | None:
    """The most bytes of values that are live at once, with nodes in order, symbols taken as 1, and without weights."""
    nodes = [node for node in graph if node.op != "Constant"]
    reads = [{*node.inputs, *captured_values(node)} for node in nodes]
    last = {value: number for number, values in enumerate(reads) for value in values}
    alive = most = sum(_bytes(value) or 0 for value in graph.inputs if value.tensor is None)
    for number, node in enumerate(nodes):
        sizes = [_bytes(value) for value in node.outputs if value is not None]
        if any(each is None for each in sizes):
            return None
        alive += sum(filter(None, sizes))
        most = max(most, alive)
        for value in {*reads[number], *node.outputs}:
            if value is None or value.is_const or value.tensor is not None:
                continue
            if last.get(value, number) == number and not value.is_output and value.graph is graph:
                alive -= _bytes(value) or 0
    return most


def _bytes(value: Value) -> int | None:
    return value.type.least_nbytes if isinstance(value.type, TensorType) else None


def _needs(model: Model) -> list[str]:
    domains = {node.domain for node in model.nodes()}
    needs = []
    if set(_RUNTIME) & domains:
        needs.append("ONNX Runtime: operators of " + ", ".join(sorted(set(_RUNTIME) & domains)))
    if METADATA_KEY in model.metadata:
        needs.append(f"a machine of kind {model.metadata[METADATA_KEY]}")
    called = {graph.name for graph in model.functions}  # a domain can have functions and other operators
    unknown = {node.domain for node in model.nodes() if shown_op(node.op) not in called}
    custom = sorted(unknown - set(_STANDARD) - set(_RUNTIME))
    if custom:
        needs.append(f"libraries of operators of {', '.join(custom)}")
    return needs
