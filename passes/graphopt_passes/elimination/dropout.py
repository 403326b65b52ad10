"""Dropout at inference."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphopt.ir import Node, Tensor
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter


class EliminateNopDropout(OpRule):
    """Remove `Dropout` that drops nothing: at inference, or with ratio 0.

    A mask that is read becomes a tensor of true from opset 12 on. Older versions leave open what the mask holds at
    inference, and runtimes differ, so there such a node stays.
    """

    name = "eliminate_nop_dropout"
    ops = ("Dropout",)
    peers: ClassVar[dict[str, str]] = {
        "onnxoptimizer": "eliminate_nop_dropout",
        "onnxruntime": "EliminateDropout",
        "onnxscript": "dropout_inference_rule",
        "onnxsim": "eliminate_nop_dropout",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Let the input stand for the output."""
        problem = _may_drop(node)
        if problem is not None:
            return problem
        x, mask = node.inputs[0], node.output(1)
        if mask is None or not mask.uses:
            return rw.replace(node, [x, None])
        if node.graph.opset() < 12:
            return Mismatch("mask {} is used, and its contents are open before opset 12", mask.name)
        true = Tensor.from_array(np.array([True]))
        return rw.replace(node, [x, rw.op("ConstantOfShape", rw.op("Shape", x), value=true)])


def _may_drop(node: Node) -> Mismatch | None:
    """Why elements may be dropped; None when they cannot."""
    opset = node.graph.opset()
    if opset < 12:
        if opset < 7 and not node.attr("is_test", 0) and node.attr("ratio", 0.5) != 0:
            return Mismatch("is_test is not set")
        return None
    mode = node.input(2)
    training = mode.const(64) if mode is not None else np.array(False)
    if training is not None and not training.any():
        return None
    ratio = node.input(1)
    rate = ratio.const(64) if ratio is not None else None
    if rate is not None and rate.size == 1 and rate.reshape(-1)[0] == 0:
        return None
    return Mismatch("it may train: training_mode is not false")
