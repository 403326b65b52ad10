"""The registry of conversion steps that do not follow from the schemas."""

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
"""A conversion step for a node. It reads the node, and may expand it, while the graph still has the version of the
node. A generator resumes after its `yield` once the graph has the other version; there it reads operands again, since
their producers may have been replaced. After a second `yield` it resumes when all other nodes are written. Raises
`Decline` if the node cannot be converted."""

UP: dict[tuple[str, int], tuple[Meaning, ...]] = {}
DOWN: dict[tuple[str, int], tuple[Meaning, ...]] = {}
"""For each operator and version that changes it: the steps to try instead of the one that follows from the schemas."""

AT_LAST: dict[tuple[str, int], tuple[Meaning, ...]] = {}
"""Steps to try downwards if all others declined, even after operands that follow from constants were computed."""


def up(version: int, *op_types: str) -> Callable[[Any], Any]:
    """Register a step that converts operators to a version from the previous one."""
    return _entering(UP, version, op_types)


def down(version: int, *op_types: str) -> Callable[[Any], Any]:
    """Register a step that converts operators from a version to the previous one."""
    return _entering(DOWN, version, op_types)


def down_at_last(version: int, *op_types: str) -> Callable[[Any], Any]:
    """Register a last resort that writes out operators of which too little is known for shorter forms."""
    return _entering(AT_LAST, version, op_types)


def number_like(x: Value, number: float) -> np.ndarray:
    """A number in the element type of a value.

    Raises:
        Decline: the type is not known, or not numeric.
    """
    if x.element_type() == TensorProto.STRING:
        raise Decline("{} holds strings, not numbers", x.name)
    return np.asarray(number, tensor_dtype_to_np_dtype(x.element_type()))


def typed(rw: Rewriter, x: Value) -> Callable[..., Value]:
    """A builder of operators that turns plain numbers into constants of a value's element type.

    Raises:
        Decline: the type is not known.
    """
    return of_kind(rw, number_like(x, 0).dtype)


def of_kind(rw: Rewriter, kind: Any) -> Callable[..., Value]:
    """A builder of operators that turns plain numbers into constants of a NumPy type."""

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
