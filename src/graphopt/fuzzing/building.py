"""Grows a model node by node. Each node is run before it is kept, so the model is valid by construction."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from graphopt.fuzzing.drawing import Draw
from graphopt.verify.inference import too_large
from graphopt.verify.runners import CannotLoadError, OrtRunner, RunError
from graphopt.verify.source import Source, read_by
from graphopt.verify.values import Array

MOST_ELEMENTS = 4096
"""Of one value: larger ones take time and reveal nothing more."""

FRAGILE = frozenset({
    "Einsum", "GRU", "InstanceNormalization", "LSTM", "RNN", "STFT", "Scan", "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization",
})  # fmt: skip
"""Operators on which the runtime may end the process if a tensor is empty."""

_LOOP_SECONDS = 5.0
_LONGEST = 1 << 22

_STYLES: tuple[Callable[[str, int], str], ...] = (
    lambda op, n: f"v{n}",
    lambda op, n: f"{n}",
    lambda op, n: f"/layer/{op}_{n}/{op}_output_0",
    lambda op, n: f"{op.lower()}_{n}",
    lambda op, n: f"v{n % 7}_{n // 7}",
    lambda op, n: f"größe {n}",
)


def element_type(array: Array) -> int:
    """The ONNX element type of an array."""
    return TensorProto.STRING if array.dtype.kind in "OSU" else int(helper.np_dtype_to_tensor_dtype(array.dtype))


_LONG_LIST = 1 << 16
"""Elements; with 2^24 of them inference took 4 s."""


def stored(array: Array, name: str) -> TensorProto:
    """An array as a `TensorProto`."""
    if array.dtype.kind in "OSU":
        words: Any = [str(s).encode() for s in array.reshape(-1)]
        return helper.make_tensor(name, TensorProto.STRING, array.shape, words)
    return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)


def makeshift(
    nodes: Iterable[NodeProto], tensors: Iterable[TensorProto], outputs: Sequence[str], imports: Iterable[Any],
    functions: Iterable[onnx.FunctionProto] = (),
) -> onnx.ModelProto:  # fmt: skip
    """A model without inputs whose outputs are of any type, to run nodes on known values."""
    infos = [helper.make_value_info(name, onnx.TypeProto()) for name in outputs]
    graph = helper.make_graph(list(nodes), "eager", [], infos, list(tensors))
    model = helper.make_model(graph, opset_imports=list(imports), ir_version=10)
    model.functions.extend(functions)
    return model


def prune(graph: onnx.GraphProto) -> set[str]:
    """Remove the nodes, constants and inputs that no output needs. Returns the names that remain."""
    needed = {info.name for info in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed |= set(read_by(node))
    nodes = [NodeProto.FromString(node.SerializeToString()) for node in reversed(kept)]
    tensors = [t for t in graph.initializer if t.name in needed]
    infos = [i for i in graph.input if i.name in needed]
    graph.CopyFrom(helper.make_graph(nodes, "g", infos, graph.output, tensors))
    return needed


def evaluate(model: onnx.ModelProto, inferred: onnx.ModelProto | None = None) -> list[Any] | None:
    """The outputs of a model without inputs; None if the runtime rejects it.

    Args:
        model: the model.
        inferred: the model with inferred types, if it is known already.
    """
    if too_large(model, inferred) is not None or _counts_long(model):
        return None
    try:
        runner = OrtRunner(Source(model, "eager"))
        if not any(node.op_type == "Loop" for node in model.graph.node):
            return runner.run({})
        timer = threading.Timer(_LOOP_SECONDS, runner.stop)  # random loops may run for years
        timer.start()
        try:
            return runner.run({})
        finally:
            timer.cancel()
    except (CannotLoadError, RunError):
        return None


def _counts_long(model: onnx.ModelProto) -> bool:
    """Whether a `Range` of constants is longer than any useful one; inference computes its length in 32 bits."""
    given = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Range" and all(name in given for name in node.input):
            numbers = [float(each) for name in node.input for each in numpy_helper.to_array(given[name]).flat[:1]]
            if len(numbers) == len(node.input) and numbers[2]:
                start, limit, step = numbers
                if abs(limit - start) > _LONGEST * abs(step):
                    return True
    return False


def as_standard(model: onnx.ModelProto, outputs: Sequence[Any]) -> bool:
    """Whether outputs have the shapes that ONNX's inference computes; the runtime deviates for some operators.

    Args:
        model: a model without inputs.
        outputs: its outputs.
    """
    inferred = strictly_inferred(model)
    return inferred is not None and agree(inferred, outputs)


def strictly_inferred(model: onnx.ModelProto, *, check_type: bool = True) -> onnx.ModelProto | None:
    """The model with all inferred types; None if inference rejects it."""
    follows = not _fills_long_lists(model)
    try:
        return onnx.shape_inference.infer_shapes(model, check_type=check_type, strict_mode=True, data_prop=follows)
    except Exception:  # invalid models raise many kinds of errors
        return None


def _fills_long_lists(model: onnx.ModelProto) -> bool:
    """Whether a list is so long that inference, which propagates each element, takes seconds."""
    lengths = {name for node in model.graph.node if node.op_type == "ConstantOfShape" for name in node.input[:1]}
    given = [tensor for tensor in model.graph.initializer if tensor.name in lengths] if lengths else []
    sizes = [tensor for tensor in given if tensor.data_type == TensorProto.INT64 and tuple(tensor.dims) == (1,)]
    return any(numpy_helper.to_array(tensor).max() > _LONG_LIST for tensor in sizes)


def agree(inferred: onnx.ModelProto, outputs: Sequence[Any]) -> bool:
    """Whether outputs have the shapes that an inferred model states."""
    for info, output in zip(inferred.graph.output, outputs, strict=True):
        tensor = info.type.tensor_type
        if info.type.WhichOneof("value") != "tensor_type" or not tensor.HasField("shape"):
            continue
        shape = np.shape(output)
        if len(tensor.shape.dim) != len(shape):
            return False
        if any(d.HasField("dim_value") and d.dim_value != n for d, n in zip(tensor.shape.dim, shape, strict=True)):
            return False
    return True


def computed(model: onnx.ModelProto, count: int, most: int) -> list[Array] | None:
    """The first outputs of a model without inputs.

    Args:
        model: the model.
        count: the number of outputs, all of them tensors.
        most: the largest number of elements of each.

    Returns:
        The arrays; None if the model is invalid, does not run, or its shapes differ from the inferred ones.
    """
    inferred = strictly_inferred(model)
    if inferred is None:
        return None
    found = evaluate(model, inferred)
    if found is None or not agree(inferred, found):
        return None
    arrays = [np.asarray(each) for each in found[:count] if not isinstance(each, (list, dict)) and each is not None]
    return arrays if len(arrays) == count and all(a.size <= most for a in arrays) else None


class Planted(NamedTuple):
    """A golden case embedded in a model.

    Attributes:
        values: names of the values that its nodes compute.
        form: equal for cases that differ only in names and in the elements of their weights.
    """

    values: frozenset[str]
    form: int


@dataclass(slots=True)
class Sample:
    """A model and its feeds.

    Attributes:
        model: the model.
        feeds: its inputs; the first feed holds ordinary numbers.
        kind: how it was made.
        seed: the seed it was made from.
        rules: the passes whose golden cases it begins with.
        planted: the golden cases in it, by name.
        target: the target of its cases, if they name one.
        settings: the settings of passes for its cases, as JSON.
    """

    model: onnx.ModelProto
    feeds: list[dict[str, Array]]
    kind: str = ""
    seed: str = ""
    rules: tuple[str, ...] = ()
    planted: dict[str, Planted] = field(default_factory=dict)
    target: str = ""
    settings: str = ""


@dataclass(slots=True)
class Builder:
    """Grows one model.

    Attributes:
        draw: the source of all choices.
        opset: the standard opset.
        held: the values so far by name, each with its array on the first feed.
        order: their names, the latest last, without constants.
        nodes: the nodes.
        tensors: the initializers.
        inputs: names of the graph inputs, those of overridable initializers included.
        domains: other domains and their versions.
        functions: model-local functions.
        tried: operators that were tried.
        opaque: sequences and other values that are not tensors, with their types; they become outputs of the model.
        rules: the passes whose golden cases it begins with.
        planted: the golden cases in it, by name.
        metadata: the model's metadata.
        declared: types of inputs whose sizes are dynamic in their golden case.
        woven: whether random operators may follow.
    """

    draw: Draw
    opset: int
    held: dict[str, Array] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    nodes: list[NodeProto] = field(default_factory=list)
    tensors: list[TensorProto] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    domains: dict[str, int] = field(default_factory=dict)
    functions: list[onnx.FunctionProto] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    opaque: dict[str, onnx.TypeProto] = field(default_factory=dict)
    rules: list[str] = field(default_factory=list)
    planted: dict[str, Planted] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    declared: dict[str, onnx.TypeProto] = field(default_factory=dict)
    woven: bool = True
    _count: int = 0
    _style: int = -1

    def name(self, op: str = "v") -> str:
        """A name that is not taken, in the style of some exporter."""
        if self._style < 0:
            self._style = self.draw.rng.randrange(len(_STYLES))
        self._count += 1
        return _STYLES[self._style](op, self._count)

    # -- values

    def pick(self, fits: Callable[[Array], bool] = lambda _: True) -> str | None:
        """One of the values so far that fits, late ones more likely; None if there is none."""
        small = [name for name in self.order if self.held[name].size <= MOST_ELEMENTS]
        found = [name for name in small if fits(self.held[name])]
        if not found:
            return None
        return found[-1 - min(int(self.draw.rng.expovariate(0.45)), len(found) - 1)]

    def input(self, array: Array) -> str:
        """A graph input."""
        name = self.name("x")
        self.inputs.append(name)
        self._hold(name, array)
        return name

    def constant(self, array: Array) -> str:
        """A constant: an initializer, one that the caller may override, a node, or an equal one that exists already."""
        kind = element_type(array)
        for tensor in self.tensors:
            same = tensor.data_type == kind and tuple(tensor.dims) == array.shape
            if same and self.draw.chance(0.3) and np.array_equal(self.held[tensor.name], array):
                return tensor.name
        name = self.name("w")
        self.held[name] = array
        lot = self.draw.rng.random()
        if lot < 0.2 and self.opset >= 7:
            self.nodes.append(helper.make_node("Constant", [], [name], value=stored(array, "")))
        else:
            self.tensors.append(stored(array, name))
            if lot > 0.95:
                self.inputs.append(name)
        return name

    def _hold(self, name: str, array: Array) -> None:
        self.held[name] = array
        self.order.append(name)

    # -- nodes

    def emit(
        self, op: str, inputs: Sequence[str], attrs: dict[str, Any] | None = None, *, outputs: int = 1,
        domain: str = "",
    ) -> list[str] | None:  # fmt: skip
        """Add a node, if it runs; returns the names of its outputs."""
        given = list(inputs)
        while given and not given[-1]:
            given.pop()
        names = [self.name(op) for _ in range(outputs)]
        node = helper.make_node(op, given, names, domain=domain)
        node.name = "" if self.draw.chance(0.3) else names[0]
        for key, value in (attrs or {}).items():
            kind = onnx.AttributeProto.INTS if value == [] else None
            node.attribute.append(helper.make_attribute(key, value, attr_type=kind))
        if domain:
            self.domains.setdefault(domain, 1)
        return names if self.extend([node], names) else None

    def extend(
        self, nodes: Sequence[NodeProto], results: Sequence[str], tensors: Sequence[TensorProto] = (), *,
        opaque: Mapping[str, onnx.TypeProto] | None = None, most: int = MOST_ELEMENTS,
    ) -> bool:  # fmt: skip
        """Add nodes with their constants, if they run.

        Args:
            nodes: the nodes.
            results: those of their outputs that later nodes may read.
            tensors: their constants.
            opaque: their other outputs, which are not tensors.
            most: the largest number of elements of a result.
        """
        self.tried.extend(f"{node.domain}::{node.op_type}" if node.domain else node.op_type for node in nodes)
        own = {tensor.name for tensor in tensors}
        read = {name for node in nodes for name in read_by(node)} & self.held.keys() - own
        given = [*tensors, *(stored(self.held[name], name) for name in sorted(read))]
        if any(0 in tensor.dims for tensor in given) and any(node.op_type in FRAGILE for node in nodes):
            return False
        model = makeshift(nodes, given, [*results, *(opaque or {})], self.imports(), self.functions)
        arrays = computed(model, len(results), most)
        if arrays is None:
            return False
        self.opaque.update(opaque or {})
        self.nodes.extend(nodes)
        self.tensors.extend(tensors)
        self.held.update((tensor.name, numpy_helper.to_array(tensor)) for tensor in tensors)
        for name, array in zip(results, arrays, strict=True):
            self._hold(name, array)
        return True

    def imports(self) -> list[onnx.OperatorSetIdProto]:
        """The opsets."""
        domains = {"": self.opset, **self.domains}
        return [helper.make_opsetid(domain, version) for domain, version in domains.items()]


def made_by(node: NodeProto) -> set[str]:
    """Names of the values that a node and the nodes of its subgraphs compute."""
    found = set(node.output)
    for attribute in node.attribute:
        for inner in attribute.g.node:
            found |= made_by(inner)
    return found - {""}
