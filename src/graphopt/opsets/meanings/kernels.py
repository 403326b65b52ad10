"""Operators whose function body in the standard differs from all kernels for some operands."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir import HALF_TYPES, Node
from graphopt.opsets import automatic
from graphopt.opsets.bodies import write_body
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.registry import Step, down
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
    """Count the steps in double: the standard's body counts in float, and may miss a step just within the limit."""
    write_body(node, onnx.parser.parse_function(_RANGE), rw)


@down(27, "Range")
def added_up_in_wider_floats(node: Node, change: Change, rw: Rewriter) -> Step:
    """Add up half-precision numbers in the stated type; for all others, none has an effect."""
    numbers, wide = [node.operand(index) for index in range(3)], node.attr("stash_type", TensorProto.FLOAT)
    if numbers[0].dtype in HALF_TYPES and wide == TensorProto.DOUBLE:
        result = rw.op("Range", *(rw.op("Cast", each, to=wide) for each in numbers))
        rw.replace(node, [rw.op("Cast", result, to=numbers[0].dtype)])
        return None
    if numbers[0].dtype not in HALF_TYPES and "stash_type" in node.attrs:
        rw.set_attr(node, stash_type=None)
    return automatic.down(node, change, rw)


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
    """Use scale 1 for all-zero data and ignore NaN, as kernels do; the standard's body divides by a scale of 0."""
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
"""Coefficients a, b, c of a window a - b * cos(t) + c * cos(2 * t)."""


@down(17, *_SHARES)
def of_double_floats(node: Node, change: Change, rw: Rewriter) -> None:
    """Compute windows in double, as kernels do: at both ends the standard's body subtracts nearly equal floats."""
    a, b, c = (float(np.float32(share)) for share in _SHARES[node.op_type])
    apart, to = int(not node.attr("periodic", 1)), node.attr("output_datatype", 1)
    text = _WINDOW.format(apart=apart, round=2 * math.pi, a=a, b=b, c=c, to=to)
    write_body(node, onnx.parser.parse_function(text), rw)


@down(18, "ReduceL2")
def root_of_squares(node: Node, change: Change, rw: Rewriter) -> None:
    """Compute norms over computed axes as kernels do, halves in float and integers in double.

    The standard's body takes the root in float, whatever the type, and adds up squares in the type of integers.
    """
    x, axes = node.operand(0), node.operand(1)
    if axes.is_const:
        raise Decline
    kind = x.element_type()
    exact = kind in (TensorProto.FLOAT, TensorProto.DOUBLE)
    wide = x if exact else rw.op("Cast", x, to=TensorProto.FLOAT if kind in HALF_TYPES else TensorProto.DOUBLE)
    root = rw.op("Sqrt", rw.op("ReduceSum", rw.op("Mul", wide, wide), axes, **node.attrs))
    rw.replace(node, [root if exact else rw.op("Cast", root, to=kind)])
