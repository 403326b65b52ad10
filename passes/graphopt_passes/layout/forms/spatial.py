"""Padding and cropping of images along batch, height and width."""

from __future__ import annotations

from typing import Any

from graphopt.errors import Decline
from graphopt.ir import Node
from graphopt.operators import Pad, Slice
from graphopt_passes.layout.form import Written, on_view
from graphopt_passes.layout.known import Known
from graphopt_passes.layout.lanes import number

_AXES = (0, 2, 3)
"""The axes that a blocked value, and its view, have in the same position as NCHW."""


def padded(node: Node, known: Known) -> Written:
    """The blocked form of a Pad that adds no channels."""
    x, layout = known.image(node)
    pad = Pad.of(node)
    if len(pad.before) != 4 or len(pad.after) != 4:
        raise Decline
    if pad.before[1] or pad.after[1]:
        raise Decline("the channels of {} are padded", x.name)
    filler = pad.number if pad.mode == "constant" else 0.0
    pads, fill = (*pad.before, 0, *pad.after, 0), pad.fill or None
    attrs: dict[str, Any] = {"pads": pads, "constant_value": fill, "mode": node.attrs.get("mode")}
    return Written(
        node, [x], [layout], known.sizes(node.result), known.lanes(x) | number(filler),
        name="pad", make=lambda emit: emit.on_view(x, lambda split: emit.rw.op("Pad", split, **attrs)), cost=on_view,
    )  # fmt: skip


def cropped(node: Node, known: Known) -> Written:
    """The blocked form of a Slice along axes other than the channels."""
    x, layout = known.image(node)
    axes = cut_axes(node)
    if any(axis not in _AXES for axis in axes):
        raise Decline("{} is sliced along channels and other axes at once", x.name)
    starts, ends = (node.input(at) or node.attrs[name] for at, name in ((1, "starts"), (2, "ends")))
    attrs: dict[str, Any] = {"starts": starts, "ends": ends, "axes": axes, "steps": node.input(4)}
    return Written(
        node, [x], [layout], known.sizes(node.result), known.lanes(x),
        name="crop", make=lambda emit: emit.on_view(x, lambda split: emit.rw.op("Slice", split, **attrs)), cost=on_view,
    )  # fmt: skip


def cut_axes(node: Node) -> list[int]:
    """The constant axes along which a Slice cuts an image, counted from the front."""
    axes = Slice.axes_of(node)
    if not axes or not all(-4 <= axis < 4 for axis in axes):
        raise Decline
    return [axis % 4 for axis in axes]
