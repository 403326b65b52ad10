"""`LabelEncoder` of `ai.onnx.ml`: which of several equal keys applies, and whether NaN is a key."""

from __future__ import annotations

import math
from collections.abc import Iterator

from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir import Node
from graphopt.opsets import automatic
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.registry import down, up
from graphopt.rewrite import Rewriter


@up(2, "LabelEncoder")
def classes_as_keys(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Convert a list of classes, numbered in order, to keys and values; the last of equal classes applies."""
    classes = node.attrs.get("classes_strings") or ()
    places = {text: number for number, text in enumerate(classes)}
    is_text = node.operand(0).dtype == TensorProto.STRING
    sides = {"keys_strings": tuple(places), "values_int64s": tuple(places.values())}
    if not is_text:
        sides = {"keys_int64s": tuple(range(len(classes))), "values_strings": classes}
    yield
    rw.set_attr(node, classes_strings=None, **sides)


_VALUES = ("values_floats", "values_int64s", "values_strings")


@up(4, "LabelEncoder")
def without_keys_that_are_nan(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Drop NaN keys, which equal nothing before opset 4."""
    keys = node.attrs.get("keys_floats") or ()
    kept = [at for at, key in enumerate(keys) if not math.isnan(key)]
    if len(kept) < len(keys):
        if not kept:
            raise Decline("its only key is NaN, which matches NaN only from opset 4 on")
        stated = {name: node.attrs[name] for name in ("keys_floats", *_VALUES) if name in node.attrs}
        rw.set_attr(node, **{name: tuple(values[at] for at in kept) for name, values in stated.items()})
    yield from automatic.up(node, change, rw)


@down(4, "LabelEncoder")
def of_keys_that_are_numbers(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Decline NaN keys, which equal NaN from opset 4 on only."""
    if any(map(math.isnan, node.attrs.get("keys_floats") or ())):
        raise Decline("a key is NaN, which matches NaN only from opset 4 on")
    yield from automatic.down(node, change, rw)
