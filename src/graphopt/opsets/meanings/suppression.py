"""Non-maximum suppression: boxes are chosen by score, unless they overlap one that was chosen before."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from graphopt.ir import Node, Value
from graphopt.opsets.bodies import called
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.computed import integers
from graphopt.opsets.meanings.indexing import flat
from graphopt.opsets.meanings.positions import Counting
from graphopt.opsets.meanings.registry import down, typed
from graphopt.rewrite import Rewriter

_CHOOSING = """
<opset_import: ["" : 10], domain: "written.out">
choosing (rounds, on, free, scores, covers, numbers, lowest, half) => (places, chosen) {
  left_at_end, places, chosen = Loop (rounds, on, free) <body = one_by_one
      (int64 round, bool still, float[i, c, n] left)
      => (bool again, float[i, c, n] rest, int64[i, c] place, float[i, c] fine) {
    again = Identity (still)
    is_left = Cast <to = 9> (left)
    rated = Where (is_left, scores, lowest)
    place = ArgMax <axis = 2, keepdims = 0> (rated)
    fine = ReduceMax <axes = [2], keepdims = 0> (left)
    column = Unsqueeze <axes = [2]> (place)
    here_truth = Equal (column, numbers)
    here = Cast <to = 1> (here_truth)
    covered = MatMul (here, covers)
    taken = Add (covered, here)
    kept_truth = Less (taken, half)
    kept = Cast <to = 1> (kept_truth)
    rest = Mul (left, kept)
  }>
}
"""


@down(10, "NonMaxSuppression")
def best_of_what_is_left(node: Node, change: Change, rw: Rewriter) -> None:
    """Choose the best remaining box of each class of each image in a loop, up to the allowed number of boxes."""
    boxes, scores = node.operand(0), node.operand(1)
    most, common, least = node.input(2), node.input(3), node.input(4)
    op, count = typed(rw, boxes), Counting(rw)
    limit = np.zeros((), np.float32) if common is None else rw.op("Reshape", common, integers())
    covers = _covers(rw, boxes, limit, centred=bool(node.attr("center_point_box", 0)))
    floor = -np.inf if least is None else rw.op("Reshape", least, integers())
    free = op("Greater", scores, floor) if least is not None else op("Not", op("Less", scores, floor))
    number = count.size(boxes, 1)
    wanted = integers(0) if most is None else rw.op("Reshape", most, integers(1))
    rounds = rw.op("Reshape", count.choose(count("Less", number, wanted), number, wanted), integers())
    given: list[Value | np.ndarray] = [
        np.asarray(True),
        rw.op("Cast", free, to=TensorProto.FLOAT),
        scores,
        covers,
        count.up_to(number),
    ]
    given += [np.asarray(-np.inf, np.float32), np.asarray(0.5, np.float32)]
    operands = [rw.constant(each) if isinstance(each, np.ndarray) else each for each in (rounds, *given)]
    found = called(rw, onnx.parser.parse_function(_CHOOSING), *operands)
    places, chosen = (rw.op("Transpose", each, perm=[1, 2, 0]) for each in found)
    truths = rw.op("Cast", chosen, to=TensorProto.BOOL)
    which = rw.op("Slice", rw.op("NonZero", truths), starts=[0], ends=[2], axes=[0])
    numbers = rw.op("Compress", flat(rw, places), flat(rw, truths), axis=0)
    rows = rw.op("Concat", which, rw.op("Unsqueeze", numbers, axes=[0]), axis=0)
    rw.replace(node, [rw.op("Transpose", rows, perm=[1, 0])])


def _covers(rw: Rewriter, boxes: Value, limit: Value | np.ndarray, *, centred: bool) -> Value:
    """For each pair of boxes of an image, whether intersection / union exceeds the limit: 1 or 0."""
    op = typed(rw, boxes)
    a, b, c, d = (rw.op("Gather", boxes, np.asarray(at, np.int64), axis=2) for at in range(4))
    if centred:
        halves = [(a, op("Div", c, 2)), (b, op("Div", d, 2))]
        sides = [(op("Sub", middle, half), op("Add", middle, half)) for middle, half in halves]
    else:
        sides = [(op("Min", one, other), op("Max", one, other)) for one, other in ((a, c), (b, d))]
    lengths = [op("Sub", high, low) for low, high in sides]
    area = op("Mul", *lengths)
    shared = []
    for low, high in sides:
        start = op("Max", *_each_and_other(rw, low))
        end = op("Min", *_each_and_other(rw, high))
        shared.append(op("Max", op("Sub", end, start), 0))
    common, areas = op("Mul", *shared), _each_and_other(rw, area)
    union = op("Sub", op("Add", *areas), common)
    fine = op("And", op("Greater", common, 0), op("Greater", union, 0))
    for each in areas:
        fine = op("And", fine, op("Greater", each, 0))
    share = op("Div", common, op("Where", fine, union, 1))
    return rw.op("Cast", op("And", op("Greater", share, limit), fine), to=TensorProto.FLOAT)


def _each_and_other(rw: Rewriter, x: Value) -> tuple[Value, Value]:
    return rw.op("Unsqueeze", x, axes=[2]), rw.op("Unsqueeze", x, axes=[1])
