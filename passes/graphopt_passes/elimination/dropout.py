"""Dropout at inference."""

from __future__ import annotations

import numpy as np

from graphopt.ir import Node, Tensor
from graphopt.rewrite import Decline, OpRule, Outcome, Rewriter


class EliminateNopDropout(OpRule):
    """Remove `Dropout` that drops nothing: at inference, or with ratio 0.

    A mask that is read becomes a tensor of true from opset 12 on. Older versions leave open what the mask holds at
    inference, and runtimes differ, so there such a node stays.
    """

    ops = ("Dropout",)
    peers = {
        "onnxoptimizer": "eliminate_nop_dropout",
        "onnxruntime": "EliminateDropout",
        "onnxscript": ("dropout_inference_rule", "dropout_zero_rule"),
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        _check_inference(node)
        x, mask = node.operand(0), node.output(1)
        if mask is None or not mask.uses:
            return rw.replace(node, [x, None])
        if node.graph.opset() < 12:
            raise Decline("mask {} is used, and its contents are open before opset 12", mask.name)
        true = Tensor.from_array(np.array([True]))
        return rw.replace(node, [x, rw.op("ConstantOfShape", rw.op("Shape", x), value=true)])


def _check_inference(node: Node) -> None:
    """Decline where it drops anything in training: see `is_test` until opset 6, and `training_mode` from 12 on."""
    training = node.input(2)
    if not node.attr("is_test", 1) and node.number("ratio") != 0:
        raise Decline("is_test is not set: it may train")
    if training is not None and not training.holds(False) and node.number("ratio") != 0:
        raise Decline("{} is not known to be false: it may train", training.name)
