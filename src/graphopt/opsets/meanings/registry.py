"""Where steps with a meaning of their own are listed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.opsets.changes import Change
from graphopt.rewrite import Rewriter

Step = Iterator[None] | None
Meaning = Callable[[Node, Change, Rewriter], Step]
"""What a step does to a node. It reads the node, and may write it out, while the graph still has the version of the
node. A generator goes on behind its `yield` once the graph has the other version, where it reads operands again: what
computed them may have been replaced. Behind a second one it goes on when all other nodes are written. Raises `Decline`
where it cannot."""

UP: dict[tuple[str, int], tuple[Meaning, ...]] = {}
DOWN: dict[tuple[str, int], tuple[Meaning, ...]] = {}
"""For each operator and version that changes it: what is tried in the place of what follows from the schemas."""

AT_LAST: dict[tuple[str, int], tuple[Meaning, ...]] = {}
"""What is tried on the way down where all else declined, though operands were computed that follow from constants."""


def up(version: int, *op_types: str) -> Callable[[Any], Any]:
    """Enter what brings operators to a version from the one before."""
    return _entering(UP, version, op_types)


def down(version: int, *op_types: str) -> Callable[[Any], Any]:
    """Enter what brings operators from a version to the one before."""
    return _entering(DOWN, version, op_types)


def down_at_last(version: int, *op_types: str) -> Callable[[Any], Any]:
    """Enter what writes operators out of which not enough is known for anything shorter."""
    return _entering(AT_LAST, version, op_types)


def number_like(x: Value, number: float) -> np.ndarray:
    """A number of the element type of a value.

    Raises:
        Decline: that is not known, or has no numbers.
    """
    if x.element_type() == TensorProto.STRING:
        raise Decline("{} has strings, and no number", x.name)
    return np.asarray(number, tensor_dtype_to_np_dtype(x.element_type()))


def typed(rw: Rewriter, x: Value) -> Callable[..., Value]:
    """Makes operators in which plain numbers stand for constants of the element type of a value.

    Raises:
        Decline: that is not known.
    """
    return of_kind(rw, number_like(x, 0).dtype)


def of_kind(rw: Rewriter, kind: Any) -> Callable[..., Value]:
    """Makes operators in which plain numbers stand for constants of an element type of NumPy."""

    def make(op_type: str, *operands: Any, **attrs: Any) -> Value:
        given = (np.asarray(each, kind) if isinstance(each, (int, float)) else each for each in operands)
        return rw.op(op_type, *given, **attrs)

    return make


def _entering(
    table: dict[tuple[str, int], tuple[Meaning, ...]], version: int, op_types: tuple[str, ...]
) -> Callable[[Any], Any]:  # fmt: skip
    def enter(meaning: Any) -> Any:
        for op_type in op_types:
            key = op_type, version
            table[key] = (*table.get(key, ()), meaning)
        return meaning

    return enter
