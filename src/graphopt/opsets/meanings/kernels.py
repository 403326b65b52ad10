"""Operators whose function in the standard gives other results, at some numbers, than every kernel of them does."""

from __future__ import annotations

import onnx

from graphopt.ir import Node
from graphopt.opsets.bodies import write_body
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.registry import down
from graphopt.rewrite import Rewriter

_RANGE = """
<opset_import: ["" : 11], domain: "written.out">
Range (start, limit, delta) => (output) {
  apart = Sub (limit, start)
  far = Cast <to = 11> (apart)
  step = Cast <to = 11> (delta)
  steps = Div (far, step)
  whole = Ceil (steps)
  none_below = Relu (whole)
  number = Cast <to = 7> (none_below)
  on = Cast <to = 9> (none_below)
  last, output = Loop (number, on, start) <body = one_by_one (int64 at, bool still, before) => (again, after, now) {
    again = Identity (still)
    after = Add (before, delta)
    now = Identity (before)
  }>
}
"""


@down(11, "Range")
def counted_in_doubles(node: Node, change: Change, rw: Rewriter) -> None:
    """The function counts the steps in single floats: one is missing where the last is just within the limit."""
    write_body(node, onnx.parser.parse_function(_RANGE), rw)


_QUANTIZED = """
<opset_import: ["" : 11], domain: "written.out">
DynamicQuantizeLinear (x) => (y, y_scale, y_zero_point) {
  none = Constant <value = float {0.0}> ()
  one = Constant <value = float {1.0}> ()
  most = Constant <value = float {255.0}> ()
  least_of_x = ReduceMin <keepdims = 0> (x)
  low = Min (least_of_x, none)
  most_of_x = ReduceMax <keepdims = 0> (x)
  high = Max (most_of_x, none)
  reach = Sub (high, low)
  step = Div (reach, most)
  nothing = Equal (reach, none)
  y_scale = Where (nothing, one, step)
  steps = Div (low, y_scale)
  exact = Sub (none, steps)
  within = Clip (exact, none, most)
  whole = Round (within)
  y_zero_point = Cast <to = 2> (whole)
  y = QuantizeLinear (x, y_scale, y_zero_point)
}
"""


@down(11, "DynamicQuantizeLinear")
def with_a_scale_for_zeros(node: Node, change: Change, rw: Rewriter) -> None:
    """Of zeros alone the function divides by a scale of 0, for which kernels take 1."""
    write_body(node, onnx.parser.parse_function(_QUANTIZED), rw)
