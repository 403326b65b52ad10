"""Conditions after the operators match: uses, attributes, element types, constants; each declines with a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir.forms import MOVED
from graphopt.ir.types import FLOAT_TYPES
from graphopt.match.factors import Factors, close, number
from graphopt.match.pattern import UNSET, Apply, Const, Rest, Scalar, Var

if TYPE_CHECKING:
    from graphopt.ir import Node, Value
    from graphopt.match.result import Match


def check(m: Match) -> None:
    """Check all conditions besides the operators, and bind attributes and numbers.

    Raises:
        Decline: one does not hold.
    """
    for node, owner in m.owners.items():
        if node.graph is not m.root.graph:
            raise Decline("{} is computed in an outer graph", node.result.name)
        if node is not m.root and not (isinstance(owner, Apply) and owner.shared):
            _check_uses(m, node)
    for node, owner in m.owners.items():
        if isinstance(owner, Apply):
            _check_inputs(node, owner)
            if owner.attrs or not owner.other_attrs:
                _check_attributes(m, node, owner)
    for pattern, value in m.values.items():
        maker = m.owners.get(value.producer) if value.producer is not None else None
        if maker is not None and not getattr(maker, "shared", False):
            raise Decline("{} has other readers", value.name)  # a replaced value cannot be an input as well
        _LEAVES[type(pattern)](m, pattern, value)
    for product, scale in m.products:
        _check_product(m, product, scale)


def _check_uses(m: Match, node: Node) -> None:
    """Values between the root and the inputs would be removed, so they must have no other readers."""
    for value in node.outputs:
        if value is not None and (value.output_count or any(user not in m.owners for user in value.users)):
            raise Decline("{} has other readers", value.name)


def _check_inputs(node: Node, apply: Apply) -> None:
    most = len(apply.inputs)
    if len(node.inputs) <= most or apply.is_open or any(isinstance(pattern, Rest) for pattern in apply.inputs):
        return
    moved = MOVED.get(node.op, {})
    mentioned = {form.index for name, form in moved.items() if name in apply.attrs}
    for index, value in enumerate(node.inputs[most:], most):
        if value is not None and index not in mentioned:
            raise Decline("{} has {} inputs, the pattern has {}", node.op, len(node.inputs), most)


def _check_attributes(m: Match, node: Node, apply: Apply) -> None:
    for name, attr in apply.attrs.items():
        found = _setting(node, name)
        if attr.equals is not UNSET:
            if found is None and _lacks(node, name):
                found = attr.equals
            if found != attr.equals:
                raise Decline("attribute {} of {} is {}, expected {}", name, node.op, found, attr.equals)
        if attr.name:
            found = attr.default if found is None else found
            if m.bound.setdefault(attr.name, found) != found:
                raise Decline(
                    "attribute {} of {} differs within the pattern: {} and {}", name, node.op, m.bound[attr.name], found
                )
    if not apply.other_attrs and node.attrs:
        _check_unmentioned(node, apply)


def _setting(node: Node, name: str) -> Any:
    """An attribute, or the operand that replaces it in newer opsets."""
    form = MOVED.get(node.op, {}).get(name)
    if form is None:
        return node.attr(name)
    return node.ints(name) if form.rank else node.number(name)


def _lacks(node: Node, name: str) -> bool:
    """Whether the operator lacks the attribute at this opset."""
    schema = node.schema
    return schema is not None and name not in schema.attributes


def _check_unmentioned(node: Node, apply: Apply) -> None:
    """Decline if an attribute that the pattern does not mention differs from its default, unless it has no effect."""
    schema = node.schema
    defaults = schema.defaults if schema is not None else {}
    for name, found in node.attrs.items():
        if name in apply.attrs or (name == "noop_with_empty_axes" and node.ints("axes")):
            continue
        if name not in defaults or found != defaults[name]:
            raise Decline("attribute {} of {} is {}", name, node.op, _plain(found))


def _check_constant(m: Match, const: Const, value: Value) -> None:
    if not value.is_const:
        raise Decline("{} is not constant", value.name)


def _check_type(m: Match, var: Var, value: Value) -> None:
    if var.dtypes is not None and value.dtype not in var.dtypes:
        expected = " or ".join(TensorProto.DataType.Name(dtype).lower() for dtype in sorted(var.dtypes))
        expected = "a float" if var.dtypes == FLOAT_TYPES else _FULL_NAMES.get(expected, expected)
        raise Decline("the element type of {} is not {}", value.name, expected)
    if var.ranks is not None and len(value.dims()) not in var.ranks:
        raise Decline("{} has rank {}, expected {}", value.name, value.rank, " or ".join(map(str, sorted(var.ranks))))


_FULL_NAMES = {"float": "float32", "double": "float64"}


def _check_number(m: Match, scalar: Scalar, value: Value) -> None:
    found = number(value, "fiub")
    if found is None:
        raise Decline("{} is not a constant number", value.name)
    if not scalar.fits(found):
        raise Decline("{} is {}, expected {}", value.name, found, scalar.value)
    rank = value.rank or 0
    for reader in value.users if rank else ():
        others = [v for v in reader.inputs if v is not None and v is not value]
        if reader in m.owners and not any(rank <= (v.rank or 0) for v in others):
            raise Decline("broadcasting {} may raise the rank of the result", value.name)
    if scalar.name:
        m.bound[scalar.name] = found


_LEAVES: dict[type, Callable[[Match, Any, Value], None]] = {
    Var: _check_type, Const: _check_constant, Scalar: _check_number,
}  # fmt: skip


_LARGEST = float(np.finfo(np.float32).max)


def _check_product(m: Match, product: Factors, scale: float | str) -> None:
    if isinstance(scale, str):
        # The reciprocal of a constant may overflow although division by the constant does not.
        if not abs(product.scale) <= _LARGEST:
            raise Decline("the factor that multiplies {} is not finite in float32", product.values[0].name)
        m.bound[scale] = product.scale
    elif not close(product.scale, scale):
        raise Decline("{} is multiplied by {:.7g}, expected {:.7g}", product.values[0].name, product.scale, scale)
    if product.rank and not any(product.rank <= (value.rank or 0) for value in product.values):
        raise Decline("broadcasting the constants may raise the rank of {}", product.values[0].name)


def _plain(found: Any) -> Any:
    """An attribute's value for a reason: numbers and strings, but no tensors or protos."""
    if isinstance(found, (int, float, str)):
        return found
    if isinstance(found, tuple) and all(isinstance(each, (int, float, str)) for each in found):
        return list(found)
    return "given"
