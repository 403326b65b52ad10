"""The compiled matchers agree with a naive reading of the same patterns, on random graphs and random patterns."""

from __future__ import annotations

import random

import numpy as np
import onnx
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from graphopt.errors import PassError
from graphopt.ir import Model, Node, Value
from graphopt.match import Attr, Const, Match, Opt, Rest, Var, compile_pattern
from tests.engine.match_oracle import solutions

BINARY, UNARY = ("Add", "Mul", "Sub", "Max"), ("Neg", "Relu", "Sigmoid")
SCALARS = {"half": 0.5, "one": 1.0, "free": 0.5}  # `free` is a graph input as well


def random_model(rng: random.Random) -> Model:
    """A few operators over few values, so that they meet often; with a subgraph that captures."""
    known = ["x", "z", *SCALARS]
    nodes = [random_node(rng, known, f"v{k}") for k in range(rng.randint(4, 12))]
    inner_known = list(known)
    inner = [random_node(rng, inner_known, f"w{k}") for k in range(3)]
    branch = helper.make_graph(inner, "branch", [], [_info(inner[-1].output[0])])
    nodes.append(helper.make_node("If", ["c"], ["chosen"], then_branch=branch, else_branch=branch_of_one(rng, known)))
    computed = [name for node in nodes for name in node.output]
    outputs = [*rng.sample(computed, min(2, len(computed))), nodes[-2].output[0]]
    inputs = [_info("x"), _info("z"), _info("free", []), helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    held = [numpy_helper.from_array(np.float32(value), name) for name, value in SCALARS.items()]
    graph = helper.make_graph(nodes, "g", inputs, [_info(name) for name in dict.fromkeys(outputs)], held)
    return Model.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))


def branch_of_one(rng: random.Random, known: list[str]) -> onnx.GraphProto:
    node = random_node(rng, list(known), "e0")
    return helper.make_graph([node], "other", [], [_info(node.output[0])])


def random_node(rng: random.Random, known: list[str], name: str) -> onnx.NodeProto:
    recent = lambda: rng.choice(known[-4:] if rng.random() < 0.7 else known)  # noqa: E731
    outputs = [name]
    match rng.choice(["binary"] * 5 + ["unary"] * 3 + ["softmax", "clip", "concat", "split", "constant"]):
        case "binary":
            node = helper.make_node(rng.choice(BINARY), [recent(), recent()], outputs)
        case "unary":
            node = helper.make_node(rng.choice(UNARY), [recent()], outputs)
        case "softmax":
            axis = rng.choice([{}, {"axis": -1}, {"axis": 0}])
            node = helper.make_node("Softmax", [recent()], outputs, **axis)
        case "clip":
            node = helper.make_node("Clip", [recent(), *rng.choice([[], ["half"], ["", "one"], [recent()]])], outputs)
        case "concat":
            node = helper.make_node("Concat", [recent() for _ in range(rng.randint(1, 3))], outputs, axis=0)
        case "split":
            outputs = [name, f"{name}b"]
            node = helper.make_node("Split", [recent()], outputs, num_outputs=2)
        case _:
            node = helper.make_node("Constant", [], outputs, value_float=rng.choice([0.5, 1.0]))
    known.extend(outputs)
    return node


def _info(name: str, shape=("N",)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))


class Lifter:
    """Makes a pattern of a node's surroundings, true to them most of the time: so there are hits and near misses."""

    def __init__(self, rng: random.Random, op) -> None:
        self.rng, self.op = rng, op
        self.leaves: dict[Value, Var | Const] = {}
        self.outputs: dict[Node, tuple] = {}
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"n{self.count}"

    def node(self, node: Node, depth: int) -> tuple:
        if node in self.outputs and self.rng.random() < 0.9:
            return self.outputs[node]
        inputs = [self.value(value, depth) for value in node.inputs]
        if len(inputs) == 2 and node.op in BINARY and self.rng.random() < 0.4:
            inputs.reverse()
        if node.op == "Clip":
            inputs = [inputs[0], *(i if i is None or self.rng.random() < 0.3 else Opt(i) for i in inputs[1:])]
            inputs += [Opt(Var(self.name()))] * (len(inputs) == 1 and self.rng.random() < 0.5)
        if node.op == "Concat" and self.rng.random() < 0.5:
            inputs = [*inputs[:1], Rest(self.name(), min=self.rng.randint(0, 2))]
        others = {"Add": ("Sub",), "Neg": ("Relu",), "Mul": ("Max",)}.get(node.op, ())
        ops = (node.op, *others) if self.rng.random() < 0.2 else (node.op,)
        listed = len(node.outputs) > 1 and self.rng.random() < 0.8
        options = {option: True for option in ("_shared", "_ordered", "_other_attrs") if self.rng.random() < 0.15}
        made = self.op.AnyOf(*ops)(
            *inputs, **self.attributes(node), **options, _bind=self.name(),
            _outputs=[self.name() for _ in node.outputs] if listed else None,
        )  # fmt: skip
        self.outputs[node] = made if listed else (made,) * len(node.outputs)
        return self.outputs[node]

    def attributes(self, node: Node) -> dict[str, Attr]:
        if node.op == "Split":
            return {"num_outputs": Attr(equals=2), "axis": Attr()}
        if node.op == "Concat":
            return {"axis": Attr(self.name())}
        if node.op == "Softmax" and self.rng.random() < 0.6:
            return {"axis": self.rng.choice([Attr(self.name()), Attr(equals=-1), Attr(equals=0), Attr()])}
        return {}

    def value(self, value: Value | None, depth: int):
        if value is None:
            return None
        producer = value.producer
        if producer is not None and producer.op not in ("Constant", "If") and depth and self.rng.random() < 0.75:
            return self.node(producer, depth - 1)[value.index]
        if value not in self.leaves or self.rng.random() < 0.2:
            self.leaves[value] = self.leaf(value)
        return self.leaves[value]

    def leaf(self, value: Value) -> Var | Const:
        if value.is_const and self.rng.random() < 0.7:
            return self.rng.choice([Const(self.name()), Const(value=0.5, rel=0.0), Const(value=1.0, rel=0.0)])
        return Var(self.name()) if self.rng.random() < 0.95 else Const(self.name())


def lifted(rng: random.Random, roots: list[Node]):
    """A pattern function around some nodes."""

    def pattern(op):
        lifter = Lifter(rng, op)
        outputs = [lifter.node(root, rng.randint(0, 3))[0] for root in roots]
        return tuple(dict.fromkeys(outputs))

    return pattern


def bound_by(match: Match, names: dict[str, str]) -> dict[str, object]:
    """What the names of a pattern stand for, in a match."""
    asked = {"value": match.value, "const": match.value, "values": match.values, "node": match.node}
    kinds = {name: kind for name, kind in names.items() if kind in asked}
    return {name: asked[kind](name) if match.has(name) else None for name, kind in kinds.items()}


def stands_for(solution: dict, names: dict[str, str]) -> dict[str, object]:
    """The same, in a solution of the naive reading."""
    found = dict.fromkeys(name for name, kind in names.items() if kind != "attr")
    for pattern, what in solution.items():
        name = getattr(pattern, "bind", None) or getattr(pattern, "name", None)
        if name is not None:
            found[name] = what
        for output in getattr(pattern, "outputs", ()):
            if output.name is not None:
                found[output.name] = what.output(output.index)
    return found


TALLY = {"hits": 0, "misses": 0, "refused": 0}


@given(seed=st.integers(0, 2**32 - 1))
def check_agreement(seed: int) -> None:
    rng = random.Random(seed)
    model = random_model(rng)
    nodes = [node for graph in model.graphs() for node in graph]
    for _ in range(6):
        main = [node for node in model.graph if node.op not in ("If", "Constant")] or nodes[:1]
        roots = rng.sample(main, min(len(main), rng.choice([1, 1, 1, 2])))
        try:
            compiled = compile_pattern(lifted(rng, roots))
        except PassError:  # an accidental pattern may well be refused
            TALLY["refused"] += 1
            continue
        for node in nodes:
            match = compiled.match(node)
            expected = list(solutions(compiled.tree, node)) if node.op in compiled.roots else []
            TALLY["hits" if match else "misses"] += node.op in compiled.roots
            assert bool(match) == bool(expected), f"{compiled}\nat {node} of\n{model.text()}\n{match}"
            if isinstance(match, Match):
                assert bound_by(match, compiled.names) in [stands_for(s, compiled.names) for s in expected]


def test_matchers_agree_with_the_naive_reading():
    TALLY.update(dict.fromkeys(TALLY, 0))
    check_agreement()
    patterns = TALLY["hits"] + TALLY["misses"]
    assert TALLY["hits"] > 0.1 * patterns, f"too few patterns match for the comparison to mean much: {TALLY}"
    assert TALLY["misses"] > 0.1 * patterns
