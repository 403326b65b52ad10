"""Making blocked operators, reorders and weights, each once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphopt.ir import TensorType, Value
from graphopt.rewrite import Decline, Rewriter
from graphopt_passes.layout import weights
from graphopt_passes.layout.blocks import DOMAIN
from graphopt_passes.layout.known import FLOAT
from graphopt_passes.layout.lanes import ZERO, Lanes
from graphopt_passes.layout.weights import Array, Layout
from graphopt_passes.shared import Shared


class Blocked(NamedTuple):
    """A blocked value.

    Attributes:
        value: the value.
        layout: where its channels lie.
        lanes: what its padding lanes hold.
    """

    value: Value
    layout: Layout
    lanes: Lanes


Built = list[tuple[Value, Layout]] | Value
"""Blocked results of a group, or a plain one."""


class Emitter(Shared):
    """Makes the blocked operators of one graph.

    Values are named by what they were when the plan was made. A replaced value lives on as the output of a
    ReorderOutput, which goes again when its last reader is blocked too.
    """

    def __init__(self, rw: Rewriter, block: int) -> None:
        super().__init__(rw)
        self.block = block
        self._blocked: dict[Value, Blocked] = {}
        self._plain: dict[Value, Value] = {}
        self._entered: dict[Value, Blocked] = {}
        self.room = weights.Room()

    def begin(self) -> None:
        """Forget what was made for a group that was not built."""
        super().begin()
        self._entered = {}

    def commit(self, blocked: dict[Value, Blocked], plain: dict[Value, Value]) -> None:
        """Keep what was made for a group: blocked values, and plain ones in their place."""
        self._blocked |= self._entered | blocked
        self._plain |= plain
        self.keep()

    def op(self, op_type: str, *inputs: Any, **attrs: Any) -> Value:
        return self.rw.op(op_type, *inputs, domain=DOMAIN, **attrs)

    def state_type(self, value: Value, layout: Layout, sizes: Sequence[object]) -> None:
        """State the type of a blocked value, which inference does not know."""
        batch, *image = [size if isinstance(size, int) else None for size in sizes]
        value.type = TensorType(FLOAT, (batch, self.lanes(layout), *image))

    def lanes(self, layout: Layout) -> int:
        return weights.lanes(layout, self.block)

    def blocked(self, value: Value) -> Blocked | None:
        return self._blocked.get(value)

    def now(self, value: Value) -> Value:
        """The value as it is now in NCHW."""
        return self._plain.get(value, value)

    def enter(self, value: Value, wanted: Layout | None = None) -> Blocked:
        """The blocked form of a value, in a wanted layout; declines where it has another."""
        found = self._blocked.get(value) or self._entered.get(value)
        if found is not None and (wanted is None or found.layout == wanted):
            return found
        plain = self.now(value)
        stated = plain.dim(1)
        channels = stated if isinstance(stated, int) else sum(wanted or (0,))
        if wanted not in (None, (channels,)) or not channels:
            raise Decline("{} cannot be reordered to blocks", plain.name)
        made = Blocked(self._reordered(plain, channels), (channels,), ZERO)
        if found is None:
            self._entered[value] = made
        return made

    def enter_image(self, value: Value, channels: int) -> Blocked:
        """The blocked form of an image whose channels the weight of its reader tells."""
        return self.enter(value, None if isinstance(value.dim(1), int) or self.blocked(value) else (channels,))

    def enter_bounded(self, value: Value, channels: int, *, in_one: bool = False) -> Blocked:
        """What a convolution over all lanes reads; if need be, with all channels in one segment.

        Where padding lanes are not bounded, a pair of reorders sets them to zero: four times as fast as `Where`.
        """
        entered = self.enter(value, (channels,)) if in_one else self.enter_image(value, channels)
        if self.is_clean(entered):
            return entered
        channels = sum(entered.layout)
        made = self.once(("clean", value), lambda: self._reordered(self.now(value), channels))
        return Blocked(made, (channels,), ZERO)

    def is_clean(self, found: Blocked) -> bool:
        """Whether sums over all lanes may be taken."""
        return found.lanes.bounded or not any(channels % self.block for channels in found.layout)

    def _reordered(self, plain: Value, channels: int) -> Value:
        # ReorderInput demands channels in fours.
        missing = -channels % 4
        whole = self.rw.op("Pad", plain, pads=(0, 0, 0, 0, 0, missing, 0, 0)) if missing else plain
        image = self.op("ReorderInput", whole)
        shape = plain.shape
        sizes = (shape[0], *shape[2:]) if shape is not None and len(shape) == 4 else (None, None, None)
        self.state_type(image, (channels,), sizes)
        return image

    def leave(self, value: Value, layout: Layout) -> Value:
        """The value in NCHW; channels that lie apart are gathered."""
        if len(layout) == 1:
            return self.op("ReorderOutput", value, channels=layout[0])
        wide = self.op("ReorderOutput", value, channels=self.lanes(layout))
        return self.rw.op("Gather", wide, weights.positions(layout, self.block).astype(np.int64), axis=1)

    def on_blocks(self, image: Value, work: Callable[[Value], Value]) -> Built:
        """What an operator makes of an image in blocks, with channels where they were."""
        source, layout, _ = self.enter(image)
        return [(work(source), layout)]

    def on_view(self, image: Value, work: Callable[[Value], Value]) -> Built:
        """What an operator makes of an image seen as what its memory in blocks is, [N, Cp / b, H, W, b].

        A plain Pad or Slice would move the wrong numbers. The two `Reshape` of the view move nothing.
        """
        entered, layout, _ = self.enter(image)
        split = self.rw.op("Reshape", entered, weights.view(layout, self.block))
        return [(self.rw.op("Reshape", work(split), weights.whole(layout, self.block)), layout)]

    def constant(self, like: Value, key: tuple[Any, ...], make: Callable[[Array], Array]) -> Value:
        """What becomes of a constant, made once for all that share it."""

        def made() -> Value:
            before = like.array()
            array = make(before)
            same = array is before and like.tensor is not None
            return like if same else self.rw.constant(array, like=like)

        return self.once((like, *key), made)

    def spread(self, numbers: Array, layout: Layout) -> Array:
        """A number for each channel, for each lane of a layout."""
        return np.ascontiguousarray(weights.vector(numbers, layout, self.block))
