"""Sequences with known elements, and optionals with known contents."""

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
"""Most elements of a sequence that is duplicated for another reader."""


class EliminateSequenceAtConstruct(OpRule):
    """Replace a `SequenceAt` of a `SequenceConstruct` with the element."""

    ops = ("SequenceAt",)
    peers = {"onnxsim": "eliminate_sequence_at_construct"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        return rw.replace(node, [Elements.of(node.operand(0)).at(node.operand(1).integer())])


class EliminateSequenceLengthConstruct(OpRule):
    """Replace the `SequenceLength` of a `SequenceConstruct` or `SequenceEmpty` with the number of its elements."""

    ops = ("SequenceLength",)
    peers = {"onnxsim": "eliminate_sequence_length_construct"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        count = len(Elements.of(node.operand(0)).values)
        return store(rw, node, [np.array(count, np.int64)])


class ChangedSequence(OpRule):
    """Fuse a chain of changes to a sequence with known elements into one `SequenceConstruct`.

    Only the last change of a chain is replaced: writing each intermediate sequence would take quadratic time.
    """

    position: ClassVar[int]
    """The index of the operand with the position of the change."""

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
        """Whether the only reader of the result is another change at a known position."""
        reader = node.result.read_by(*self.ops)
        if reader is None or reader.graph is not node.graph:
            return False
        position = reader.input(self.position)
        return reader.operand(0) is node.result and (position is None or position.is_const)

    @abstractmethod
    def change(self, elements: Elements, node: Node, position: int | None) -> Elements:
        """The elements after the change; position None stands for the end."""


class FuseSequenceInsertIntoConstruct(ChangedSequence):
    """Fuse a `SequenceInsert` into a sequence with known elements into one `SequenceConstruct`."""

    ops = ("SequenceInsert",)
    peers = {"onnxscript": "FoldConstantsPass"}
    position = 2

    def change(self, elements: Elements, node: Node, position: int | None) -> Elements:
        return elements.inserting(node.operand(1), position)


class FuseSequenceEraseIntoConstruct(ChangedSequence):
    """Fuse a `SequenceErase` from a sequence with known elements into one `SequenceConstruct`."""

    ops = ("SequenceErase",)
    peers = {"onnxscript": "FoldConstantsPass"}
    position = 1

    def change(self, elements: Elements, node: Node, position: int | None) -> Elements:
        return elements.erasing(-1 if position is None else position)


class ReplaceConcatFromSequenceWithConcat(OpRule):
    """Replace a `ConcatFromSequence` of known elements with `Concat`."""

    ops = ("ConcatFromSequence",)
    peers = {"onnxscript": "FoldConstantsPass"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Write the `Concat`; for a new axis, each element is unsqueezed first."""
        parts, axis, is_new = Elements.of(node.operand(0)).values, node.attr("axis"), node.attr("new_axis", 0)
        if not parts:
            raise Decline("there is nothing to concatenate")
        _check_sizes(parts, None if is_new else axis)
        return rw.replace(node, [rw.op("Concat", *(unsqueezed(parts, axis, rw) if is_new else parts), axis=axis)])


def _check_sizes(parts: Sequence[Value], axis: int | None) -> None:
    """Decline if elements differ along other axes: that is invalid, though a runtime may skip empty elements."""
    known = [(part, part.shape) for part in parts if part.shape is not None]
    for (one, a), (other, b) in pairwise(known):
        joined = axis % len(a) if axis is not None and a else None
        differ = len(a) != len(b) or any(
            isinstance(here, int) and isinstance(there, int) and here != there
            for at, (here, there) in enumerate(zip(a, b, strict=True))
            if at != joined
        )
        if differ:
            raise Decline("the shapes of {} and {} do not match", one.name, other.name)


class EliminateOptionalGetElement(OpRule):
    """Replace an `OptionalGetElement` of an `Optional`, or of a value that is no optional, with the value."""

    ops = ("OptionalGetElement",)
    peers = {"onnxsim": "eliminate_optional_get_element"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        element = held(node.operand(0))
        if element is None:
            raise Decline("the optional is empty")
        return rw.replace(node, [element])


class EliminateOptionalHasElement(OpRule):
    """Replace an `OptionalHasElement` of an `Optional`, or of a value that is no optional, with a constant."""

    ops = ("OptionalHasElement",)
    peers = {"onnxsim": "eliminate_optional_has_element"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Store whether there is an element; an omitted input has none."""
        optional = node.input(0)
        return store(rw, node, [np.array(optional is not None and held(optional) is not None)])
