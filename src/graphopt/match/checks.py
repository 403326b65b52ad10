"""What generated matchers call once the operators fit: slower questions, answered with a reason."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import onnx

from graphopt.ir import Tensor
from graphopt.match.mismatch import Mismatch

if TYPE_CHECKING:
    from graphopt.ir import Graph, Node, Value

MOST_READERS = 64
"""How many readers of a value are looked at to find a further root: a value with thousands must not cost thousands."""


def used_elsewhere(value: Value) -> Mismatch:
    """The reason why a value that would disappear cannot."""
    if any(user.graph is not value.graph for user in value.users):
        return Mismatch("value {!r} is read by a subgraph", value.name)
    if value.output_count:
        return Mismatch("value {!r} is a graph output", value.name)
    return Mismatch("value {!r} has {} uses", value.name, value.uses)


def unmentioned(
    node: Node, most: int | None, listed: Collection[int] | None, mentioned: Collection[str] | None
) -> Mismatch | None:
    """A reason if the node has something that the pattern does not speak of.

    Args:
        node: the node.
        most: how many inputs the pattern has; None if there may be more.
        listed: the outputs that may be used; None for all.
        mentioned: the attributes that may hold anything here, since they are checked by themselves; None for all.
    """
    if most is not None and any(value is not None for value in node.inputs[most:]):
        return Mismatch("{} has {} inputs, the pattern {}", node.op, len(node.inputs), most)
    if listed is not None:
        for index, value in enumerate(node.outputs):
            if index not in listed and value is not None and (value.users or value.output_count):
                return Mismatch("output {} of {} ({!r}) is used", index, node.op, value.name)
    return None if mentioned is None else _off_default(node, mentioned)


def too_few(node: Node, least: int) -> Mismatch:
    """The reason for inputs that the pattern has and the node has not."""
    return Mismatch("{} has {} inputs, the pattern {}", node.op, len(node.inputs), least)


def given(node: Node, index: int) -> Mismatch:
    """The reason for an input that the pattern leaves out and the node has."""
    return Mismatch("input {} of {} is given, the pattern leaves it out", index, node.op)


def outside(value: Value) -> Mismatch:
    """The reason for a value that an outer graph computes."""
    return Mismatch("value {!r} is computed in an outer graph", value.name)


def not_equal(node: Node, name: str, expected: Any) -> Mismatch | None:
    """A reason if an attribute has not the expected value, once a quick comparison said that it may not."""
    found = node.attr(name)
    if found is None:
        schema = node.schema
        if schema is not None and name not in schema.attributes:
            return None
        return Mismatch("attribute {} of {} is not set, expected {}", name, node.op, expected)
    if _same(found, expected):
        return None
    return Mismatch("attribute {} of {} is {}, expected {}", name, node.op, _plain(found), expected)


def not_set(node: Node, name: str) -> Mismatch:
    """The reason for an attribute that the rule needs and that has neither value nor default."""
    return Mismatch("attribute {} of {} is not set", name, node.op)


def differs(node: Node, name: str, found: Any, expected: Any) -> Mismatch:
    """The reason for two attributes that should be the same."""
    return Mismatch("attribute {} of {} is {}, expected {} as before", name, node.op, _plain(found), _plain(expected))


def wrong_dtype(value: Value, dtypes: Collection[int]) -> Mismatch:
    """The reason for an element type that does not fit."""
    dtype = value.dtype
    found = "of unknown type" if dtype is None else dtype_name(dtype)
    return Mismatch("value {!r} is {}, expected {}", value.name, found, _either(dtype_name(d) for d in sorted(dtypes)))


def wrong_rank(value: Value, ranks: Collection[int]) -> Mismatch:
    """The reason for a number of axes that does not fit."""
    rank = value.rank
    found = "unknown rank" if rank is None else f"rank {rank}"
    return Mismatch("value {!r} has {}, expected {}", value.name, found, _either(str(r) for r in sorted(ranks)))


def not_constant(value: Value) -> Mismatch:
    """The reason for a value that is no constant."""
    if value.is_input:
        what = "an overridable initializer" if value.tensor is not None else "a graph input"
    elif value.producer is not None:
        what = f"computed by {value.producer.op}"
    else:
        what = "not known"
    return Mismatch("value {!r} is not a constant (it is {})", value.name, what)


def climb(value: Value | None, path: Sequence[Collection[str]], graph: Graph) -> list[Node]:
    """The nodes at the end of chains of operators that start at the readers of a value.

    Args:
        value: where to start.
        path: the operators of the chains, the reader of `value` first.
        graph: where all of them must be.
    """
    values: list[Value | None] = [value]
    found: list[Node] = []
    for ops in path:
        readers = (user for v in values if v is not None for user in islice(v.users, MOST_READERS))
        fitting = (user for user in readers if user.op in ops and user.graph is graph)
        found = list(dict.fromkeys(islice(fitting, MOST_READERS)))
        values = [v for node in found for v in node.outputs]
    return found


def dtype_name(dtype: int) -> str:
    """`float16` for 10, as ONNX names element types."""
    try:
        return str(onnx.TensorProto.DataType.Name(dtype)).lower()
    except ValueError:
        return f"type {dtype}"


def _off_default(node: Node, mentioned: Collection[str]) -> Mismatch | None:
    """A reason if another attribute differs from its default at this opset."""
    schema = node.schema
    defaults = schema.defaults if schema is not None else {}
    for name, found in node.attrs.items():
        if name in mentioned:
            continue
        if name not in defaults:
            return Mismatch("attribute {} of {} is given, the pattern does not mention it", name, node.op)
        expected = defaults[name]
        if not _same(found, expected):
            return Mismatch("attribute {} of {} is {}, expected the default {}", name, node.op, _plain(found), expected)
    return None


def _either(names: Any) -> str:
    return " or ".join(names)


def _same(found: Any, expected: Any) -> bool:
    if isinstance(found, Tensor) and isinstance(expected, Tensor):
        return found.key() == expected.key()
    return bool(found == expected)


def _plain(found: Any) -> Any:
    """An attribute's value as a reason may keep it: numbers and strings, but no tensors and no protos."""
    if found is None or isinstance(found, (int, float, str, bytes)):
        return found
    if isinstance(found, tuple) and all(isinstance(v, (int, float, str, bytes)) for v in found):
        return list(found)
    return f"a {type(found).__name__}"
