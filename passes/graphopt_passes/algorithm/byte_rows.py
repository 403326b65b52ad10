"""Quantized operands that are repeated along the result: channels that lie together, with a number for each."""

from __future__ import annotations

from math import prod
from typing import ClassVar

import numpy as np

from graphopt.records import dataclass
from graphopt.rewrite import Decline, Dim, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, count
from graphopt_passes.fusion.contrib.operands import DOMAIN, NEWEST
from graphopt_passes.fusion.contrib.parameters import BYTES

_SHORT = 128
"""Bytes of a row from which on it is as fast as a longer one, or nearly so."""
_ENOUGH = 256
_MOST = 1 << 16
"""Bytes that the repeated operand may take: it is to stay in the cache, and the file small."""


@dataclass(frozen=True, slots=True)
class _Longer:
    """How an operand is repeated: along the axes from `at` on, where it then has the sizes of the result."""

    at: int
    before: int
    after: int


class ConvertShortRowsOfBytes(Weighed, OpRule):
    """Repeat the narrow operand of `QLinearAdd` or `QLinearMul` until both are read in long rows.

    The kernel is called anew for each row that both operands go along, as for the channels of each pixel where those
    lie together: 16 of them take three times as long as where the operand is repeated for a line of the image.
    """

    ops = (f"{DOMAIN}::QLinearAdd", f"{DOMAIN}::QLinearMul")
    numerics = Numerics.ROUNDING
    opsets = f"10-{NEWEST}"
    _KINDS: ClassVar[dict[str, str]] = {"QLinearAdd": "bytes scaled", "QLinearMul": "bytes multiplied"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        place, dims = _narrow(node)
        narrow = node.operand(place)
        own = (1,) * (len(dims) - len(narrow.dims())) + tuple(narrow.dims())
        longer = _longer(own, dims, narrow)
        size = count(dims)
        repeated = count(own[: longer.at]) * prod(count(dims[axis : axis + 1]) for axis in range(longer.at, len(dims)))
        if repeated > _MOST:
            raise Decline("{} would take {:.0f} bytes", narrow.name, repeated)
        kind = self._KINDS[node.op_type]
        now = {"kernel": 1, kind: size, "bytes row": size / longer.before}
        then = {"kernel": 1, kind: size, "bytes row": size / longer.after}
        self.weigh(rw, now, then if narrow.is_const else {**then, "kernel": 2, "bytes": repeated})
        sizes = (1,) * longer.at + tuple(_known(dim, narrow) for dim in dims[longer.at :])
        wide: Value | np.ndarray
        if narrow.is_const:
            array = narrow.array()
            array = array.reshape((1,) * (len(dims) - array.ndim) + array.shape)
            wide = array * np.ones(sizes, array.dtype)
        else:
            wide = rw.op("Expand", narrow, np.array(sizes, np.int64))
        inputs = [wide if at == place else value for at, value in enumerate(node.inputs)]
        return rw.replace(node, [rw.op(node.op_type, *inputs, domain=DOMAIN, **node.attrs)])


def _narrow(node: Node) -> tuple[int, tuple[Dim, ...]]:
    """The place of the operand that is repeated, and the sizes of the other one, which are those of the result."""
    x, y = node.operand(0), node.operand(3)
    if x.dtype not in BYTES:
        raise Decline("the element type of {} is not known", x.name)
    dims = tuple(node.result.dims())
    if 0 in dims:
        raise Decline("{} is empty", node.result.name)
    same = [tuple(value.dims()) == dims for value in (x, y)]
    if all(same):
        raise Decline
    if not any(same):
        raise Decline("both operands are repeated")
    return (3 if same[0] else 0), dims


def _longer(own: tuple[Dim, ...], dims: tuple[Dim, ...], narrow: Value) -> _Longer:
    """From the last axis on, how far both go along together, and as far as it takes for long rows."""
    at, before = len(dims), 1
    while at and own[at - 1] == dims[at - 1]:
        at -= 1
        before *= _known(dims[at], narrow)
    if before == 1:
        raise Decline("{} is a number for each row: another kernel", narrow.name)
    if before >= _SHORT:
        raise Decline("the rows of {} are long: already fast", narrow.name)
    after = before
    while at and after < _ENOUGH:
        at -= 1
        after *= _known(dims[at], narrow)
    return _Longer(at, before, after)


def _known(dim: Dim, narrow: Value) -> int:
    if not isinstance(dim, int):
        raise Decline("an axis along which {} is repeated has no known size", narrow.name)
    return dim
