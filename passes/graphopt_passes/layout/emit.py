"""Building blocked nodes: each group of a plan becomes one, with the reorders that its neighbours need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from graphopt.ir import TensorType, Value
from graphopt.match import Mismatch
from graphopt.rewrite import Outcome, Rewriter
from graphopt_passes.layout import weights
from graphopt_passes.layout.extents import Extents, declared
from graphopt_passes.layout.facts import FLOAT, Kind
from graphopt_passes.layout.lanes import ZERO, Lanes
from graphopt_passes.layout.plan import Group
from graphopt_passes.layout.spatial import build_crop, build_pad, build_pixel_gate
from graphopt_passes.layout.transposed import build_transposed
from graphopt_passes.layout.weights import Array, Layout

DOMAIN = "com.microsoft.nchwc"
_WINDOW = ("auto_pad", "dilations", "kernel_shape", "pads", "strides")
_CONV = (*_WINDOW, "activation", "activation_params")
_POOL = (*_WINDOW, "ceil_mode", "storage_order", "count_include_pad")


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


Built = list[tuple[Value, Layout]] | Value | Mismatch
"""Blocked results of a group, whose padding lanes are those that its form states; or a plain one."""


class Builder:
    """Builds the blocked nodes of one graph.

    Values are named by what they were when the plan was made. A replaced value lives on as the output of a
    ReorderOutput, which goes again when the last reader of it is blocked too.

    Args:
        rw: the gate.
        rule: name of the pass.
        block: channels per block.
    """

    def __init__(self, rw: Rewriter, rule: str, block: int) -> None:
        self.rw = rw
        self.rule = rule
        self.block = block
        self._blocked: dict[Value, Blocked] = {}
        self._plain: dict[Value, Value] = {}
        self._shared: dict[tuple[Any, ...], Value] = {}
        self._entered: dict[Value, Blocked] = {}
        self._made: dict[tuple[Any, ...], Value] = {}
        self.room = weights.Room()

    def build(self, group: Group) -> Outcome:
        """Replace a group; a `Mismatch` when it cannot be built as things are."""
        node = group.last
        self.rw.begin(self.rule, node)
        self._entered, self._made = {}, {}
        results = BUILDERS[group.form.kind](self, group)
        if isinstance(results, Mismatch):
            return results
        olds = [v for v in node.outputs if v is not None]
        if isinstance(results, Value):
            outcome = self.rw.replace(node, [results], detail=_detail(group))
            self._plain[olds[0]] = results
            return outcome
        for value, layout in results:
            self.state_type(value, layout, group.form.extents)
        plain = [self.leave(value, layout) for value, layout in results]
        outcome = self.rw.replace(node, plain, detail=_detail(group))
        self._blocked.update(self._entered)
        made = (Blocked(value, layout, group.lanes) for value, layout in results)
        self._blocked.update(zip(olds, made, strict=False))
        self._plain.update(zip(olds, plain, strict=False))
        self._shared.update(self._made)
        return outcome

    def state_type(self, value: Value, layout: Layout, extents: Extents) -> None:
        """Tell the type of a blocked value: inference does not know the blocked operators."""
        dims = [dim if isinstance(dim, int) else None for dim in extents]
        value.type = TensorType(FLOAT, (dims[0], weights.lanes(layout, self.block), dims[1], dims[2]))

    # ------------------------------------------------------------------ moving between forms

    def blocked(self, value: Value) -> Blocked | None:
        """The blocked form of a value, if there is one yet."""
        return self._blocked.get(value)

    def now(self, value: Value) -> Value:
        """The value as it is now in NCHW."""
        return self._plain.get(value, value)

    def enter(self, value: Value, wanted: Layout | None = None) -> Blocked | Mismatch:
        """The blocked form of a value, in a wanted layout."""
        found = self._blocked.get(value) or self._entered.get(value)
        if found is not None and (wanted is None or found.layout == wanted):
            return found
        plain = self.now(value)
        shape = plain.shape
        channels = shape[1] if shape is not None and len(shape) == 4 else sum(wanted or (0,))
        if not isinstance(channels, int) or wanted not in (None, (channels,)) or not channels:
            return Mismatch("{} cannot be reordered to blocks", plain.name)
        made = Blocked(self._reordered(plain, channels), (channels,), ZERO)
        if found is None:
            self._entered[value] = made
        return made

    def convolved(self, group: Group, wanted: Layout | None = None) -> Blocked | Mismatch:
        """The first operand of a convolution over all lanes.

        Where padding lanes are not bounded, it comes by way of NCHW: a pair of reorders sets them to zero in a quarter
        of the time that a `Where` or a product would take.
        """
        x = group.form.operands[0]
        entered = self.enter(x, wanted)
        if isinstance(entered, Mismatch) or self.clean(entered):
            return entered
        channels = sum(entered.layout)
        return Blocked(self._once(("clean", x), lambda: self._reordered(self.now(x), channels)), (channels,), ZERO)

    def clean(self, found: Blocked) -> bool:
        """Whether sums over all lanes may be taken."""
        return found.lanes.bounded or not any(channels % self.block for channels in found.layout)

    def _reordered(self, plain: Value, channels: int) -> Value:
        image: Value = self.rw.op("ReorderInput", self._in_fours(plain, channels), domain=DOMAIN)
        self.state_type(image, (channels,), declared(plain) or (None, None, None))
        return image

    def _in_fours(self, plain: Value, channels: int) -> Value:
        """The value with channels of zero added up to a multiple of four, which ReorderInput demands."""
        missing = -channels % 4
        if not missing:
            return plain
        pads = (0, 0, 0, 0, 0, missing, 0, 0)
        if self.rw.graph.opset() < 11:
            wide: Value = self.rw.op("Pad", plain, pads=pads)
        else:
            wide = self.rw.op("Pad", plain, np.array(pads, np.int64))
        return wide

    def leave(self, value: Value, layout: Layout) -> Value:
        """The value in NCHW; channels that lie apart are gathered."""
        result: Value
        if len(layout) == 1:
            result = self.rw.op("ReorderOutput", value, domain=DOMAIN, channels=layout[0])
            return result
        wide = self.rw.op("ReorderOutput", value, domain=DOMAIN, channels=weights.lanes(layout, self.block))
        result = self.rw.op("Gather", wide, weights.positions(layout, self.block).astype(np.int64), axis=1)
        return result

    def constant(self, like: Value, key: tuple[Any, ...], make: Callable[[], Array]) -> Value:
        """A transformed constant, made once for all that share it."""

        def made() -> Value:
            array = make()
            same = array is like.const() and like.tensor is not None
            return like if same else self.rw.constant(array, like=like)

        return self._once((like, *key), made)

    def _once(self, key: tuple[Any, ...], make: Callable[[], Value]) -> Value:
        """What groups share: as an earlier one has made it, while it is still there."""
        found = self._shared.get(key) or self._made.get(key)
        if found is None or (found.name and found.graph.values.get(found.name) is not found):
            found = self._made[key] = make()
        return found

    def convolution(
        self, group: Group, x: Value, weight: Value, layout: Layout, *, count: int = 1, bias: Value | None = None
    ) -> Built:
        """The blocked Conv of a group, with the residual and the activation that it takes in."""
        node = group.form.node
        residual = None
        if group.residual is not None:
            entered = self.enter(group.residual, layout)
            if isinstance(entered, Mismatch):
                return entered
            residual = entered.value
        attrs: dict[str, Any] = {}
        if node.op_type in ("Conv", "FusedConv"):
            attrs = {name: node.attrs.get(name) for name in _CONV}
            bias = self._bias(node.input(2), layout)
        if group.activation is not None:
            name, params = group.activation
            attrs |= {"activation": name, "activation_params": params or None}
        out = self.rw.op("Conv", x, weight, bias, residual, domain=DOMAIN, group=count, **attrs)
        return [(out, layout)]

    def _bias(self, bias: Value | None, layout: Layout) -> Value | None:
        if bias is None:
            return None
        array = _contents(bias)
        return self.constant(bias, (layout,), lambda: weights.vector(array, layout, self.block))


def _contents(value: Value | None) -> Array:
    array = value.const() if value is not None else None
    assert array is not None
    return array


def _detail(group: Group) -> str:
    parts = [group.form.note or group.form.kind.label]
    if group.residual is not None:
        parts.append("with residual")
    if group.activation is not None:
        parts.append(f"with {group.activation[0]}")
    return f"{' '.join(parts)}; saves about {group.gain:.1f} us"


def _weight(group: Group) -> tuple[Value, Array, int, int]:
    """Weight, its contents (with groups merged as the form wants), groups left, and groups merged."""
    form = group.form
    value = form.node.inputs[1]
    array = _contents(value)
    assert value is not None
    count, merge = int(form.data["group"]), int(form.data["merge"])  # type: ignore[call-overload]
    if merge > 1:
        array = weights.block_diagonal(array, count, merge)
    return value, array, count // merge, merge


def _conv(build: Builder, group: Group) -> Built:
    x, layout = group.form.operands[0], group.form.layouts[0]
    weight, array, _, merge = _weight(group)
    block = build.block
    found = build.blocked(x)
    if group.form.plain and (found is None or not build.clean(found)):
        made = build.constant(weight, ("Bo", merge), lambda: weights.outputs_blocked(array, layout, block))
        return build.convolution(group, build.now(x), made, layout)
    entered = build.convolved(group, None if x.shape is not None or found else (array.shape[1],))
    if isinstance(entered, Mismatch):
        return entered
    source, inputs, _ = entered
    room = build.room
    key = ("BiBo", merge, inputs)
    made = build.constant(weight, key, lambda: weights.both_blocked(array, inputs, layout, block, room))
    return build.convolution(group, source, made, layout)


def _grouped(build: Builder, group: Group) -> Built:
    weight, array, count, merge = _weight(group)
    entered = build.convolved(group, (array.shape[1] * count,))
    if isinstance(entered, Mismatch):
        return entered
    made = build.constant(weight, ("groups", merge), lambda: weights.grouped_blocked(array, build.block))
    return build.convolution(group, entered.value, made, group.form.layouts[0], count=count)


def _depthwise(build: Builder, group: Group) -> Built:
    x = group.form.operands[0]
    weight, array, _, _ = _weight(group)
    entered = build.enter(x, None if x.shape is not None or build.blocked(x) is not None else (array.shape[0],))
    if isinstance(entered, Mismatch):
        return entered
    source, layout, _ = entered
    made = build.constant(weight, ("depthwise", layout), lambda: weights.outputs_blocked(array, layout, build.block))
    return build.convolution(group, source, made, layout, count=weights.lanes(layout, build.block))


def _affine(build: Builder, group: Group) -> Built:
    form = group.form
    entered = build.enter(form.operands[0])
    if isinstance(entered, Mismatch):
        return entered
    source, layout, _ = entered
    scale, shift = form.data["scale"], form.data["shift"]
    assert isinstance(scale, np.ndarray)
    wide = np.ascontiguousarray(weights.vector(scale, layout, build.block))
    weight = build.rw.constant(wide.reshape(-1, 1, 1, 1))
    bias = None
    if isinstance(shift, np.ndarray):
        bias = build.rw.constant(np.ascontiguousarray(weights.vector(shift, layout, build.block)))
    return build.convolution(group, source, weight, layout, count=len(wide), bias=bias)


def _operands(build: Builder, group: Group) -> list[Blocked] | Mismatch:
    """All operands blocked, in one layout."""
    found = []
    wanted: Layout | None = None
    for value in group.form.operands:
        entered = build.enter(value, wanted)
        if isinstance(entered, Mismatch):
            return entered
        wanted = entered.layout
        found.append(entered)
    return found


def _gate(build: Builder, group: Group) -> Built:
    operands = _operands(build, group)
    if isinstance(operands, Mismatch):
        return operands
    (image, layout, _), (gate, _, _) = operands
    width = weights.lanes(layout, build.block)
    op = group.form.node.op
    if op == "Mul":
        weight = build.rw.op("Reshape", gate, np.array([width, 1, 1, 1], np.int64))
        return build.convolution(group, image, weight, layout, count=width)
    bias = build.rw.op("Reshape", build.rw.op("Neg", gate) if op == "Sub" else gate, np.array([width], np.int64))
    weight = build.rw.constant(np.ones((width, 1, 1, 1), np.float32))
    return build.convolution(group, image, weight, layout, count=width, bias=bias)


def _spread_gate(build: Builder, group: Group) -> Built:
    operands = _operands(build, group)
    if isinstance(operands, Mismatch):
        return operands
    (image, layout, _), (gate, _, _) = operands
    _, height, width = group.form.extents
    spread = build.rw.op("Upsample", gate, domain=DOMAIN, scales=(1, 1, height, width), mode="nearest")
    node = group.form.node
    is_first = build.now(group.form.operands[0]) is node.inputs[0]
    made = build.rw.op(node.op_type, *((image, spread) if is_first else (spread, image)))
    return [(made, layout)]


def _elementwise(build: Builder, group: Group) -> Built:
    operands = _operands(build, group)
    if isinstance(operands, Mismatch):
        return operands
    node = group.form.node
    blocked = {value: entered.value for value, entered in zip(group.form.operands, operands, strict=True)}
    by_current = {build.now(value): made for value, made in blocked.items()}
    inputs = [by_current.get(v, v) if v is not None else None for v in node.inputs]
    out = build.rw.op(node.op_type, *inputs, domain=node.domain, **node.attrs)
    return [(out, operands[0].layout)]


def _pool(build: Builder, group: Group) -> Built:
    node = group.form.node
    entered = build.enter(group.form.operands[0])
    if isinstance(entered, Mismatch):
        return entered
    attrs: dict[str, Any] = {name: node.attrs.get(name) for name in _POOL}
    if not any(attrs["pads"] or ()) and node.attr("auto_pad", "NOTSET") in ("NOTSET", "VALID"):
        # Nothing is included, but a window that is larger than the image, which the kernels count differently.
        attrs["count_include_pad"] = None
    return [(build.rw.op(node.op_type, entered.value, domain=DOMAIN, **attrs), entered.layout)]


def _global_pool(build: Builder, group: Group) -> Built:
    entered = build.enter(group.form.operands[0])
    if isinstance(entered, Mismatch):
        return entered
    op = "GlobalMaxPool" if group.form.node.op == "GlobalMaxPool" else "GlobalAveragePool"
    return [(build.rw.op(op, entered.value, domain=DOMAIN), entered.layout)]


def _global_row(build: Builder, group: Group) -> Built:
    results = _global_pool(build, group)
    if not isinstance(results, list):
        return results
    value, layout = results[0]
    build.state_type(value, layout, (None, 1, 1))
    made: Value = build.rw.op("Flatten", build.leave(value, layout), axis=1)
    return made


def _prelu(build: Builder, group: Group) -> Built:
    """Relu(x) + slope * Min(x, 0): the kernel of PRelu takes longer than the three together."""
    entered = build.enter(group.form.operands[0])
    if isinstance(entered, Mismatch):
        return entered
    source, layout, _ = entered
    scale = group.form.data["scale"]
    assert isinstance(scale, np.ndarray)
    wide = np.ascontiguousarray(weights.vector(scale, layout, build.block))
    below = build.rw.op("Min", source, np.array(0, np.float32))
    slope = build.rw.constant(wide.reshape(-1, 1, 1, 1))
    out = build.rw.op("Conv", below, slope, None, build.rw.op("Relu", source), domain=DOMAIN, group=len(wide))
    return [(out, layout)]


def _upsample(build: Builder, group: Group) -> Built:
    entered = build.enter(group.form.operands[0])
    if isinstance(entered, Mismatch):
        return entered
    data = group.form.data
    out = build.rw.op(
        "Upsample", entered.value, domain=DOMAIN, scales=tuple(data["scales"]), mode=data["mode"],  # type: ignore[arg-type]
        coordinate_transformation_mode=data["coordinates"],
    )  # fmt: skip
    return [(out, entered.layout)]


def _concat(build: Builder, group: Group) -> Built:
    found: list[Blocked] = []
    for value in group.form.operands:
        entered = build.enter(value)
        if isinstance(entered, Mismatch):
            return entered
        found.append(entered)
    layout = weights.canonical([s for each in found for s in each.layout], build.block)
    return [(build.rw.op("Concat", *(each.value for each in found), axis=1), layout)]


def _split(build: Builder, group: Group) -> Built:
    form = group.form
    entered = build.enter(form.operands[0], form.data["layout"])  # type: ignore[arg-type]
    if isinstance(entered, Mismatch):
        return entered
    sizes = tuple(weights.lanes(layout, build.block) for layout in form.layouts)
    count = len(sizes)
    if build.rw.graph.opset() < 13:
        made = build.rw.op("Split", entered.value, outputs=count, axis=1, split=sizes)
    else:
        made = build.rw.op("Split", entered.value, np.array(sizes, np.int64), outputs=count, axis=1)
    outs = [made] if count == 1 else list(made)
    return list(zip(outs, form.layouts, strict=True))


def _slice(build: Builder, group: Group) -> Built:
    form = group.form
    entered = build.enter(form.operands[0], form.data["layout"])  # type: ignore[arg-type]
    if isinstance(entered, Mismatch):
        return entered
    bounds = (np.array([n], np.int64) for n in (form.data["start"], form.data["end"], 1))
    return [(build.rw.op("Slice", entered.value, *bounds), form.layouts[0])]


def _silu(build: Builder, group: Group) -> Built:
    entered = build.enter(group.form.operands[0])
    if isinstance(entered, Mismatch):
        return entered
    return [(build.rw.op("QuickGelu", entered.value, domain="com.microsoft", alpha=1.0), entered.layout)]


def _to_nhwc(build: Builder, group: Group) -> Built:
    form = group.form
    x = form.operands[0]
    found = build.blocked(x)
    if found is None or len(found.layout) != 1:
        return Mismatch("{} is not blocked", x.name)
    made: Value = build.rw.op("ReorderOutput", found.value, domain=DOMAIN, channels=found.layout[0], channels_last=1)
    return made


def _from_nhwc(build: Builder, group: Group) -> Built:
    node = group.form.node
    made = build.rw.op("ReorderInput", node.inputs[0], domain=DOMAIN, channels_last=1)
    return [(made, group.form.layouts[0])]


BUILDERS: dict[Kind, Callable[[Builder, Group], Built]] = {
    Kind.CONV: _conv,
    Kind.GROUPED: _grouped,
    Kind.DEPTHWISE: _depthwise,
    Kind.TRANSPOSED: build_transposed,
    Kind.AFFINE: _affine,
    Kind.GATE: _gate,
    Kind.SPREAD_GATE: _spread_gate,
    Kind.PIXEL_GATE: build_pixel_gate,
    Kind.ELEMENTWISE: _elementwise,
    Kind.PRELU: _prelu,
    Kind.SILU: _silu,
    Kind.POOL: _pool,
    Kind.GLOBAL_POOL: _global_pool,
    Kind.GLOBAL_ROW: _global_row,
    Kind.UPSAMPLE: _upsample,
    Kind.CONCAT: _concat,
    Kind.SPLIT: _split,
    Kind.SLICE: _slice,
    Kind.PAD: build_pad,
    Kind.CROP: build_crop,
    Kind.TO_NHWC: _to_nhwc,
    Kind.FROM_NHWC: _from_nhwc,
}
"""How each kind of form is built."""
