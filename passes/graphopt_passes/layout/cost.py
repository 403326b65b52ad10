"""The cost model: the time of operators and reorders in NCHW and in blocks, in microseconds on one thread.

A blocked convolution multiplies at a rate that depends on how many blocks of outputs share an input, and reads and
writes its tensors once. In NCHW it is a matrix product whose unrolled input and weights are packed in every run.
docs/layout.md compares the model with measurements. Dynamic sizes count as nominal ones; only ratios matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from graphopt.analysis import Size
from graphopt.analysis.shapes.dim import Atom
from graphopt.ir import Value
from graphopt_passes.algorithm.work import RATES
from graphopt_passes.layout.known import Known, Sizes
from graphopt_passes.layout.timing import LayoutRates
from graphopt_passes.layout.weights import Layout, lanes

Price = tuple[float, float]
"""Microseconds in NCHW and in blocks."""

RESHAPES = 1.5
"""The time of two Reshape, which move nothing, in multiples of the least time of a kernel."""

_UNKNOWN_SIDE = 56
_UNKNOWN_IMAGE = 224
_FEW_CHANNELS = 4


class Costs:
    """Prices of reorders and passes over memory for one block size, at the rates of a machine.

    Attributes:
        algorithms: nanoseconds of each kind of work of the algorithms that replace operators in NCHW.
    """

    def __init__(self, known: Known, rates: LayoutRates, algorithms: Mapping[str, float] = RATES) -> None:
        self.known = known
        self.block = known.block
        self.rates = rates
        self.algorithms = algorithms

    def passes(self, plain: float, blocked: float, times: float) -> Price:
        """Time of `times` passes over `plain` elements in NCHW, and over `blocked` ones in blocks."""
        rate = self.rates.reorder * 3
        return plain * 4 * times / rate + self.rates.start, blocked * 4 * times / rate + self.rates.start

    def waste(self, layout: Layout) -> float:
        """The number of lanes per channel."""
        return lanes(layout, self.block) / sum(layout)

    def layout(self, value: Value) -> Layout:
        """Layout of a value; one block if its channels are not known."""
        return self.known.layout(value) or (self.block,)

    def elements(self, value: Value) -> float:
        """How many elements a value has; 0 if its channels are not known."""
        layout = self.known.layout(value)
        return sum(layout) * pixels(self.known.sizes(value), sum(layout)) if layout else 0.0

    def reorder(self, value: Value) -> float:
        """Time to convert a value from one form to the other."""
        return self._reorder(value, self.layout(value))

    def enter(self, value: Value) -> float:
        """Time to reorder a value to blocks, with its channels padded to a multiple of four."""
        channels = sum(self.layout(value))
        return self._reorder(value, (channels,)) * (1 if channels % 4 == 0 else 2)

    def _reorder(self, value: Value, layout: Layout) -> float:
        size = 4 * lanes(layout, self.block) * pixels(self.known.sizes(value), sum(layout))
        passes = 1 if len(layout) == 1 else 2
        return passes * (size / self.rates.reorder + self.rates.start)


def nominal(size: Size, side: int = _UNKNOWN_SIDE) -> int:
    """A size as a number; an estimate if it is dynamic."""
    if isinstance(size, int):
        return size if size > 1 else 1
    return max(_estimate(size, side), 1)


def _estimate(size: Size, side: int) -> int:
    """The size if each unknown were `side`."""
    if isinstance(size, int):
        return size
    return size.const + sum(factor * prod(_unknown(atom, side) for atom in product) for product, factor in size.terms)


def _unknown(atom: Atom, side: int) -> int:
    if atom.kind not in _WINDOWS:
        return side
    room, stride, *_ = atom.args
    return _estimate(room, side) // _estimate(stride, side) + _WINDOWS[atom.kind]


_WINDOWS = {"div": 0, "conv": 1, "pool": 1}
"""Symbols that are quotients, and the number that is added to each."""


def pixels(sizes: Sizes, channels: int) -> int:
    """Positions of a value of these sizes; a dynamic batch counts as one."""
    return prod(image(sizes, channels))


def image(sizes: Sizes, channels: int) -> tuple[int, int]:
    """Rows of all images of a value of these sizes, and positions per row."""
    side = _UNKNOWN_IMAGE if channels <= _FEW_CHANNELS else _UNKNOWN_SIDE
    batch = sizes[0] if isinstance(sizes[0], int) else 1
    return max(batch, 1) * nominal(sizes[1], side), nominal(sizes[2], side)
