"""Small models for the tests of the pattern language, and what a pattern says of one of their nodes."""

from __future__ import annotations

import onnx

from graphopt.errors import Decline
from graphopt.ir import Model, Node
from graphopt.match import Match, compile_pattern


def graph(body: str, *, inputs="float[N,3,8,8] x", outputs="float[N,3,8,8] y", held="", opset=18) -> Model:
    """A model of a few lines of ONNX text; `held` declares constants and types of values between operators."""
    imports = f'"" : {opset}, "com.microsoft" : 1, "my.domain" : 1'
    held = f"<{held}>" if held else ""
    text = f"<ir_version: 9, opset_import: [{imports}]>\ng ({inputs}) => ({outputs}) {held} {{ {body} }}"
    return Model.load(onnx.parser.parse_model(text))


def producer(model: Model, name: str = "y") -> Node:
    node = model.graph.values[name].producer
    assert node is not None
    return node


def found(pattern, model: Model, name: str = "y") -> Match:
    return compile_pattern(pattern).match(producer(model, name))


def reason(pattern, model: Model, name: str = "y") -> str:
    """Why it does not match; "" where the operators are other ones."""
    node, compiled = producer(model, name), compile_pattern(pattern)
    if node.op not in compiled.roots:
        return ""
    try:
        match = compiled.match(node)
    except Decline as declined:
        return str(declined)
    raise AssertionError(f"expected a refusal, found {match}")


def relu_of_neg(op, x):
    return op.Relu(op.Neg(x))
