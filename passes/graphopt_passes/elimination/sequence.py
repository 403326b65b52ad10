"""Sequences and optionals that are built only to be taken apart."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import onnx

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt.rewrite.legality import is_visible
from graphopt_passes.elimination.facts import constant_ints

_MOST_COPIED = 32
"""A longer list of elements is not written a second time for another reader."""

_AXES_AS_INPUT = 13
"""From this opset on `Unsqueeze` is told its axes by an input."""


class EliminateSequenceAtConstruct(OpRule):
    """Take an element directly where `SequenceAt` reads a `SequenceConstruct`."""

    name = "eliminate_sequence_at_construct"
    ops = ("SequenceAt",)
    peers: ClassVar[dict[str, str]] = {"onnxsim": "eliminate_sequence_at_construct"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look one step up and read the position."""
        elements = _elements(node)
        position = node.inputs[1]
        if elements is None or isinstance(elements, Mismatch) or position is None:
            return elements if isinstance(elements, Mismatch) else None
        at = constant_ints(position)
        if isinstance(at, Mismatch):
            return at
        if len(at) != 1 or not -len(elements) <= at[0] < len(elements):
            return Mismatch("there is no element {} among {}", at[0] if at else None, len(elements))
        return rw.replace(node, [elements[at[0]]])


class EliminateSequenceLengthConstruct(OpRule):
    """Replace the length of a `SequenceConstruct` or `SequenceEmpty` by the number of its elements."""

    name = "eliminate_sequence_length_construct"
    ops = ("SequenceLength",)
    peers: ClassVar[dict[str, str]] = {"onnxsim": "eliminate_sequence_length_construct"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look one step up and count."""
        first = _producer(node)
        if first is None or first.op not in _ELEMENTS_KNOWN:
            return None
        return rw.replace(node, [rw.constant(np.array(len(first.inputs), np.int64))])


class FuseSequenceInsertIntoConstruct(OpRule):
    """Make one `SequenceConstruct` of `SequenceInsert` into a sequence whose elements are known."""

    name = "fuse_sequence_insert_into_construct"
    ops = ("SequenceInsert",)
    peers: ClassVar[dict[str, str]] = {"onnxscript": "FoldConstantsPass"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Find the place among the elements."""
        elements, value = _elements_to_change(node), node.input(1)
        if elements is None or isinstance(elements, Mismatch) or value is None:
            return elements if isinstance(elements, Mismatch) else None
        at = _position(node, 2, len(elements), len(elements) + 1)
        if isinstance(at, Mismatch):
            return at
        elements.insert(at, value)
        return rw.replace(node, [rw.op("SequenceConstruct", *elements)])


class FuseSequenceEraseIntoConstruct(OpRule):
    """Leave an element out of a `SequenceConstruct` where `SequenceErase` would take it away again."""

    name = "fuse_sequence_erase_into_construct"
    ops = ("SequenceErase",)
    peers: ClassVar[dict[str, str]] = {"onnxscript": "FoldConstantsPass"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Find the element; one has to be left."""
        elements = _elements_to_change(node)
        if elements is None or isinstance(elements, Mismatch):
            return elements
        at = _position(node, 1, len(elements) - 1, len(elements))
        if isinstance(at, Mismatch):
            return at
        if len(elements) == 1:
            return Mismatch("nothing would be left")
        del elements[at]
        return rw.replace(node, [rw.op("SequenceConstruct", *elements)])


class ReplaceConcatFromSequenceWithConcat(OpRule):
    """Replace `ConcatFromSequence` by `Concat` of the elements where they are known."""

    name = "replace_concat_from_sequence_with_concat"
    ops = ("ConcatFromSequence",)
    peers: ClassVar[dict[str, str]] = {"onnxscript": "FoldConstantsPass"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look one step up; along a new axis each element gets that axis first."""
        elements = _elements(node)
        if elements is None or isinstance(elements, Mismatch):
            return elements
        axis = node.attr("axis")
        if not elements or axis is None:
            return Mismatch("there is nothing to join")
        if not node.attr("new_axis", 0):
            return rw.replace(node, [rw.op("Concat", *elements, axis=axis)])
        if node.graph.opset() >= _AXES_AS_INPUT:
            axes = rw.constant(np.array([axis], np.int64))
            elements = [rw.op("Unsqueeze", value, axes) for value in elements]
        else:
            elements = [rw.op("Unsqueeze", value, axes=(axis,)) for value in elements]
        return rw.replace(node, [rw.op("Concat", *elements, axis=axis)])


class EliminateOptionalGetElement(OpRule):
    """Take the value directly where `OptionalGetElement` reads an `Optional`, or what is no optional at all."""

    name = "eliminate_optional_get_element"
    ops = ("OptionalGetElement",)
    peers: ClassVar[dict[str, str]] = {"onnxsim": "eliminate_optional_get_element"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look one step up."""
        value = node.inputs[0]
        if value is not None and _is_given(value):
            return rw.replace(node, [value])
        first = _producer(node)
        if first is None or first.op != "Optional":
            return None
        if not first.inputs or first.inputs[0] is None:
            return Mismatch("the optional is empty")
        if not is_visible(first.inputs[0], node.graph):
            return Mismatch("{} is hidden where it would be read", first.inputs[0].name)
        return rw.replace(node, [first.inputs[0]])


class EliminateOptionalHasElement(OpRule):
    """Replace `OptionalHasElement` by its answer, where it reads an `Optional` or what is no optional at all."""

    name = "eliminate_optional_has_element"
    ops = ("OptionalHasElement",)
    peers: ClassVar[dict[str, str]] = {"onnxsim": "eliminate_optional_has_element"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look one step up."""
        value = node.input(0)
        first = value.producer if value is not None else None
        if value is None or _is_given(value):
            return rw.replace(node, [rw.constant(np.array(value is not None))])
        if first is None or first.op != "Optional":
            return None
        return rw.replace(node, [rw.constant(np.array(bool(first.inputs) and first.inputs[0] is not None))])


_ELEMENTS_KNOWN = ("SequenceConstruct", "SequenceEmpty")


def _producer(node: Node) -> Node | None:
    value = node.input(0)
    return value.producer if value is not None else None


def _elements(node: Node) -> list[Value] | Mismatch | None:
    """The elements of the sequence that a node reads first, when it is known what they are and they can be read."""
    first = _producer(node)
    if first is None or first.op not in _ELEMENTS_KNOWN:
        return None
    elements = [value for value in first.inputs if value is not None]
    hidden = next((value for value in elements if not is_visible(value, node.graph)), None)
    return elements if hidden is None else Mismatch("{} is hidden where it would be read", hidden.name)


def _elements_to_change(node: Node) -> list[Value] | Mismatch | None:
    """The elements of a sequence of which another one is to be made."""
    elements = _elements(node)
    sequence = node.input(0)
    if isinstance(elements, list) and len(elements) > _MOST_COPIED and sequence is not None and not sequence.one_use:
        return Mismatch("{} has {} elements and other readers", sequence.name, len(elements))
    return elements


def _position(node: Node, index: int, default: int, count: int) -> int | Mismatch:
    """A position among `count`, counted from the front; negative ones are counted from the end of the elements."""
    value = node.input(index)
    stated = (default,) if value is None else constant_ints(value)
    if isinstance(stated, Mismatch):
        return stated
    elements = count - 1 if node.op == "SequenceInsert" else count
    if len(stated) != 1 or not -elements <= stated[0] < count:
        return Mismatch("there is no position {} among {}", stated[0] if stated else None, elements)
    return stated[0] + elements if stated[0] < 0 else stated[0]


def _is_given(value: Value) -> bool:
    """Whether the type of a value says that it is no optional."""
    known = value.type
    return value.dtype is not None or (isinstance(known, onnx.TypeProto) and known.HasField("sequence_type"))
