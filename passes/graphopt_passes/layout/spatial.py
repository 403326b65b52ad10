"""Padding and cutting blocked values along batch, height and width, and gates that are one number for each pixel.

A plain Pad or Slice would move the wrong numbers of a blocked value, whose memory is that of [N, Cp / b, H, W, b]. So
they work on a view of these five dimensions, which two `Reshape` make and take away again; they move nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphopt.ir import Node, Value
from graphopt.match import Mismatch
from graphopt_passes.layout.activations import lanes_behind, range_of
from graphopt_passes.layout.extents import window
from graphopt_passes.layout.facts import Facts, Form, Kind, integers
from graphopt_passes.layout.lanes import ZERO, number
from graphopt_passes.layout.weights import Layout, lanes, view, whole

if TYPE_CHECKING:
    from graphopt_passes.layout.emit import Builder, Built
    from graphopt_passes.layout.plan import Group

_AXES = (0, 2, 3)
"""Those that a blocked value has in the places where NCHW has them, also as the view has them."""

_PAD_OPERANDS = 11
_SLICE_OPERANDS = 10


def pad_form(node: Node, facts: Facts) -> Form | Mismatch | None:
    """The blocked form of a Pad that adds no channels."""
    x = node.inputs[0]
    layout = facts.layout(x)
    if x is None or layout is None:
        return None
    name = x.name
    pads = _pads(node)
    if pads is None:
        return Mismatch("how {} is padded is not constant", name)
    if pads[1] or pads[5]:
        return Mismatch("channels are added to {}", name)
    filler = _filler(node)
    if filler is None:
        return Mismatch("what {} is padded with is not constant", name)
    sizes = facts.extents(x)
    grown = [window(size, 1, pads[axis] + pads[axis + 4] - 1) for axis, size in zip(_AXES, sizes, strict=True)]
    extents = facts.refined((grown[0], grown[1], grown[2]), node)
    return Form(node, Kind.PAD, [x], [layout], extents, facts.lanes(x) | number(filler), data={"pads": pads})


def _pads(node: Node) -> list[int] | None:
    """Eight numbers, those before and those after each axis."""
    if node.graph.opset() < _PAD_OPERANDS:
        stated = node.attrs.get("pads") or node.attrs.get("paddings")
        return [int(p) for p in stated] if stated is not None and len(stated) == 8 else None
    pads = integers(node.input(1))
    axes = integers(node.input(3)) if node.input(3) is not None else [0, 1, 2, 3]
    if pads is None or axes is None or len(pads) != 2 * len(axes):
        return None
    full = [0] * 8
    for at, axis in enumerate(axes):
        full[axis % 4], full[axis % 4 + 4] = pads[at], pads[at + len(axes)]
    return full


def _filler(node: Node) -> float | None:
    """The number that a constant padding consists of; 0 for those that repeat what is there."""
    mode = node.attr("mode", "constant")
    if (mode.decode() if isinstance(mode, bytes) else mode) != "constant":
        return 0.0
    if node.graph.opset() < _PAD_OPERANDS:
        return float(node.attr("value", 0.0))
    value = node.input(2)
    if value is None:
        return 0.0
    array = value.const(max_bytes=64)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def crop_form(node: Node, facts: Facts) -> Form | Mismatch | None:
    """The blocked form of a Slice that leaves the channels alone; its bounds need not be constant."""
    x = node.inputs[0]
    layout = facts.layout(x)
    if x is None or layout is None:
        return None
    axes = cut_axes(node)
    if axes is None:
        return None
    if any(axis not in _AXES for axis in axes):
        return Mismatch("{} is cut along channels and others at once", x.name)
    return Form(node, Kind.CROP, [x], [layout], facts.refined(None, node), facts.lanes(x), data={"axes": axes})


def cut_axes(node: Node) -> list[int] | None:
    """The axes along which an image is cut, counted from the first."""
    if node.graph.opset() < _SLICE_OPERANDS:
        stated = node.attrs.get("axes")
        axes = list(stated) if stated is not None else list(range(len(node.attr("starts", ()))))
    elif node.input(3) is not None:
        axes = integers(node.input(3)) or []
    else:
        starts = node.input(1)
        length = starts.shape[0] if starts is not None and starts.shape is not None and starts.rank == 1 else None
        axes = list(range(length)) if isinstance(length, int) else []
    return [axis % 4 for axis in axes] if axes and all(-4 <= axis < 4 for axis in axes) else None


_GATED = frozenset({"Add", "Max", "Min", "Mul", "Sub"})


def pixel_gate_form(node: Node, facts: Facts, images: list[Value]) -> Form | None:
    """The blocked form of an operator on an image and one number for each pixel, as spatial attention has it."""
    if node.op not in _GATED or len(node.inputs) != 2 or len(images) != 2:
        return None
    for image, gate in (images, images[::-1]):
        layout = facts.layout(image)
        if facts.layout(gate) != (1,) or layout is None or sum(layout) == 1:
            continue
        extents, own = facts.extents(image), facts.extents(gate)
        if own[1:] != extents[1:] or own[0] not in (1, extents[0]):
            return None
        known = facts.lanes(image), range_of(gate) if _spreads_over(layout, facts.block) > 1 else ZERO
        bounds = lanes_behind(node, known if image is node.inputs[0] else known[::-1])
        data: dict[str, object] = {"gate": gate}
        return Form(node, Kind.PIXEL_GATE, [image], [layout], extents, bounds, note="gate of pixels", data=data)
    return None


# ---------------------------------------------------------------------- building


def build_pixel_gate(build: Builder, group: Group) -> Built:
    """The gate in every lane of one block, by a 1x1 convolution with ones; it meets all blocks of the image alike.

    Where the image has one block only, its padding lanes get zeros.
    """
    form = group.form
    entered = build.enter(form.operands[0])
    if isinstance(entered, Mismatch):
        return entered
    value, layout, _ = entered
    gate: Any = form.data["gate"]
    blocks = _spreads_over(layout, build.block)
    ones = np.ones((build.block, 1, 1, 1), np.float32)
    if blocks == 1:
        ones[layout[0] :] = 0
    spread = build.rw.op("Conv", build.now(gate), build.rw.constant(ones), domain="com.microsoft.nchwc")
    build.state_type(spread, (build.block,), form.extents)
    if blocks > 1:
        value = build.rw.op("Reshape", value, view(layout, build.block))
        spread = build.rw.op("Reshape", spread, view((build.block,), build.block))
    is_first = build.now(form.operands[0]) is form.node.inputs[0]
    made = build.rw.op(form.node.op_type, *((value, spread) if is_first else (spread, value)))
    if blocks > 1:
        made = build.rw.op("Reshape", made, whole(layout, build.block))
    return [(made, layout)]


def _spreads_over(layout: Layout, block: int) -> int:
    """How many blocks of an image a gate meets."""
    return lanes(layout, block) // block


def build_pad(build: Builder, group: Group) -> Built:
    """A Pad on the view."""
    node = group.form.node
    pads: Any = group.form.data["pads"]
    wide = (*pads[:4], 0, *pads[4:], 0)
    mode = node.attrs.get("mode")

    def padded(split: Value) -> Value:
        made: Value
        if node.graph.opset() < _PAD_OPERANDS:
            made = build.rw.op("Pad", split, pads=wide, mode=mode, value=node.attrs.get("value"))
        else:
            made = build.rw.op("Pad", split, np.array(wide, np.int64), node.input(2), mode=mode)
        return made

    return _on_view(build, group, padded)


def build_crop(build: Builder, group: Group) -> Built:
    """A Slice on the view."""
    node = group.form.node
    axes: Any = group.form.data["axes"]

    def cut(split: Value) -> Value:
        made: Value
        if node.graph.opset() < _SLICE_OPERANDS:
            made = build.rw.op("Slice", split, starts=node.attrs["starts"], ends=node.attrs["ends"], axes=tuple(axes))
        else:
            kept = np.array(axes, np.int64)
            made = build.rw.op("Slice", split, node.inputs[1], node.inputs[2], kept, node.input(4))
        return made

    return _on_view(build, group, cut)


def _on_view(build: Builder, group: Group, work: Any) -> Built:
    entered = build.enter(group.form.operands[0])
    if isinstance(entered, Mismatch):
        return entered
    value, layout, _ = entered
    split = build.rw.op("Reshape", value, view(layout, build.block))
    return [(build.rw.op("Reshape", work(split), whole(layout, build.block)), layout)]
