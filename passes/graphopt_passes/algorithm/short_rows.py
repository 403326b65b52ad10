"""Operands broadcast over short rows, such as one number per channel with channels last."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from graphopt.records import dataclass
from graphopt.rewrite import Decline, Dim, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, count, size_of
from graphopt_passes.elementwise import TOGETHER, is_constant_number
from graphopt_passes.fusion.contrib.operands import DOMAIN, NEWEST_OF_BYTES
from graphopt_passes.fusion.contrib.parameters import BYTES

_SHORT = 128
"""Number of elements from which on a row is nearly as fast as a longer one."""
_ENOUGH = 256
_MOST = 1 << 14
"""Most elements of the repeated operand, so that it stays in the cache, and the file small."""


@dataclass(frozen=True, slots=True)
class _Longer:
    """How an operand is repeated.

    Attributes:
        sizes: the shape that it is broadcast to.
        before: elements of a row before.
        after: elements of a row after.
        elements: number of elements after.
    """

    sizes: tuple[int, ...]
    before: int
    after: int
    elements: float

    def repeated(self, narrow: Value, rw: Rewriter) -> Value | np.ndarray:
        """The repeated operand."""
        if not narrow.is_const:
            return rw.op("Expand", narrow, np.array(self.sizes, np.int64))
        array = narrow.array()
        array = array.reshape((1,) * (len(self.sizes) - array.ndim) + array.shape)
        return np.ascontiguousarray(np.broadcast_to(array, np.broadcast_shapes(array.shape, self.sizes)))


class _ShortRows(Weighed, OpRule):
    """Expand the narrow operand of an operator, so that both are read in long rows."""

    def lengthened(self, node: Node, second: int, element: str, row: str, rw: Rewriter) -> Outcome:
        """Replace the operator; `second` is the index of its second operand, `element` and `row` are kinds of work."""
        place, dims = _narrow(node, second)
        narrow, size = node.operand(place), count(dims)
        if self.constant and not narrow.is_const:
            raise Decline
        longer = _longer(narrow, dims)
        now, then = ({"kernel": 1, element: size, row: size / length} for length in (longer.before, longer.after))
        self.weigh(rw, now, then if narrow.is_const else {**then, "kernel": 2, "bytes": longer.elements})
        inputs = [longer.repeated(narrow, rw) if at == place else value for at, value in enumerate(node.inputs)]
        return rw.replace(node, [rw.again(node, *inputs)])


class ConvertShortRowsOfBytes(_ShortRows):
    """Expand the narrow operand of `QLinearAdd` or `QLinearMul`, so that both are read in long rows.

    The kernel is called once per row that both operands share, such as the channels of each pixel with channels last:
    16 channels take three times as long as an operand that is repeated for a line of the image.
    """

    ops = (f"{DOMAIN}::QLinearAdd", f"{DOMAIN}::QLinearMul")
    numerics = Numerics.ROUNDING
    opsets = f"10-{NEWEST_OF_BYTES}"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        if node.operand(0).dtype not in BYTES:
            raise Decline("the element type of {} is not known", node.operand(0).name)
        element = "bytes scaled" if node.op_type == "QLinearAdd" else "bytes multiplied"
        return self.lengthened(node, 3, element, "bytes row", rw)


class ConvertShortRowsOfFloats(_ShortRows):
    """Expand a constant operand of `Add`, `Div`, `Mul` or `Sub`, so that both are read in long rows.

    As for bytes: with channels last, a scale per channel of 40 channels takes three times as long as one that is
    repeated for a line of the image.
    """

    ops = ("Add", "Div", "Mul", "Sub")
    opsets = "7-"
    constant = True

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        if node.operand(0).dtype != TensorProto.FLOAT:
            raise Decline
        return self.lengthened(node, 1, "element", "short row", rw)


_OF_BYTES = (f"{DOMAIN}::QLinearAdd", f"{DOMAIN}::QLinearMul")
"""Their operands are the first and the fourth input, each followed by its scale and zero point."""


class ConvertLoneElementsToRow(Weighed, OpRule):
    """Add axes of size 1 to a constant number, so that operands with axes of size 1 are read in long rows.

    From the last axis on, the runtime merges the axes along which both operands broadcast alike, and skips axes of size
    1 as long as both have them. If the number has no more axes at one, a row ends there, and the kernel is called for
    each: adding a number to a value of shape `[1, 3, 256, 32, 1]` takes 30 times as long as adding one of shape
    `[1, 1]`, and 90 times as long in bytes; multiplying `[16, 4096, 1, 2]` takes 33 times as long.
    """

    # No pattern: any of the operands may be the number.
    ops = (*TOGETHER, "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Mod", "PRelu", *_OF_BYTES)
    numerics = Numerics.ROUNDING
    opsets = "8-"  # the first opset in which all of them broadcast from the last axis on

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        dims = node.result.dims()
        long = [axis for axis, dim in enumerate(dims) if dim != 1]
        units = [axis for axis, dim in enumerate(dims) if dim == 1 and axis > min(long, default=axis)]
        places = (0, 3) if node.op in _OF_BYTES else range(len(node.inputs))
        held = {at: node.operand(at) for at in places}
        ends = {
            at: _end_of_rows(len(x.sizes()), units, dims) for at, x in held.items() if units and is_constant_number(x)
        }
        numbers = {at: end for at, end in ends.items() if end is not None}
        if not numbers:
            raise Decline
        size, element, row = size_of(node.result), "element", "short row"
        if node.op in _OF_BYTES:
            element, row = "bytes scaled", "bytes row"
        rows = size / count(dims[max(numbers.values()) + 1 :])
        self.weigh(rw, {"kernel": 1, element: size, row: rows}, {"kernel": 1, element: size})
        wide = (1,) * (len(dims) - units[0] + 1)
        changes = {at: rw.constant(held[at].array().reshape(wide), like=held[at]) for at in numbers}
        return rw.set_inputs(node, changes, f"{len(wide)} axes")


def _end_of_rows(rank: int, units: Sequence[int], dims: Sequence[Dim]) -> int | None:
    """The axis of size 1 at which rows end for a number of some rank; None if none does.

    Its axes count only if they reach one that is longer in the other operand.
    """
    own = rank if any(dim != 1 for dim in dims[len(dims) - rank :]) else 0
    return max((axis for axis in units if axis < len(dims) - own), default=None)


def _narrow(node: Node, second: int) -> tuple[int, tuple[Dim, ...]]:
    """The index of the broadcast operand, and the shape of the other one, which is that of the result."""
    x, y = node.operand(0), node.operand(second)
    dims = tuple(node.result.dims())
    if 0 in dims:
        raise Decline("{} is empty", node.result.name)
    same = [tuple(value.dims()) == dims for value in (x, y)]
    if all(same):
        raise Decline
    if not any(same):
        raise Decline("both operands are broadcast")
    return (second if same[0] else 0), dims


def _longer(narrow: Value, dims: tuple[Dim, ...]) -> _Longer:
    """How far the operand matches `dims` from the last axis on, and how far it must be expanded for long rows."""
    own = (1,) * (len(dims) - len(narrow.dims())) + tuple(narrow.dims())
    at, before = len(dims), 1
    while at and own[at - 1] == dims[at - 1]:
        at -= 1
        before *= _known(dims[at], narrow)
    if before == 1:
        raise Decline("{} has one number per row, for which there is another kernel", narrow.name)
    if before >= _SHORT:
        raise Decline("the rows of {} are long: already fast", narrow.name)
    after = before
    while at and after < _ENOUGH:
        at -= 1
        after *= _known(dims[at], narrow)
    elements = count(own[:at]) * after
    if elements > _MOST:
        raise Decline("{} would have {:.0f} elements", narrow.name, elements)
    return _Longer((1,) * at + tuple(_known(dim, narrow) for dim in dims[at:]), before, after, elements)


def _known(dim: Dim, narrow: Value) -> int:
    if not isinstance(dim, int):
        raise Decline("the size of an axis along which {} is broadcast is not known", narrow.name)
    return dim
