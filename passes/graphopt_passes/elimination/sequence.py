"""Sequences that are built only to be taken apart, and optionals of which it is known what they hold."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

import numpy as np

from graphopt.operators.axes import unsqueezed
from graphopt.operators.sequence import Elements, held
from graphopt.rewrite import Decline, Node, OpRule, Outcome, Rewriter, Value
from graphopt_passes.folding.store import store

_MOST_COPIED = 32
"""A longer list of elements is not written a second time for another reader."""


class EliminateSequenceAtConstruct(OpRule):
    """Take an element directly where `SequenceAt` reads a `SequenceConstruct`."""

    ops = ("SequenceAt",)
    peers = {"onnxsim": "eliminate_sequence_at_construct"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        return rw.replace(node, [Elements.of(node.operand(0)).at(node.operand(1).integer())])


class EliminateSequenceLengthConstruct(OpRule):
    """Replace the length of a `SequenceConstruct` or `SequenceEmpty` by the number of its elements."""

    ops = ("SequenceLength",)
    peers = {"onnxsim": "eliminate_sequence_length_construct"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        count = len(Elements.of(node.operand(0)).values)
        return store(rw, node, [np.array(count, np.int64)])


class ChangedSequence(OpRule):
    """Make one `SequenceConstruct` of a sequence whose elements are known and its changes, one after the other.

    The last of them does so for all: a list of each length on the way would take quadratic time.
    """

    position: ClassVar[int]
    """The operand that says where."""

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        if self._goes_on(node):
            raise Decline
        changes = [node]
        while (maker := changes[-1].operand(0).made_by(*self.ops)) is not None and self._goes_on(maker):
            changes.append(maker)
        sequence = changes[-1].operand(0)
        elements = Elements.of(sequence)
        if len(elements.values) > _MOST_COPIED and not sequence.one_use:
            raise Decline("{} has {} elements and other readers", sequence.name, len(elements.values))
        for each in reversed(changes):
            position = each.input(self.position)
            elements = self.change(elements, each, None if position is None else position.integer())
        return rw.replace(node, [elements.write(rw)])

    def _goes_on(self, node: Node) -> bool:
        """Whether nothing reads the result but another such change, at a place that is known."""
        reader = node.result.read_by(*self.ops)
        if reader is None or reader.graph is not node.graph:
            return False
        position = reader.input(self.position)
        return reader.operand(0) is node.result and (position is None or position.is_const)

    @abstractmethod
    def change(self, elements: Elements, node: Node, position: int | None) -> Elements:
        """What a node makes of the elements; no position stands for the end."""


class FuseSequenceInsertIntoConstruct(ChangedSequence):
    """Make one `SequenceConstruct` of `SequenceInsert` into a sequence whose elements are known."""

    ops = ("SequenceInsert",)
    peers = {"onnxscript": "FoldConstantsPass"}
    position = 2

    def change(self, elements: Elements, node: Node, position: int | None) -> Elements:
        return elements.inserting(node.operand(1), position)


class FuseSequenceEraseIntoConstruct(ChangedSequence):
    """Leave an element out of a `SequenceConstruct` where `SequenceErase` would take it away again."""

    ops = ("SequenceErase",)
    peers = {"onnxscript": "FoldConstantsPass"}
    position = 1

    def change(self, elements: Elements, node: Node, position: int | None) -> Elements:
        return elements.erasing(-1 if position is None else position)


class ReplaceConcatFromSequenceWithConcat(OpRule):
    """Replace `ConcatFromSequence` by `Concat` of the elements where they are known."""

    ops = ("ConcatFromSequence",)
    peers = {"onnxscript": "FoldConstantsPass"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Join them; along a new axis each element gets that axis first."""
        parts, axis, is_new = Elements.of(node.operand(0)).values, node.attr("axis"), node.attr("new_axis", 0)
        if not parts:
            raise Decline("there is nothing to join")
        _check_sizes(parts, None if is_new else axis)
        return rw.replace(node, [rw.op("Concat", *(unsqueezed(parts, axis, rw) if is_new else parts), axis=axis)])


def _check_sizes(parts: Sequence[Value], axis: int | None) -> None:
    """Decline where two elements differ beside an axis: a runtime may pass over one that is empty, no model may."""
    known = [(part, part.shape) for part in parts if part.shape is not None]
    for (one, a), (other, b) in pairwise(known):
        joined = axis % len(a) if axis is not None and a else None
        differ = len(a) != len(b) or any(
            isinstance(here, int) and isinstance(there, int) and here != there
            for at, (here, there) in enumerate(zip(a, b, strict=True))
            if at != joined
        )
        if differ:
            raise Decline("{} and {} do not fit together", one.name, other.name)


class EliminateOptionalGetElement(OpRule):
    """Take the value directly where `OptionalGetElement` reads an `Optional`, or what is no optional at all."""

    ops = ("OptionalGetElement",)
    peers = {"onnxsim": "eliminate_optional_get_element"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        element = held(node.operand(0))
        if element is None:
            raise Decline("the optional is empty")
        return rw.replace(node, [element])


class EliminateOptionalHasElement(OpRule):
    """Replace `OptionalHasElement` by its answer, where it reads an `Optional` or what is no optional at all."""

    ops = ("OptionalHasElement",)
    peers = {"onnxsim": "eliminate_optional_has_element"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Whether it holds anything; an input that is left out does not."""
        optional = node.input(0)
        return store(rw, node, [np.array(optional is not None and held(optional) is not None)])
