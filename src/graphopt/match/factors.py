"""Products flattened into factors, so that rules are independent of the order of multiplication."""

from __future__ import annotations

from dataclasses import field

from graphopt.ir import Node, Value
from graphopt.records import dataclass

_DEEPEST = 5


@dataclass(slots=True, eq=False)
class Factors:
    """A product.

    Attributes:
        values: the factors that are not constant; with powers of 2 and 3, repeated.
        scale: the product of the constants of one element.
        rank: the highest rank of these constants.
        nodes: the operators that multiply or negate, the last one first.
    """

    values: list[Value] = field(default_factory=list)
    scale: float = 1.0
    rank: int = 0
    nodes: list[Node] = field(default_factory=list)

    def times(self, value: Value, constant: float) -> None:
        """Multiply by a constant of one element."""
        self.scale *= constant
        self.rank = max(self.rank, value.rank or 0)


def close(a: float, b: float) -> bool:
    """Whether two constants are equal up to the precision of exporters."""
    return a == b or abs(a - b) <= 1e-5 * abs(b)


def number(value: Value | None, kinds: str = "f") -> float | None:
    """The number in a constant of one element; None for other values.

    Args:
        value: the value; None for an omitted input.
        kinds: NumPy's letters of the accepted kinds of types; "fiu" for exponents, which may be integers.
    """
    tensor = value.constant_tensor if value is not None else None
    if tensor is None or tensor.numel != 1 or tensor.nbytes > _WIDEST:
        return None
    array = tensor.array()
    return float(array.reshape(-1)[0]) if array.dtype.kind in kinds else None


_WIDEST = 16
"""Bytes of the widest numeric type."""


def factors_of(node: Node) -> Factors:
    """The factors of the result of a `Mul`, `Div`, `Pow` or `Neg`, through operands without other readers."""
    found = Factors()
    if not _expand(node, found, 0):
        found.values.append(node.result)
    return found


def _collect(value: Value, reader: Node, found: Factors, depth: int) -> None:
    node = value.producer
    inside = node is not None and value.one_use and node.graph is reader.graph and depth < _DEEPEST
    if node is None or not inside or not _expand(node, found, depth):
        found.values.append(value)


def _expand(node: Node, found: Factors, depth: int) -> bool:
    if node.op == "Neg":
        found.nodes.append(node)
        found.scale = -found.scale
        _collect(node.operand(0), node, found, depth + 1)
        return True
    if node.op not in ("Mul", "Div", "Pow"):
        return False
    left, right = node.operand(0), node.operand(1)
    if node.op == "Mul":
        found.nodes.append(node)
        for value in (left, right):
            constant = number(value)
            if constant is None:
                _collect(value, node, found, depth + 1)
            else:
                found.times(value, constant)
        return True
    constant = number(right, "fiu" if node.op == "Pow" else "f")
    if node.op == "Div" and constant:
        found.nodes.append(node)
        _collect(left, node, found, depth + 1)
        found.times(right, 1 / constant)
        return True
    if node.op == "Pow" and constant in (2.0, 3.0):
        found.nodes.append(node)
        found.values.extend([left] * int(constant))
        found.rank = max(found.rank, right.rank or 0)
        return True
    return False
