"""Resizing to the size that is there."""

from __future__ import annotations

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import all_equal, same_shape


class EliminateNopResize(OpRule):
    """Remove `Resize` and `Upsample` by scale 1, or to the size of their input.

    Every mode then reads exactly at the elements. Cropping stays, and so do scales other than 1 whose result has the
    same size by rounding.
    """

    name = "eliminate_nop_resize"
    ops = ("Resize", "Upsample")

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Read the scales, or compare the shapes."""
        x, y = node.inputs[0], node.outputs[0]
        if x is None or y is None or node.schema is None:
            return None
        if node.attr("coordinate_transformation_mode", "") == "tf_crop_and_resize":
            return Mismatch("it crops")
        problem = _changes(node, x, y)
        return rw.replace(node, [x]) if problem is None else problem


def _changes(node: Node, x: Value, y: Value) -> Mismatch | None:
    """Why the result may differ from the input."""
    opset = node.graph.opset()
    if node.op == "Upsample" and opset < 9:
        scales = node.attr("scales") or (node.attr("height_scale", 0.0), node.attr("width_scale", 0.0))
        return None if all(scale == 1 for scale in scales) else Mismatch("a scale is not 1")
    values = node.input(1 if node.op == "Upsample" or opset < 11 else 2)
    if values is not None and not (values.is_const and values.shape == (0,)):
        if not values.is_const:
            return Mismatch("{} is not constant", values.name)
        return None if all_equal(values, 1) else Mismatch("a scale is not 1")
    if node.attr("keep_aspect_ratio_policy", "stretch") != "stretch":
        return Mismatch("the aspect ratio is kept")
    return None if same_shape(x, y) else Mismatch("the sizes of {} are not known to be those of {}", y.name, x.name)
