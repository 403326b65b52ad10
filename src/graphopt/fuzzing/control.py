"""Small random graphs with loops, branches, scans, sequences and optionals; equal seeds give equal models."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

SIZE = 3
"""Every tensor is a vector of this length, so that any value can be read anywhere."""

_UNARY = ("Neg", "Abs", "Relu", "Identity", "Sin", "Tanh")
_BINARY = ("Add", "Sub", "Mul", "Max")
_INT = TensorProto.INT64


@dataclass(slots=True)
class Scope:
    """A graph under construction.

    Attributes:
        values: vectors visible here, including those of outer graphs.
        conditions: booleans visible here.
        nodes: nodes so far.
        initializers: initializers so far.
    """

    values: list[str]
    conditions: list[str]
    nodes: list[NodeProto] = field(default_factory=list)
    initializers: list[TensorProto] = field(default_factory=list)

    def inner(self) -> Scope:
        """A subgraph of this graph."""
        return Scope(list(self.values), list(self.conditions))


class ControlWriter:
    """Writes one model.

    Attributes:
        rng: the source of all choices.
        opset: the standard opset.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.opset = self.rng.choice([12, 13, 16, 17, 18, 21])
        self.count = 0

    def name(self, base: str = "v") -> str:
        """A name that is not taken, or sometimes one that an earlier subgraph uses too."""
        self.count += 1
        return f"{base}{self.count}"

    def sometimes(self, chance: float = 0.5) -> bool:
        """True with this probability."""
        return self.rng.random() < chance

    def constant(self, scope: Scope, array: np.ndarray) -> str:
        """A constant: an initializer or a node."""
        name = self.name("k")
        tensor = numpy_helper.from_array(array, name)
        if self.sometimes(0.7):
            scope.initializers.append(tensor)
        else:
            scope.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        return name

    def add(self, scope: Scope, op: str, inputs: list[str], outputs: int = 1, **attrs: Any) -> list[str]:
        """A node; returns the names of its outputs."""
        names = [self.name() for _ in range(outputs)]
        scope.nodes.append(helper.make_node(op, inputs, names, **attrs))
        return names

    def pick(self, scope: Scope) -> str:
        """A vector, late ones more likely."""
        values = scope.values
        return values[-1 - min(int(self.rng.expovariate(0.4)), len(values) - 1)]

    def integer(self, scope: Scope, number: int) -> str:
        """A constant integer."""
        return self.constant(scope, np.array(number, np.int64))

    def condition(self, scope: Scope) -> str:
        """A boolean: constant, an input, negated or computed."""
        kind = self.rng.random()
        if kind < 0.25:
            return self.constant(scope, np.array(self.sometimes()))
        if kind < 0.55 and scope.conditions:
            name = self.rng.choice(scope.conditions)
            return self.add(scope, "Not", [name])[0] if self.sometimes(0.4) else name
        first = self.add(scope, "Gather", [self.pick(scope), self.integer(scope, 0)], axis=0)[0]
        name = self.add(scope, "Less", [first, self.constant(scope, np.array(0.1, np.float32))])[0]
        scope.conditions.append(name)
        return name

    # ------------------------------------------------------------------ steps

    def step(self, scope: Scope, depth: int) -> None:
        """Add one construct to a graph."""
        steps = [self.plain, self.plain, self.plain]
        if depth:
            steps += [self.branch, self.loop, self.scan, self.sequence, self.optional]
        self.rng.choice(steps)(scope, depth - 1)

    def plain(self, scope: Scope, depth: int) -> None:
        """An elementwise operator."""
        if self.sometimes():
            scope.values += self.add(scope, self.rng.choice(_UNARY), [self.pick(scope)])
            return
        other = self.pick(scope)
        if self.sometimes(0.3):
            other = self.constant(scope, np.array([self.rng.choice([-1, 0, 1, 2]) for _ in range(SIZE)], np.float32))
        scope.values += self.add(scope, self.rng.choice(_BINARY), [self.pick(scope), other])

    def body(self, scope: Scope, depth: int, results: int) -> list[str]:
        """Fill a graph; returns its outputs, which are always values of its own."""
        for _ in range(self.rng.randint(0, 3)):
            self.step(scope, depth)
        return [self.add(scope, self.rng.choice(_UNARY), [self.pick(scope)])[0] for _ in range(results)]

    def graph(self, scope: Scope, inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]) -> GraphProto:
        """The proto of a subgraph."""
        return helper.make_graph(scope.nodes, self.name("g"), inputs, outputs, scope.initializers)

    def branch(self, scope: Scope, depth: int) -> None:
        """An `If` with one or two results."""
        condition = self.condition(scope)
        results = self.rng.choice([1, 1, 2])
        graphs = {}
        for key in ("then_branch", "else_branch"):
            inner = scope.inner()
            outputs = [_vector(name) for name in self.body(inner, depth, results)]
            graphs[key] = self.graph(inner, [], outputs)
        scope.values += self.add(scope, "If", [condition], results, **graphs)

    def loop(self, scope: Scope, depth: int) -> None:
        """A `Loop`: fixed or computed trip count; states that are changed, swapped or passed through; scan outputs."""
        states = self.rng.randint(1, 3)
        stacked = self.rng.choice([0, 0, 1, 2])
        inner = scope.inner()
        names = [self.name("s") for _ in range(states)]
        counter, goes_on = self.name("i"), self.name("c")
        inner.values += names
        inner.conditions.append(goes_on)
        if self.sometimes():
            as_float = self.add(inner, "Cast", [counter], to=TensorProto.FLOAT)[0]
            inner.values += self.add(inner, "Add", [as_float, self.rng.choice(names)])
        made = self.body(inner, depth, states + stacked)
        for k in range(states):
            if self.sometimes(0.4):
                made[k] = self.add(inner, "Identity", [self.rng.choice(names)])[0]
        limit = self.rng.choice([0, 1, 2, 3])
        ends = self.rng.random()
        if ends < 0.5:
            after = self.add(inner, "Identity", [goes_on])[0]
        elif ends < 0.8:
            after = self.add(inner, "Less", [counter, self.integer(inner, self.rng.randint(0, 3))])[0]
        else:
            after = self.add(inner, "Not", [self.condition(inner)])[0]
        inputs = [_scalar(counter, _INT), _scalar(goes_on, TensorProto.BOOL), *map(_vector, names)]
        outputs = [_scalar(after, TensorProto.BOOL), *map(_vector, made)]
        operands = [
            self.integer(scope, limit),
            ""
            if self.sometimes(0.3)
            else self.condition(scope)
            if self.sometimes(0.3)
            else self.constant(scope, np.array(True)),
            *(self.pick(scope) for _ in range(states)),
        ]
        results = self.add(scope, "Loop", operands, states + stacked, body=self.graph(inner, inputs, outputs))
        scope.values += results[:states]
        for name in results[states:]:
            scope.values += self.reduce(scope, name)

    def scan(self, scope: Scope, depth: int) -> None:
        """A `Scan` over a matrix built from vectors, along either axis and in either direction."""
        rows = self.rng.randint(1, 3)
        axis = self.rng.choice([0, 0, 1])
        pieces = [self.unsqueeze(scope, self.pick(scope), axis) for _ in range(rows)]
        matrix = self.add(scope, "Concat", pieces, axis=axis)[0]
        inner = scope.inner()
        state, element = self.name("s"), self.name("e")
        inner.values += [state, element]
        made = self.body(inner, depth, 2)
        graph = self.graph(inner, [_vector(state), _vector(element)], [_vector(name) for name in made])
        attrs = {"scan_input_axes": [axis], "scan_input_directions": [self.rng.randint(0, 1)]}
        attrs |= {"scan_output_axes": [self.rng.choice([0, 1])], "scan_output_directions": [self.rng.randint(0, 1)]}
        attrs = {name: value for name, value in attrs.items() if name == "scan_input_axes" or self.sometimes()}
        final, collected = self.add(
            scope, "Scan", [self.pick(scope), matrix], 2, body=graph, num_scan_inputs=1, **attrs
        )
        scope.values.append(final)
        if attrs.get("scan_output_axes") != [1]:
            scope.values += self.reduce(scope, collected)

    def sequence(self, scope: Scope, depth: int) -> None:
        """A sequence, changed a few times, and values read from it."""
        elements = [self.pick(scope) for _ in range(self.rng.randint(1, 3))]
        count = len(elements)
        name = self.add(scope, "SequenceConstruct", elements)[0]
        for _ in range(self.rng.randint(0, 3)):
            if self.sometimes() and count > 1:
                at = [self.integer(scope, self.rng.randint(-count, count - 1))] if self.sometimes() else []
                name = self.add(scope, "SequenceErase", [name, *at])[0]
                count -= 1
            else:
                at = [self.integer(scope, self.rng.randint(-count, count))] if self.sometimes() else []
                name = self.add(scope, "SequenceInsert", [name, self.pick(scope), *at])[0]
                count += 1
        if self.sometimes(0.7):
            place = self.integer(scope, self.rng.randint(-count, count - 1))
            scope.values += self.add(scope, "SequenceAt", [name, place])
        if self.sometimes(0.4):
            joined = self.add(scope, "ConcatFromSequence", [name], axis=0, new_axis=1)[0]
            scope.values += self.reduce(scope, joined)
        if self.sometimes(0.3):
            length = self.add(scope, "SequenceLength", [name])[0]
            as_float = self.add(scope, "Cast", [length], to=TensorProto.FLOAT)[0]
            scope.values += self.add(scope, "Add", [self.pick(scope), as_float])

    def optional(self, scope: Scope, depth: int) -> None:
        """An optional that has a value."""
        if self.opset < 16:
            return
        name = self.add(scope, "Optional", [self.pick(scope)])[0]
        scope.values += self.add(scope, "OptionalGetElement", [name])
        scope.conditions += self.add(scope, "OptionalHasElement", [name])

    def unsqueeze(self, scope: Scope, name: str, axis: int) -> str:
        """The vector with one more axis."""
        if self.opset < 13:
            return self.add(scope, "Unsqueeze", [name], axes=[axis])[0]
        return self.add(scope, "Unsqueeze", [name, self.constant(scope, np.array([axis], np.int64))])[0]

    def reduce(self, scope: Scope, name: str) -> list[str]:
        """A matrix as a vector again."""
        if self.opset < 13:
            return self.add(scope, "ReduceSum", [name], axes=[0], keepdims=0)
        return self.add(scope, "ReduceSum", [name, self.constant(scope, np.array([0], np.int64))], keepdims=0)

    def model(self, steps: int) -> onnx.ModelProto:
        """The whole model."""
        scope = Scope(["x", "z"], ["q"])
        for _ in range(steps):
            self.step(scope, 3)
        outputs = [name for name in dict.fromkeys([scope.values[-1], self.pick(scope)]) if name not in ("x", "z")]
        inputs = [_vector("x"), _vector("z"), _scalar("q", TensorProto.BOOL)]
        graph = helper.make_graph(scope.nodes, "main", inputs, list(map(_vector, outputs)), scope.initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


def _vector(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIZE])


def _scalar(name: str, dtype: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, [])


def random_control_model(seed: int, steps: int = 5) -> onnx.ModelProto:
    """A model that the checker accepts."""
    while True:
        model = ControlWriter(seed).model(steps)
        if model.graph.output:
            return model
        steps += 1


def as_function(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model as a function that is called twice; the second call reads the results of the first."""
    graph = model.graph
    constants = [helper.make_node("Constant", [], [t.name], value=t) for t in graph.initializer]
    names = [v.name for v in graph.input]
    result = graph.output[0].name
    imports = [helper.make_opsetid("", model.opset_import[0].version), helper.make_opsetid("local", 1)]
    function = helper.make_function("local", "f", names, [result], [*constants, *graph.node], imports[:1])
    calls = [
        helper.make_node("f", names, ["once"], domain="local"),
        helper.make_node("f", ["once", *names[1:]], [result], domain="local"),
    ]
    main = helper.make_graph(calls, "main", list(graph.input), list(graph.output)[:1])
    return helper.make_model(main, opset_imports=imports, functions=[function], ir_version=8)
