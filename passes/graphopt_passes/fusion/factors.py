"""Products taken apart, so that a rule need not know in which order an exporter multiplies."""

from __future__ import annotations

from dataclasses import dataclass

from graphopt.ir import Graph, Node, Value

_DEEPEST = 5


@dataclass(slots=True)
class Factors:
    """A product.

    Attributes:
        values: the factors that are not constant; powers of 2 and 3 stand twice and thrice.
        scale: the product of the constant numbers.
        rank: the highest rank of those, which all have one element.
    """

    values: list[Value]
    scale: float = 1.0
    rank: int = 0

    def is_of(self, x: Value, times: int, scale: float) -> bool:
        """Whether it is `scale` times a power of `x`."""
        return self.values == [x] * times and close(self.scale, scale)


def close(a: float, b: float) -> bool:
    """Whether two constants are the same, but for the digits that an exporter wrote."""
    return abs(a - b) <= 1e-5 * abs(b)


def number(value: Value | None) -> float | None:
    """The number that a constant of one element holds."""
    array = value.const(max_bytes=64) if value is not None else None
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 and array.dtype.kind == "f" else None


def exponent(value: Value | None) -> float | None:
    """The number that a constant of one element holds, which may be an integer, as for `Pow` from opset 12 on."""
    array = value.const(max_bytes=64) if value is not None else None
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 and array.dtype.kind in "fiu" else None


def factors(value: Value, graph: Graph) -> Factors:
    """Take a value apart into its factors, through `Mul`, `Div` and `Pow` that nothing else reads."""
    found = Factors([])
    _collect(value, graph, found, 0)
    return found


def factors_of(node: Node) -> Factors:
    """The factors of what a `Mul` or `Div` computes, whoever reads it."""
    found = Factors([])
    _expand(node, found, 0)
    return found


def _collect(value: Value, graph: Graph, found: Factors, depth: int) -> None:
    node = value.producer
    if (
        node is None
        or not value.one_use
        or node.graph is not graph
        or depth == _DEEPEST
        or not _expand(node, found, depth)
    ):
        found.values.append(value)


def _expand(node: Node, found: Factors, depth: int) -> bool:
    left, right = node.input(0), node.input(1)
    if left is None or right is None or node.op not in ("Mul", "Div", "Pow"):
        return False
    if node.op == "Mul":
        pairs = ((left, number(left)), (right, number(right)))
        for value, constant in pairs:
            if constant is None:
                _collect(value, node.graph, found, depth + 1)
            else:
                _scale(found, value, constant)
        return True
    constant = exponent(right) if node.op == "Pow" else number(right)
    if constant is None:
        return False
    if node.op == "Div" and constant:
        _collect(left, node.graph, found, depth + 1)
        _scale(found, right, 1 / constant)
        return True
    if node.op == "Pow" and constant in (2.0, 3.0):
        found.values.extend([left] * int(constant))
        found.rank = max(found.rank, right.rank or 0)
        return True
    return False


def _scale(found: Factors, value: Value, constant: float) -> None:
    found.scale *= constant
    found.rank = max(found.rank, value.rank or 0)
