"""What may be merged, removed and folded; refusals first."""

from __future__ import annotations

import pytest
from onnx import parser

from graphopt.analysis import has_side_effects, is_deterministic, is_removable, may_fold, why_not_fold
from graphopt.ir import Model, Node


def first(body: str, inputs: str = "float[2,3] x", opset: int = 18, functions: str = "") -> Node:
    imports = f'["" : {opset}, "com.microsoft" : 1, "ai.onnx.ml" : 3, "my" : 1]'
    text = f"<ir_version: 9, opset_import: {imports}> g ({inputs}) => (y) {{ {body} }} {functions}"
    node = Model.load(parser.parse_model(text)).graph.first
    assert node is not None
    return node


FUNCTIONS = """
<domain: "my", opset_import: ["" : 18]> pure (a) => (b) { b = Relu(a) }
<domain: "my", opset_import: ["" : 18]> noisy (a) => (b) { b = RandomNormalLike(a) }
<domain: "my", opset_import: ["" : 18, "my" : 1]> deep (a) => (b) { b = my.noisy(a) }
<domain: "my", opset_import: ["" : 18, "other" : 1]> opaque (a) => (b) { b = other.Thing(a) }
<domain: "my", opset_import: ["my" : 1]> endless (a) => (b) { b = my.endless(a) }
"""


@pytest.mark.parametrize(
    "body",
    [
        "y = RandomNormal<shape = [2]>()", "y = RandomUniformLike(x)", "y = Bernoulli(x)", "y = Multinomial(x)",
        "y = my.Custom(x)", "y = NoSuchOperator(x)", "y = com.microsoft.Sampling(x)", "y = com.microsoft.BiasDropout(x)",
        "y = my.noisy(x)", "y = my.deep(x)", "y = my.opaque(x)", "y = my.endless(x)",
        "y = If(c) <then_branch = t () => (a) { a = Bernoulli(x) }, else_branch = e () => (b) { b = Relu(x) }>",
        "y = If(c) <then_branch = t () => (a) { a = If(c) <then_branch = t2 () => (d) { d = my.Custom(x) }, "
        "else_branch = e2 () => (d2) { d2 = Relu(x) }> }, else_branch = e () => (b) { b = Relu(x) }>",
    ],
)  # fmt: skip
def test_not_deterministic(body: str) -> None:
    node = first(body, "float[2,3] x, bool c", functions=FUNCTIONS)
    assert not is_deterministic(node)
    assert not may_fold(node)


@pytest.mark.parametrize(
    "body", ["y = my.Custom(x)", "y = NoSuchOperator(x)", "y = my.opaque(x)", "y = com.microsoft.PagedAttention(x)"]
)
def test_unknown_operators_may_do_anything(body: str) -> None:
    node = first(body, functions=FUNCTIONS)
    assert has_side_effects(node)
    assert not is_removable(node)


@pytest.mark.parametrize("body", ["y = RandomNormal<shape = [2]>()", "y = my.noisy(x)", "y = Bernoulli(x)"])
def test_random_operators_may_be_removed(body: str) -> None:
    assert is_removable(first(body, functions=FUNCTIONS))


@pytest.mark.parametrize(
    "body", ["y = Relu(x)", "y = my.pure(x)", "y = com.microsoft.Gelu(x)", "y = ai.onnx.ml.Scaler(x)", "y = Dropout(x)"]
)
def test_pure_operators(body: str) -> None:
    node = first(body, functions=FUNCTIONS)
    assert is_deterministic(node)
    assert is_removable(node)


@pytest.mark.parametrize(
    ("body", "opset", "deterministic"),
    [
        ("y = Dropout<is_test = 0>(x)", 6, False),
        ("y = Dropout(x)", 6, False),
        ("y = Dropout<is_test = 1>(x)", 6, True),
        ("y = Dropout<ratio = 0.3>(x)", 10, True),
        ("y = Dropout(x, r)", 13, True),
        ("y = Dropout(x, r, t)", 13, False),
    ],
)
def test_dropout_may_train(body: str, opset: int, deterministic: bool) -> None:
    assert is_deterministic(first(body, "float[2,3] x, float r, bool t", opset)) is deterministic


@pytest.mark.parametrize(("mode", "deterministic"), [("0", True), ("1", False)])
def test_dropout_with_constant_mode(mode: str, deterministic: bool) -> None:
    text = (
        f'<ir_version: 9, opset_import: ["" : 18]> g (float[2] x, float r) => (y) <bool t = {{{mode}}}> '
        "{ y = Dropout(x, r, t) }"
    )
    node = Model.load(parser.parse_model(text)).graph.first
    assert node is not None
    assert is_deterministic(node) is deterministic


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("y = DequantizeLinear(x, s)", "quantize and dequantize operators are kept"),
        ("y = com.microsoft.QuantizeLinear(x, s)", "quantize and dequantize operators are kept"),
        ("y = com.microsoft.Gelu(x)", "operators of domain com.microsoft are not evaluated"),
        ("y = my.Custom(x)", "operators of domain my are not evaluated"),
        ("y = my.pure(x)", "calls of functions and nodes with attribute references are not evaluated"),
        ("y = SequenceConstruct(x)", "SequenceConstruct is not an operator on tensors"),
        ("y = NoSuchOperator(x)", "NoSuchOperator is not known at this opset"),
        ("y = RandomUniformLike(x)", "RandomUniformLike draws random numbers"),
    ],
)
def test_reasons_not_to_fold(body: str, reason: str) -> None:
    assert str(why_not_fold(first(body, "float[2,3] x, float s", functions=FUNCTIONS))) == reason


def test_quantized_constants_fold_on_request() -> None:
    node = first("y = DequantizeLinear(x, s)", "int8[2] x, float s")
    assert may_fold(node, qdq=True)
    assert not may_fold(node)


@pytest.mark.parametrize("zero", ["uint8", "int8", "uint16", "int16", "int4", "uint4", "float8e4m3fn", "float8e5m2"])
def test_quantizing_a_constant_folds(zero: str) -> None:
    assert may_fold(first("y = QuantizeLinear(x, s, z)", f"float[2] x, float s, {zero} z", opset=21))
    assert may_fold(first("y = QuantizeLinear(x, s)", "float[2] x, float s", opset=21))


def test_quantizing_a_constant_to_an_unknown_type_is_kept() -> None:
    reason = why_not_fold(first("y = QuantizeLinear(x, s, z)", "float[2] x, float s, float4e2m1 z", opset=23))
    assert str(reason) == "quantize and dequantize operators are kept"
