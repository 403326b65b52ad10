"""Passes that follow operators from value to value end after some of them, however many there are."""

from __future__ import annotations

import onnx
import pytest

from graphopt.manager import PassManager

_ATTENTION = """(float[1,8,32] x) => (float[1,8,32] y) <float[32,32] w = {WEIGHT}, int64[4] s4 = {1,8,2,16}, int64[3] s3 = {1,8,32}> {
    a = MatMul(x, w)  k = Reshape(a, s4)  l = Transpose<perm=[0,2,3,1]>(k)  c = Reshape(a, s4)  CHAIN
    q = Transpose<perm=[0,2,1,3]>(END)  s = MatMul(q, l)  p = Softmax(s)  o = MatMul(p, q)
    u = Transpose<perm=[0,2,1,3]>(o)  y = Reshape(u, s3) }""".replace("WEIGHT", ",".join(["0.5"] * 1024))
_PRODUCT = """(int8[1,4,4] x) => (uint8[1,4,4] y) <float s = {0.1}, int8 z = {0}, uint8 u = {3}> {
    d = DequantizeLinear(x, s, z)  c = MatMul(d, d)  CHAIN  y = QuantizeLinear(END, s, u) }"""
_SIGNED = """(float[1,4,4] x) => (float[1,4,4] y) <float s = {0.1}, int8 z = {0}> { b = QuantizeLinear(x, s, z)
    c = com.microsoft.QLinearSigmoid(b, s, z, s, z)  CHAIN  y = DequantizeLinear(END, s, z) }"""
_TRUE = """(bool[4] x) => (bool[4] y) <bool o = {1}, int64[1] n = {4}> { c = Expand(o, n)  CHAIN  y = And(x, END) }"""
_POOL = """(float[1,64,64,64] x) => (float[1,64,1,1] y) { c = GlobalAveragePool(x)  CHAIN  y = Softmax(END) }"""
_ROWS = """(float[1,4,8,32] x) => (float[1,4,8,32] y) <int64[4] i = {1,2,3,0}> {
    c = Gather<axis=1>(x, i)  CHAIN  y = Transpose<perm=[0,2,1,3]>(END) }"""


@pytest.mark.parametrize(
    ("rule", "text", "step"),
    [
        ("fuse_self_attention", _ATTENTION, "Transpose<perm=[0,2,1,3]>(AT)"),
        ("convert_int8_to_uint8", _PRODUCT, "Transpose<perm=[0,2,1]>(AT)"),
        ("convert_signed_operators", _SIGNED, "Transpose<perm=[0,2,1]>(AT)"),
        ("eliminate_true_in_and", _TRUE, "Expand(AT, n)"),
        ("convert_global_average_pool_to_reduce_mean", _POOL, "Identity(AT)"),
        ("convert_roll_to_gather", _ROWS, "Transpose<perm=[0,2,1,3]>(AT)"),
    ],
)
def test_a_rule_follows_few_operators(rule: str, text: str, step: str) -> None:
    steps = " ".join(f"c{at} = {step.replace('AT', f'c{at - 1}' if at else 'c')}" for at in range(1200))
    head = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> g '
    model = onnx.parser.parse_model(head + text.replace("CHAIN", steps).replace("END", "c1199"))
    PassManager(passes=rule, strict=True, target="avx2").run(model)
