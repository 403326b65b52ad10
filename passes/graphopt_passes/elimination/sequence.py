"""Sequences and optionals that are built only to be taken apart."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphopt.ir import Node
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import constant_ints


class EliminateSequenceAtConstruct(OpRule):
    """Take an element directly where `SequenceAt` reads a `SequenceConstruct`."""

    name = "eliminate_sequence_at_construct"
    ops = ("SequenceAt",)
    peers: ClassVar[dict[str, str]] = {"onnxsim": "eliminate_sequence_at_construct"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look one step up and read the position."""
        first = _built_by(node, "SequenceConstruct")
        position = node.inputs[1]
        if first is None or isinstance(first, Mismatch) or position is None:
            return first if isinstance(first, Mismatch) else None
        at = constant_ints(position)
        if isinstance(at, Mismatch):
            return at
        if not -len(first.inputs) <= at[0] < len(first.inputs):
            return Mismatch("there is no element {} among {}", at[0], len(first.inputs))
        return rw.replace(node, [first.inputs[at[0]]])


class EliminateSequenceLengthConstruct(OpRule):
    """Replace the length of a `SequenceConstruct` by the number of its inputs."""

    name = "eliminate_sequence_length_construct"
    ops = ("SequenceLength",)
    peers: ClassVar[dict[str, str]] = {"onnxsim": "eliminate_sequence_length_construct"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look one step up and count."""
        first = _built_by(node, "SequenceConstruct")
        if first is None or isinstance(first, Mismatch):
            return first
        return rw.replace(node, [rw.constant(np.array(len(first.inputs), np.int64))])


class EliminateOptionalGetElement(OpRule):
    """Take the value directly where `OptionalGetElement` reads an `Optional`, or a plain tensor."""

    name = "eliminate_optional_get_element"
    ops = ("OptionalGetElement",)
    peers: ClassVar[dict[str, str]] = {"onnxsim": "eliminate_optional_get_element"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look one step up."""
        value = node.inputs[0]
        if value is not None and value.dtype is not None:
            return rw.replace(node, [value])
        first = _built_by(node, "Optional")
        if first is None or isinstance(first, Mismatch):
            return first
        if not first.inputs or first.inputs[0] is None:
            return Mismatch("the optional is empty")
        return rw.replace(node, [first.inputs[0]])


class EliminateOptionalHasElement(OpRule):
    """Replace `OptionalHasElement` of an `Optional` by whether that was given a value."""

    name = "eliminate_optional_has_element"
    ops = ("OptionalHasElement",)
    peers: ClassVar[dict[str, str]] = {"onnxsim": "eliminate_optional_has_element"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look one step up."""
        first = _built_by(node, "Optional")
        if first is None or isinstance(first, Mismatch):
            return first
        return rw.replace(node, [rw.constant(np.array(bool(first.inputs) and first.inputs[0] is not None))])


def _built_by(node: Node, op: str) -> Node | Mismatch | None:
    """The node that builds the first input, when it is of that operator and of the same graph."""
    value = node.inputs[0] if node.inputs else None
    first = value.producer if value is not None else None
    if value is None or first is None or first.op != op:
        return None
    if first.graph is not node.graph:
        return Mismatch("{} is computed in an outer graph", value.name)
    return first
