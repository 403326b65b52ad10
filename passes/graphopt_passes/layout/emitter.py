"""Writes blocked operators, reorders and weights, each once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphopt.ir import Node, TensorType, Value
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
        layout: the layout of its channels.
        lanes: bounds on its padding lanes.
    """

    value: Value
    layout: Layout
    lanes: Lanes


Built = list[tuple[Value, Layout]] | Value
"""Blocked results of a group, or a plain one."""


class Emitter(Shared):
    """Writes the blocked operators of one graph.

    Values are identified by those that the plan was made for. A value that something reads in NCHW is replaced with the
    output of a ReorderOutput. Where only blocked nodes read it, its node stays until the last of them is there.
    """

    def __init__(self, rw: Rewriter, block: int) -> None:
        super().__init__(rw)
        self.block = block
        self._blocked: dict[Value, Blocked] = {}
        self._plain: dict[Value, Value] = {}
        self._entered: dict[Value, Blocked] = {}
        self._doubled: dict[Node, dict[Value, Blocked]] = {}
        self.room = weights.Room()

    def begin(self) -> None:
        """Forget the values made for a group that was not built."""
        super().begin()
        self._entered = {}

    def replace(self, node: Node, blocked: dict[Value, Blocked], plain: list[Value], detail: str) -> None:
        """Replace the outputs of a node with plain values; keep the values made for its group."""
        olds = node.results
        self.rw.replace(node, plain, detail=detail)
        self._plain |= dict(zip(olds, plain, strict=False))
        self._commit(blocked)

    def add(self, node: Node, blocked: dict[Value, Blocked], detail: str) -> None:
        """Add blocked values beside a node, which goes when its last reader is blocked."""
        self.rw.add([each.value for each in blocked.values()], node, detail)
        self._doubled[node] = blocked
        self._commit(blocked)

    def finish(self) -> None:
        """Replace the nodes that are still read in NCHW, since a reader could not be blocked."""
        for node, blocked in reversed(self._doubled.items()):
            if not node.removed:
                with self.rw.attempt(node):
                    self.rw.replace(node, [self._left(value, blocked) for value in node.outputs])

    def _left(self, value: Value | None, blocked: dict[Value, Blocked]) -> Value | None:
        """A value in NCHW for what still reads it; None if nothing does."""
        if value is None or not value.uses:
            return None
        return self.leave(blocked[value].value, blocked[value].layout)

    def _commit(self, blocked: dict[Value, Blocked]) -> None:
        self._blocked |= self._entered | blocked
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
        """The present form of a value in NCHW."""
        return self._plain.get(value, value)

    def enter(self, value: Value, wanted: Layout | None = None) -> Blocked:
        """The blocked form of a value, in the layout `wanted`; declines if it has another."""
        found = self._blocked.get(value) or self._entered.get(value)
        if found is not None and (wanted is None or found.layout == wanted):
            return found
        plain = self.now(value)
        stated = plain.dim(1)
        channels = stated if isinstance(stated, int) else sum(wanted or (0,))
        if wanted not in (None, (channels,)) or not channels:
            raise Decline("{} cannot be reordered to the blocked layout", plain.name)
        made = Blocked(self._reordered(plain, channels), (channels,), ZERO)
        if found is None:
            self._entered[value] = made
        return made

    def enter_image(self, value: Value, channels: int) -> Blocked:
        """The blocked form of an image whose number of channels follows from the weight of its reader."""
        return self.enter(value, None if isinstance(value.dim(1), int) or self.blocked(value) else (channels,))

    def enter_bounded(self, value: Value, channels: int, *, in_one: bool = False) -> Blocked:
        """The operand of a convolution over all lanes; if `in_one`, with all channels in one segment.

        If padding lanes are not bounded, a pair of reorders sets them to zero: four times as fast as `Where`.
        """
        entered = self.enter(value, (channels,)) if in_one else self.enter_image(value, channels)
        if self.is_clean(entered):
            return entered
        channels = sum(entered.layout)
        made = self.once(("clean", value), lambda: self._reordered(self.now(value), channels))
        return Blocked(made, (channels,), ZERO)

    def is_clean(self, found: Blocked) -> bool:
        """Whether a convolution may sum over all lanes."""
        return found.lanes.bounded or not any(channels % self.block for channels in found.layout)

    def _reordered(self, plain: Value, channels: int) -> Value:
        # ReorderInput takes channels in multiples of four.
        missing = -channels % 4
        whole = self.rw.op("Pad", plain, pads=(0, 0, 0, 0, 0, missing, 0, 0)) if missing else plain
        image = self.op("ReorderInput", whole)
        shape = plain.shape
        sizes = (shape[0], *shape[2:]) if shape is not None and len(shape) == 4 else (None, None, None)
        self.state_type(image, (channels,), sizes)
        return image

    def leave(self, value: Value, layout: Layout) -> Value:
        """The value in NCHW; channels of several segments are gathered."""
        if len(layout) == 1:
            return self.op("ReorderOutput", value, channels=layout[0])
        wide = self.op("ReorderOutput", value, channels=self.lanes(layout))
        return self.rw.op("Gather", wide, weights.positions(layout, self.block).astype(np.int64), axis=1)

    def on_blocks(self, image: Value, work: Callable[[Value], Value]) -> Built:
        """The result of an operator on a blocked image, in the same layout."""
        source, layout, _ = self.enter(image)
        return [(work(source), layout)]

    def on_view(self, image: Value, work: Callable[[Value], Value]) -> Built:
        """The result of an operator on a blocked image, viewed with the shape of its memory, [N, Cp / b, H, W, b].

        A plain Pad or Slice would move the wrong elements. The two `Reshape` of the view move nothing.
        """
        entered, layout, _ = self.enter(image)
        split = self.rw.op("Reshape", entered, weights.view(layout, self.block))
        return [(self.rw.op("Reshape", work(split), weights.whole(layout, self.block)), layout)]

    def constant(self, like: Value, key: tuple[Any, ...], make: Callable[[Array], Array]) -> Value:
        """A constant made from another, once for all readers."""

        def made() -> Value:
            before = like.array()
            array = make(before)
            same = array is before and like.tensor is not None
            return like if same else self.rw.constant(array, like=like)

        return self.once((like, *key), made)

    def spread(self, numbers: Array, layout: Layout) -> Array:
        """Numbers, one per channel, spread over the lanes of a layout."""
        return np.ascontiguousarray(weights.vector(numbers, layout, self.block))
