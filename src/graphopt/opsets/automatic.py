"""Steps that follow from the schemas: attributes at their defaults that are added or dropped, or become operands.

Four tables hold facts that the schemas lack: the implicit value of an attribute before it was introduced, if that is
not its default; the value of an omitted operand, if that is not the default of the former attribute; renamed choices;
and choices that are newer than their attribute.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import defs
from onnx.helper import tensor_dtype_to_np_dtype

from graphopt.errors import Decline
from graphopt.ir import Node, Tensor, Value
from graphopt.ir.forms import MOVED, Moved
from graphopt.opsets.changes import Change, defaults, formal, is_required
from graphopt.opsets.types import carry, lacking
from graphopt.rewrite import Rewriter

MEANT: dict[tuple[str, int], dict[str, Any]] = {
    ("Clip", 6): {"min": -math.inf, "max": math.inf},
    ("Concat", 4): {"axis": 1},
    ("RoiAlign", 16): {"coordinate_transformation_mode": "output_half_pixel"},
}
"""The implicit value of an attribute before it was introduced, if that is not its default."""

LEFT_OUT: dict[tuple[str, int], dict[str, Any]] = {("DFT", 20): {"axis": -2}}
"""The value of an operand that is left out, if that is not the default of the attribute that it was."""

RENAMED: dict[tuple[str, int], dict[tuple[str, str], str]] = {
    ("GRU", 3): {("direction", "foward"): "forward"},
    ("GridSample", 20): {("mode", "bilinear"): "linear", ("mode", "bicubic"): "cubic"},
}
"""The new names of choices from a version on."""

CHOICES: dict[tuple[str, int], dict[str, tuple[str, ...]]] = {
    ("Pad", 19): {"mode": ("wrap",)},
    ("Resize", 11): {"mode": ("cubic",)},
    ("Resize", 19): {"coordinate_transformation_mode": ("half_pixel_symmetric",)},
    ("ScatterElements", 18): {"reduction": ("max", "min")},
    ("ScatterND", 18): {"reduction": ("max", "min")},
}
"""Choices that are newer than their attribute."""

IGNORED = frozenset({"consumed_inputs", "spatial", "output_sequence"})
"""Attributes that do not affect the result, or whose other value has a step of its own."""


def up(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Convert a node to the next version of its operator.

    Raises:
        Decline: that version cannot express it.
    """
    old, new = change.before, change.after
    if old is None:
        raise Decline("the standard has no {} before opset {}", node.op_type, change.version)
    if new is None:
        raise Decline("{} was removed in opset {}", node.op_type, change.version)
    if any(True for _ in lacking(node, new)):
        carry(node, change, new, rw)
        return
    _check_references(node, change)
    attrs = _kept_defaults(node, old, new, MEANT.get((node.op_type, change.version), {}))
    names = RENAMED.get((node.op_type, change.version), {})
    for name, value in {**node.attrs, **attrs}.items():
        if (name, _key(value)) in names:
            attrs[name] = names[name, _key(value)]
    operands: dict[int, Any] = {}
    moved = _moving(node.op_type, change.version)
    for name in sorted(set(old.attributes) - set(new.attributes)):
        form = next((f for key, f in moved.items() if name == key or name in f.names), None)
        value = node.attr(name)
        if form is not None and value is not None:
            operands[form.index] = _as_operand(node, value, form)
        elif form is None:
            _droppable(node, name, defaults(old).get(name), change)
        attrs[name] = None
    for name, attribute in new.attributes.items():
        if attribute.required and name not in {**node.attrs, **attrs}:
            raise Decline("{} is required from opset {} on", name, change.version)
    yield
    _write(node, operands, attrs, rw)


def stays(node: Node, change: Change) -> bool:
    """Whether a node, unchanged, means the same in the next version of its operator, as far as the schemas tell."""
    old, new, key = change.before, change.after, (node.op_type, change.version)
    if old is None or new is None or key in MEANT or key in RENAMED:
        return False
    types = {name: attribute.type for name, attribute in new.attributes.items()}
    if any(types.get(name) != attribute.type for name, attribute in old.attributes.items()):
        return False
    if any(attribute.required and name not in node.attrs for name, attribute in new.attributes.items()):
        return False
    if _kept_defaults(node, old, new, {}) or any(True for _ in lacking(node, new)):
        return False
    if any(is_required(each) and node.input(index) is None for index, each in enumerate(new.inputs)):
        return False
    return _are_wider(old.inputs, new.inputs, node.inputs) and _are_wider(old.outputs, new.outputs, node.outputs)


def _are_wider(before: Any, after: Any, values: Sequence[Value | None]) -> bool:
    """Whether the new parameters exist for all operands or results, and allow all types of the old ones."""
    for index, value in enumerate(values):
        here, there = formal(before, index), formal(after, index)
        if value is not None and (here is None or there is None or not here.types <= there.types):
            return False
    return True


def down(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Convert a node to the previous version of its operator.

    Raises:
        Decline: that version cannot express it.
    """
    old, new = change.before, change.after
    if old is None or new is None:
        raise Decline("there is no {} before opset {}", node.op_type, change.version)
    _check_references(node, change)
    _check_choices(node, change)
    if any(True for _ in lacking(node, old)):
        carry(node, change, old, rw)
        return
    attrs = _kept_defaults(node, new, old, {})
    meant = MEANT.get((node.op_type, change.version), {})
    for name in sorted(set(new.attributes) - set(old.attributes)):
        _droppable(node, name, meant.get(name, defaults(new).get(name)), change, stated=node.attr(name))
        attrs[name] = None
    names = {(name, new_): old_ for (name, old_), new_ in RENAMED.get((node.op_type, change.version), {}).items()}
    stated = {**node.attrs, **attrs}
    attrs.update({name: names[name, _key(value)] for name, value in stated.items() if (name, _key(value)) in names})
    _check_operands(node, old, change)
    operands: dict[int, Any] = {i: None for i in range(len(node.inputs)) if formal(old.inputs, i) is None}
    for name, form in _moving(node.op_type, change.version).items():
        attribute = form.names[-1] if form.names and form.names[-1] in old.attributes else name
        if attribute in old.attributes:
            attrs[attribute] = node.ints(name) if form.rank and form.dtype is np.int64 else _numbers(node, name, form)
            _check_single(attrs[attribute], old.attributes[attribute], change)
            if node.input(form.index) is None:
                attrs[attribute] = LEFT_OUT.get((node.op_type, change.version), {}).get(name, attrs[attribute])
        elif node.input(form.index) is not None:
            raise Decline("input {} requires opset {}", name, change.version)
        operands[form.index] = None
    for name, attribute_ in old.attributes.items():
        if attribute_.required and attrs.get(name, node.attrs.get(name)) is None:
            raise Decline("{} is required before opset {}", name, change.version)
    yield
    _write(node, {i: v for i, v in operands.items() if i < len(node.inputs)}, attrs, rw)
    if any(result is not None and formal(old.outputs, index) is None for index, result in enumerate(node.outputs)):
        fewer = rw.outputs(len(old.outputs), node.op_type, *node.inputs, domain=node.domain, **node.attrs)
        rw.replace(node, fewer)  # the other outputs have no uses, see _check_operands


def _key(value: Any) -> str:
    """The value of a string attribute; "" for any other."""
    return value if isinstance(value, str) else ""


def _moving(op_type: str, version: int) -> dict[str, Moved]:
    """The attributes of an operator that became operands at a version."""
    return {name: form for name, form in MOVED.get(op_type, {}).items() if form.since == version}


def _kept_defaults(
    node: Node, own: defs.OpSchema, other: defs.OpSchema, meant: dict[str, Any]
) -> dict[str, Any]:  # fmt: skip
    """Attributes to make explicit, since their defaults differ in the other version."""
    here, there = defaults(own), defaults(other)
    kept = {
        name: value
        for name, value in here.items()
        if name in other.attributes and name not in node.attrs and there.get(name) != value
    }
    return {**kept, **{name: value for name, value in meant.items() if name not in node.attrs}}


def _droppable(node: Node, name: str, default: Any, change: Change, stated: Any = None) -> None:
    """Check that an attribute can be left out."""
    value = node.attrs.get(name) if stated is None else stated
    if value is None or value == default or name in IGNORED:
        return
    shown = "a reference" if isinstance(value, onnx.AttributeProto) else value
    if isinstance(value, Tensor):
        shown = "a tensor"
    raise Decline(
        "{}={} {} opset {}", name, shown, "requires" if stated is not None else "was removed in", change.version
    )


def _check_references(node: Node, change: Change) -> None:
    """Check that no attribute whose choices change refers to an attribute of the function, of unknown value."""
    key = node.op_type, change.version
    for name in (*CHOICES.get(key, ()), *(name for name, _ in RENAMED.get(key, ()))):
        if isinstance(node.attrs.get(name), onnx.AttributeProto):
            raise Decline("an attribute refers to an attribute of the function")


def _check_choices(node: Node, change: Change) -> None:
    for name, later in CHOICES.get((node.op_type, change.version), {}).items():
        if node.attr(name) in later:
            raise Decline("{}={} requires opset {}", name, node.attr(name), change.version)


def _check_operands(node: Node, old: defs.OpSchema, change: Change) -> None:
    """Check that the previous version has all given operands and used outputs, and that it requires no others."""
    moved = {form.index for form in _moving(node.op_type, change.version).values()}
    for index, value in enumerate(node.inputs):
        parameter = formal(old.inputs, index)
        if value is not None and parameter is None and index not in moved:
            assert change.after is not None
            raise Decline("input {} requires opset {}", change.after.inputs[index].name, change.version)
        if value is None and parameter is not None and is_required(parameter):
            raise Decline("{} is required before opset {}", parameter.name, change.version)
    for index in range(len(node.inputs), len(old.inputs)):
        if is_required(old.inputs[index]) or index < old.min_input:
            raise Decline("{} is required before opset {}", old.inputs[index].name, change.version)
    for index, result in enumerate(node.outputs):
        if result is not None and result.uses and formal(old.outputs, index) is None:
            assert change.after is not None
            raise Decline("output {} requires opset {}", change.after.outputs[index].name, change.version)


def _numbers(node: Node, name: str, form: Moved) -> Any:
    """The contents of an operand: a number, or a list of floats."""
    if not form.rank:
        return node.number(name)
    value = node.input(form.index)
    return None if value is None else tuple(map(float, value.array().reshape(-1)))


def _check_single(number: Any, attribute: defs.OpSchema.Attribute, change: Change) -> None:
    """Check that a number is exact as a float attribute, which is single precision."""
    if attribute.type != defs.OpSchema.AttrType.FLOAT or number is None:
        return
    with np.errstate(over="ignore"):
        single = float(np.float32(number))
    if single != number and not math.isnan(number):
        raise Decline(
            "{} is {}, which float32 attributes cannot represent before opset {}",
            attribute.name,
            number,
            change.version,
        )


def _as_operand(node: Node, value: Any, form: Moved) -> np.ndarray:
    if isinstance(value, onnx.AttributeProto):
        raise Decline("an attribute refers to an attribute of the function")
    dtype: Any = form.dtype
    if dtype is None:
        dtype = tensor_dtype_to_np_dtype(node.operand(0).element_type())
    array = np.asarray(value, dtype)
    return array.reshape(-1) if form.rank else array.reshape(())


def _write(node: Node, operands: dict[int, Any], attrs: dict[str, Any], rw: Rewriter) -> None:
    changed = {name: value for name, value in attrs.items() if value is not None or name in node.attrs}
    if operands or changed:
        rw.set_inputs(node, operands, **changed)
