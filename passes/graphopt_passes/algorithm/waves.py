"""The cosines and sines of a rotary embedding (here: waves), in the form that the runtime's operator reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphopt.operators import Cut, Reshape, Slice
from graphopt.records import dataclass
from graphopt.rewrite import Decline, Dim, Node, Rewriter, Value
from graphopt_passes.algorithm.work import check_count

_DEEPEST = 8
_OPSET_OF_EMPTY_SHAPES = 14
_ALONG = frozenset({"Cos", "Sin", "Cast", "Identity", "Neg", "Reshape", "Squeeze", "Unsqueeze"})
_BY_NUMBERS = frozenset({"Mul", "Div", "Add"})


@dataclass(frozen=True, slots=True)
class WaveRows:
    """The rows of waves, and the axis of their positions in the rotated value.

    Attributes:
        axis: the axis of positions: 2 after the heads, 1 before them.
        batch: number of batches with their own positions; 1 if all share them.
        positions: number of positions.
    """

    axis: int
    batch: Dim
    positions: Dim

    @classmethod
    def of(cls, turned: str, dims: Sequence[Dim], cosine: Value, sine: Value, width: int) -> WaveRows:
        """Read waves that have a row per position of a value of shape `dims`; declines if they vary between heads."""
        rows, other = (cls._of(wave, turned, dims, width) for wave in (cosine, sine))
        if rows != other:
            raise Decline("{} and {} do not have the same positions", cosine.name, sine.name)
        return rows

    @classmethod
    def _of(cls, wave: Value, turned: str, dims: Sequence[Dim], width: int) -> WaveRows:
        sizes = (*(1,) * (len(dims) - len(wave.dims())), *wave.dims())
        for axis, heads in ((2, 1), (1, 2)):
            same = len(sizes) == len(dims) and sizes[axis] == dims[axis] and sizes[-1] == width
            if same and None not in sizes and sizes[heads] == 1 and sizes[0] in (1, dims[0]):
                return cls(axis, sizes[0], sizes[axis])
        if any(size != 1 for size in sizes[:-2]):
            raise Decline("{} varies between heads, or its batch does not match", wave.name)
        row = "{} is not known to have a row of {} numbers for each position of {}"
        raise Decline(row, wave.name, width, turned)

    @property
    def kernels(self) -> int:
        """Number of kernels that all readers of the waves share."""
        return 4 if self.rows is not None or self.batch == 1 else 13

    @property
    def rows(self) -> int | None:
        """Number of rows; None if it is unknown."""
        if isinstance(self.batch, int) and isinstance(self.positions, int):
            return self.batch * self.positions
        return None

    def cache(self, wave: Value, width: int, rw: Rewriter) -> Value:
        """Reshape a wave to a matrix of rows.

        The kernel requires at least as many rows as positions, even for an empty batch: if the batch may be empty, as
        many rows are appended.
        """
        rows = Reshape.to(wave, (self.rows, width)).write(rw)
        if self.rows is not None or self.batch == 1:
            return rows
        sizes = rw.op("Gather", rw.op("Shape", wave), np.array([0, 0, self.axis, 0], np.int64))
        return rw.op("Pad", rows, rw.op("Mul", sizes, np.array([0, 0, 1, 0], np.int64)))

    def numbers(self, wave: Value, rw: Rewriter) -> np.ndarray | Value:
        """The row index of each position of each batch; a single 0, the first row, if all batches share their rows."""
        if self.batch == 1:
            return np.zeros(1, np.int64)
        if self.rows is not None and isinstance(self.batch, int):
            check_count(self.rows, "rows", 1 << 22)
            return np.arange(self.rows, dtype=np.int64).reshape(self.batch, -1)
        if rw.graph.opset() < _OPSET_OF_EMPTY_SHAPES:
            raise Decline("opset {} has no Reshape to sizes of 0", rw.graph.opset())
        sizes = rw.op("Gather", rw.op("Shape", wave), np.array([0, self.axis], np.int64))
        rows = rw.op("ReduceProd", sizes, keepdims=0)
        each = rw.op("Range", np.array(0, np.int64), rows, np.array(1, np.int64))
        return rw.op("Reshape", each, sizes, allowzero=1)


def once(wave: Value, *, paired: bool, rw: Rewriter) -> Value:
    """Half of a wave that contains each number twice: in adjacent elements if `paired`, else in both halves."""
    width = wave.size(-1)
    cut = Cut(0, width, 2) if paired else Cut(0, width // 2)
    if not _is_twice(wave, width, paired=paired):
        raise Decline("the {} of {} are not known to be equal", "neighbours" if paired else "halves", wave.name)
    array = wave.const()
    if array is not None:
        return rw.constant(np.ascontiguousarray(array[..., : cut.end : cut.step]), like=wave)
    return Slice(wave, {len(wave.dims()) - 1: cut}).write(rw)


def _is_twice(value: Value, width: int, *, paired: bool, depth: int = 0) -> bool:
    """Whether the two numbers of each pair along the last axis are known to be equal."""
    array = value.const()
    if array is not None:
        if not array.ndim or array.shape[-1] != width:
            return False
        half = width // 2
        first, second = (array[..., ::2], array[..., 1::2]) if paired else (array[..., :half], array[..., half:])
        return np.array_equal(first, second)
    node = value.producer
    if node is None or depth == _DEEPEST or value.dims()[-1:] != (width,):
        return False
    if node.op == "Concat":
        return not paired and _repeats(node)
    if paired and node.op == "Reshape" and node.operand(0).dims()[-2:] == (width // 2, 2):
        repeated = node.operand(0).producer
        return repeated is not None and _repeats(repeated)
    if node.op in _ALONG:
        return _is_twice(node.operand(0), width, paired=paired, depth=depth + 1)
    if node.op == "Gather":
        x = node.operand(0)
        before = x.axis(node.attr("axis", 0)) < len(x.dims()) - 1
        return before and _is_twice(x, width, paired=paired, depth=depth + 1)
    if node.op in _BY_NUMBERS:
        operands = (each for each in node.operands if each.dims()[-1:] not in ((), (1,)))
        return all(_is_twice(each, width, paired=paired, depth=depth + 1) for each in operands)
    return False


def _repeats(node: Node) -> bool:
    """Whether a node concatenates a value with itself along the last axis, or repeats a single element along it."""
    first = node.operand(0)
    if node.op == "Concat":
        return node.inputs == [first, first] and first.axis(node.attr("axis")) == len(first.dims()) - 1
    if node.op in ("Expand", "Tile"):
        return first.dims()[-1:] == (1,)
    ones = [value.const() for value in node.operands]
    apart = [value.dims()[-1:] == (1,) for value in node.operands]
    return node.op == "Mul" and any(
        one is not None and (one == 1).all() and other for one, other in zip(ones, apart[::-1], strict=True)
    )
