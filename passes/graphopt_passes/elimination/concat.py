"""Joining and splitting where there is one part."""

from __future__ import annotations

from typing import ClassVar

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import int_list


class EliminateNopConcat(OpRule):
    """Remove `Concat` of one input."""

    name = "eliminate_nop_concat"
    ops = ("Concat",)
    peers: ClassVar[dict[str, str]] = {
        "onnxoptimizer": "eliminate_nop_concat",
        "onnxsim": "eliminate_nop_concat",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Count the inputs."""
        return rw.replace(node, [node.inputs[0]]) if len(node.inputs) == 1 else None


class EliminateEmptyConcatInputs(OpRule):
    """Leave inputs of `Concat` out that have size 0 along its axis.

    The others determine the result, its shape included, as long as one of them remains.
    """

    name = "eliminate_empty_concat_inputs"
    ops = ("Concat",)
    peers: ClassVar[dict[str, str]] = {
        "onnxoptimizer": "eliminate_nop_with_unit",
        "onnxsim": "eliminate_nop_with_unit",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look at the sizes along the axis."""
        axis = node.attr("axis", 1)
        values = [value for value in node.inputs if value is not None]
        left = [value for value in values if not _is_empty(value, axis)]
        if len(left) == len(values):
            return None
        if not left:
            return Mismatch("all inputs are empty")
        return rw.replace(node, [rw.op("Concat", *left, axis=axis) if len(left) > 1 else left[0]])


def _is_empty(value: Value, axis: int) -> bool:
    shape = value.shape
    return shape is not None and -len(shape) <= axis < len(shape) and shape[axis] == 0


class EliminateNopSplit(OpRule):
    """Remove `Split` into one part.

    Where the size of the part is given, it must be known to be all there is.
    """

    name = "eliminate_nop_split"
    ops = ("Split",)
    peers: ClassVar[dict[str, str]] = {
        "onnxoptimizer": "eliminate_nop_split",
        "onnxsim": "eliminate_nop_split",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Count the outputs."""
        x = node.inputs[0]
        if len(node.outputs) != 1 or x is None:
            return None
        if node.input(1) is None and node.attr("split") is None:
            return rw.replace(node, [x])
        split = int_list(node, "split", 1, 13)
        if split is None or isinstance(split, Mismatch):
            return split
        axis = node.attr("axis", 0)
        size = x.shape[axis] if x.shape is not None and -len(x.shape) <= axis < len(x.shape) else None
        if size != sum(split):
            return Mismatch("the size of {} along axis {} is {}, split takes {}", x.name, axis, size, sum(split))
        return rw.replace(node, [x])
