"""Operators whose function in the standard gives other results, at some numbers, than every kernel of them does."""

from __future__ import annotations

import math

import numpy as np
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
  missing = IsNaN (x)
  numbers = Where (missing, none, x)
  least_of_x = ReduceMin <keepdims = 0> (numbers)
  low = Min (least_of_x, none)
  most_of_x = ReduceMax <keepdims = 0> (numbers)
  high = Max (most_of_x, none)
  reach = Sub (high, low)
  step = Div (reach, most)
  nothing = Equal (reach, none)
  y_scale = Where (nothing, one, step)
  steps = Div (low, y_scale)
  exact = Sub (none, steps)
  infinite = IsNaN (exact)
  found = Where (infinite, most, exact)
  within = Clip (found, none, most)
  whole = Round (within)
  y_zero_point = Cast <to = 2> (whole)
  y = QuantizeLinear (x, y_scale, y_zero_point)
}
"""


@down(11, "DynamicQuantizeLinear")
def with_a_scale_for_zeros(node: Node, change: Change, rw: Rewriter) -> None:
    """Of zeros alone the function divides by a scale of 0, for which kernels take 1; and these pass over NaN."""
    write_body(node, onnx.parser.parse_function(_QUANTIZED), rw)


_WINDOW = """
<opset_import: ["" : 17], domain: "written.out">
Window (size) => (output) {{
  none = Constant <value = int64 {{0}}> ()
  one = Constant <value = int64 {{1}}> ()
  apart = Constant <value = int64 {{{apart}}}> ()
  round = Constant <value = double {{{round!r}}}> ()
  two = Constant <value = double {{2.0}}> ()
  least = Constant <value = double {{{a}}}> ()
  first = Constant <value = double {{{b}}}> ()
  second = Constant <value = double {{{c}}}> ()
  number = Cast <to = 7> (size)
  at = Range (none, number, one)
  places = Cast <to = 11> (at)
  steps = Sub (number, apart)
  length = Cast <to = 11> (steps)
  turns = Mul (places, round)
  angles = Div (turns, length)
  twice = Mul (angles, two)
  wave = Cos (angles)
  shorter = Cos (twice)
  more = Mul (wave, first)
  most = Mul (shorter, second)
  sum = Sub (least, more)
  all = Add (sum, most)
  output = Cast <to = {to}> (all)
}}
"""

_SHARES = {
    "BlackmanWindow": (0.42000002, 0.5, 0.08), "HammingWindow": (25 / 46, 21 / 46, 0.0), "HannWindow": (0.5, 0.5, 0.0),
}  # fmt: skip
"""How much of a window is the same everywhere, of one wave, and of one of half its length."""


@down(17, *_SHARES)
def of_double_floats(node: Node, change: Change, rw: Rewriter) -> None:
    """The function subtracts single floats that are nearly equal at both ends; kernels do it in double precision."""
    a, b, c = (float(np.float32(share)) for share in _SHARES[node.op_type])
    apart, to = int(not node.attr("periodic", 1)), node.attr("output_datatype", 1)
    text = _WINDOW.format(apart=apart, round=2 * math.pi, a=a, b=b, c=c, to=to)
    write_body(node, onnx.parser.parse_function(text), rw)
