"""Small models for the tests of the pattern language, and what a pattern says of one of their nodes."""

from __future__ import annotations

import onnx

from graphopt.ir import Model, Node
from graphopt.match import Match, Mismatch, compile_pattern


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


def find(pattern, model: Model, name: str = "y"):
    """What the pattern says of the node that computes a value."""
    return compile_pattern(pattern).match(producer(model, name))


def reason(pattern, model: Model, name: str = "y") -> str:
    found = find(pattern, model, name)
    assert isinstance(found, Mismatch), f"expected a near miss, found {found}"
    return str(found)


def found(pattern, model: Model, name: str = "y") -> Match:
    match = find(pattern, model, name)
    assert isinstance(match, Match), f"expected a match, found {match!r}"
    return match


def relu_of_neg(op, x):
    return op.Relu(op.Neg(x))
