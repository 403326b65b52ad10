"""Optionals of which it is known what they hold."""

from __future__ import annotations

import numpy as np
import onnx

from graphopt.rewrite import Decline, Node, OpRule, Outcome, Rewriter, Value


class EliminateOptionalGetElement(OpRule):
    """Take the value directly where `OptionalGetElement` reads an `Optional`, or what is no optional at all."""

    ops = ("OptionalGetElement",)
    peers = {"onnxsim": "eliminate_optional_get_element"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        held = _held(node.operand(0))
        if held is None:
            raise Decline("the optional is empty")
        return rw.replace(node, [held])


class EliminateOptionalHasElement(OpRule):
    """Replace `OptionalHasElement` by its answer, where it reads an `Optional` or what is no optional at all."""

    ops = ("OptionalHasElement",)
    peers = {"onnxsim": "eliminate_optional_has_element"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Whether it holds anything; an input that is left out does not."""
        optional = node.input(0)
        return rw.replace(node, [rw.constant(np.array(optional is not None and _held(optional) is not None))])


def _held(value: Value) -> Value | None:
    """What an optional holds, which is itself where it is no optional; None where it is empty."""
    known = value.type
    if value.dtype is not None or (isinstance(known, onnx.TypeProto) and known.HasField("sequence_type")):
        return value
    optional = value.made_by("Optional")
    if optional is None:
        raise Decline("it is not known what {} holds", value.name)
    return optional.input(0)
