"""Float elements computed from sizes: integers, and fractions with a power of two as denominator.

None of them is -0.0, which is no integer: elements that may be -0.0 are not followed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.analysis.shapes.dim import Size, at_least, divide

_MAX_FRACTION = 1 << 10


class FloatElement:
    """A float element that may not be an integer: `over / under`, or unknown if `over` is None."""

    __slots__ = ("over", "under")

    def __init__(self, over: Size | None = None, under: int = 1) -> None:
        self.over = over
        self.under = under


Element = Any
"""An int, an `Expr`, a float or a `FloatElement`."""


def fraction(element: Element) -> tuple[Size, int] | None:
    """A float element as numerator and denominator, a power of two; None if it is no such fraction."""
    if isinstance(element, FloatElement):
        return None if element.over is None else (element.over, element.under)
    if isinstance(element, float):
        if element == 0 and np.signbit(element):
            return None
        over, under = element.as_integer_ratio() if np.isfinite(element) else (0, _MAX_FRACTION + 1)
        return (over, under) if under <= _MAX_FRACTION and abs(over) < 1 << 20 else None
    return element, 1


def _part(over: Size, under: int) -> Element:
    """The normal form of a fraction."""
    whole = divide(over, under)
    if whole is not None:
        return whole
    if isinstance(over, int):
        return over / under
    return FloatElement(over, under) if under <= _MAX_FRACTION else FloatElement()


def _is_below_zero(over: Size) -> bool:
    return at_least(-1 - over, 0)


def float_times(a: Element, b: Element) -> Element:
    """The product of two float elements."""
    left, right = fraction(a), fraction(b)
    if left is None or right is None:
        return FloatElement()
    parts = (left[0], right[0])
    never_zero = all(at_least(over, 1) or _is_below_zero(over) for over in parts)
    if not never_zero and not all(at_least(over, 0) for over in parts):
        return FloatElement()  # zero times a negative number is -0.0
    return _part(left[0] * right[0], left[1] * right[1])


def float_plus(a: Element, b: Element, sign: int = 1) -> Element:
    """The sum of two float elements, or their difference if `sign` is -1."""
    left, right = fraction(a), fraction(b)
    if left is None or right is None:
        return FloatElement()
    return _part(left[0] * right[1] + right[0] * left[1] * sign, left[1] * right[1])


def float_over(a: Element, b: Element) -> Element:
    """The quotient of two float elements, if it is exact in float32; 0 / 0 is NaN."""
    left, right = fraction(a), fraction(b)
    if left is None or right is None:
        return FloatElement()
    over, under = right
    if not at_least(over, 1) or not at_least(left[0], 0):
        return FloatElement()
    if not isinstance(over, int) or over & (over - 1):
        whole = divide(left[0] * under, over * left[1])
        return FloatElement() if whole is None else whole
    return _part(left[0] * under, left[1] * over)
