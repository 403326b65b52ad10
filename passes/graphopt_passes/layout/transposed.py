"""Transposed convolutions in blocks: convolutions of all results within a stride, which are then put in order.

With a stride of s, result f = s * m + q of an axis is the sum over j of x[m - j] * w[s * j + q]: for each q, the place
within the stride, a convolution of the input with every s-th tap of the kernel. Where s divides the kernel all of them
have equal windows and are one convolution with s * s times as many outputs; otherwise each place has its own. The
places move into rows and columns by a `Transpose` of whole rows of a block, and what the pads cut off is sliced off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graphopt.ir import Node, TensorType, Value
from graphopt.match import Mismatch
from graphopt_passes.layout import weights
from graphopt_passes.layout.facts import FLOAT, Facts, Form, Kind, image_and_kernel
from graphopt_passes.layout.lanes import ZERO

if TYPE_CHECKING:
    from graphopt_passes.layout.emit import Blocked, Builder, Built
    from graphopt_passes.layout.plan import Group

_BLOCKED = "com.microsoft.nchwc"
_TO_THE_END = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a transposed convolution as a convolution.

    Attributes:
        stride: results for each position of the convolution.
        kernel: taps of the transposed convolution.
        taps: taps of the convolution.
        first: the multiple of the stride that the results begin in.
        after: its pad at the end.
        skip: results that are cut off at the beginning.
        tail: results that are cut off at the end.
        more: positions of the convolution, less those of the input.
    """

    stride: int
    kernel: int
    taps: int
    first: int
    after: int
    skip: int
    tail: int
    more: int

    @classmethod
    def of(cls, kernel: int, stride: int, pads: tuple[int, int], extra: int) -> Axis:
        """The axis of a kernel with a stride, pads at both ends, and `output_padding`."""
        begin, end = pads
        taps = -(-kernel // stride)
        # The last place has the fewest taps, and no pad of its convolution is negative.
        first = min(begin // stride, (kernel - stride) // stride)
        after = max((extra + kernel - 1 - end) // stride, 0)
        skip, more = begin - first * stride, after - first
        tail = stride * (more + 1) - skip - (extra + kernel - begin - end)
        return cls(stride, kernel, taps, first, after, skip, tail, more)

    def taps_at(self, place: int) -> int:
        """Taps of the kernel for one place within the stride."""
        return -(-(self.kernel - place) // self.stride)

    def size(self, source: int) -> int:
        """How many results it has for so many positions of the input."""
        return self.stride * (source + self.more) - self.skip - self.tail


@dataclass(frozen=True, slots=True)
class Phases:
    """A transposed convolution as convolutions.

    Attributes:
        rows: its vertical axis.
        columns: its horizontal axis.
        height: of the input; None when it is not fixed.
        width: of the input; None when it is not fixed.
    """

    rows: Axis
    columns: Axis
    height: int | None
    width: int | None

    @property
    def places(self) -> list[tuple[int, int]]:
        """The places within a stride, row by row."""
        return [(row, column) for row in range(self.rows.stride) for column in range(self.columns.stride)]

    @property
    def kernels(self) -> list[tuple[int, int]]:
        """Height and width of the kernel of each convolution: one for all places, or one for each.

        Taps of zero would do as well, but an infinity would become NaN there.
        """
        apart = [(self.rows.taps_at(row), self.columns.taps_at(column)) for row, column in self.places]
        return apart if len(set(apart)) > 1 else apart[:1]

    @classmethod
    def of(cls, form: Form) -> Phases:
        """Those of a form that `transposed_form` has made."""
        phases = form.data["phases"]
        assert isinstance(phases, Phases)
        return phases


def transposed_form(node: Node, facts: Facts) -> Form | Mismatch | None:
    """The blocked form of a ConvTranspose."""
    found = image_and_kernel(node, outputs=1)
    if not isinstance(found, tuple) or node.outputs[0] is None:
        return None if isinstance(found, tuple) else found
    x, tensor = found
    inputs, outputs = tensor.dims[:2]
    layout = facts.layout(x) or ((inputs,) if x.shape is None else None)
    if layout is None or sum(layout) != inputs:
        return Mismatch("channels of {} do not fit its weight", x.name)
    axes = _axes(node, tensor.dims[2:])
    if isinstance(axes, Mismatch):
        return axes
    batch, *source = facts.extents(x)
    known = [size if isinstance(size, int) else None for size in source]
    sizes = [axis.size(size) if size is not None else None for axis, size in zip(axes, known, strict=True)]
    if any(size is not None and size < 1 for size in sizes):
        return Mismatch("its result is empty")
    stated = facts.refined(None, node)
    extents = (batch, *(stated[at + 1] if size is None else size for at, size in enumerate(sizes)))
    data: dict[str, object] = {"phases": Phases(*axes, *known)}
    return Form(node, Kind.TRANSPOSED, [x], [(outputs,)], extents, ZERO, head=True, sums=False, data=data)


def _axes(node: Node, kernel: Any) -> tuple[Axis, Axis] | Mismatch:
    """Both axes, or what of the node is not supported."""
    if node.attr("group", 1) != 1:
        return Mismatch("it has {} groups", node.attr("group"))
    dilations = tuple(node.attr("dilations") or (1, 1))
    if dilations != (1, 1):
        return Mismatch("its dilations are {}", dilations)
    auto = node.attr("auto_pad", "NOTSET")
    if auto not in ("NOTSET", "VALID"):
        return Mismatch("its pads are {}", auto)
    if node.attr("output_shape"):
        return Mismatch("its pads follow from its output_shape")
    pads = (0, 0, 0, 0) if auto == "VALID" else tuple(node.attr("pads") or (0, 0, 0, 0))
    if min(pads) < 0:
        return Mismatch("its pads {} are negative", pads)
    strides = tuple(node.attr("strides") or (1, 1))
    if any(stride > size for stride, size in zip(strides, kernel, strict=True)):
        return Mismatch("its strides {} are larger than its kernel", strides)
    extra = tuple(node.attr("output_padding") or (0, 0))
    rows, columns = (Axis.of(kernel[at], strides[at], (pads[at], pads[at + 2]), extra[at]) for at in (0, 1))
    return rows, columns


def phase_weight(weight: np.ndarray, phases: Phases, at: int) -> np.ndarray:
    """Weights of a convolution, [K, C, ...] for one place, [places * K, C, ...] for all, from [C, K, kh, kw]."""
    rows, columns = phases.rows, phases.columns
    inputs, outputs = weight.shape[:2]
    if len(phases.kernels) > 1:
        row, column = phases.places[at]
        taps = weight[:, :, row :: rows.stride, column :: columns.stride]
        return np.ascontiguousarray(taps[:, :, ::-1, ::-1].swapaxes(0, 1))
    split = weight.reshape(inputs, outputs, rows.taps, rows.stride, columns.taps, columns.stride)
    turned = split[:, :, ::-1, :, ::-1].transpose(3, 5, 1, 0, 2, 4)
    return np.ascontiguousarray(turned).reshape(-1, inputs, rows.taps, columns.taps)


def build_transposed(build: Builder, group: Group) -> Built:
    """The convolutions, with the activation that follows, and their results in order."""
    form = group.form
    x, weight = form.operands[0], form.node.inputs[1]
    assert weight is not None
    known = x.shape is not None or build.blocked(x) is not None
    entered = build.convolved(group, None if known else weight.constant_tensor.dims[:1])  # type: ignore[union-attr]
    if isinstance(entered, Mismatch):
        return entered
    phases = Phases.of(form)
    made = [_convolution(build, group, entered, at) for at in range(len(phases.kernels))]
    out = made[0] if len(made) == 1 else build.rw.op("Concat", *made, axis=1)
    return [(_in_order(build, form, out, phases), form.layouts[0])]


def _convolution(build: Builder, group: Group, entered: Blocked, at: int) -> Value:
    """One convolution, with the activation."""
    form, (source, inputs, _) = group.form, entered
    phases, weight, bias = Phases.of(form), form.node.inputs[1], form.node.input(2)
    array = weight.const() if weight is not None else None
    assert array is not None
    assert weight is not None
    layout = form.layouts[0] * (len(phases.places) // len(phases.kernels))

    def blocked() -> np.ndarray:
        return weights.both_blocked(phase_weight(array, phases, at), inputs, layout, build.block)

    made = build.constant(weight, ("phases", phases, at, inputs), blocked)
    if bias is not None:
        numbers = bias.const()
        assert numbers is not None
        repeated = np.tile(numbers, len(layout))
        bias = build.constant(bias, ("phases", layout), lambda: weights.vector(repeated, layout, build.block))
    kernel, axes = phases.kernels[at], (phases.rows, phases.columns)
    before = (taps - 1 - axis.first for taps, axis in zip(kernel, axes, strict=True))
    attrs: dict[str, Any] = {"pads": (*before, *(axis.after for axis in axes))}
    if group.activation is not None:
        attrs |= {"activation": group.activation[0], "activation_params": group.activation[1] or None}
    out: Value = build.rw.op("Conv", source, made, bias, domain=_BLOCKED, kernel_shape=kernel, **attrs)
    batch = form.extents[0] if isinstance(form.extents[0], int) else None
    out.type = TensorType(FLOAT, (batch, weights.lanes(layout, build.block), *_positions(phases)))
    return out


def _positions(phases: Phases) -> tuple[int | None, int | None]:
    """Height and width of what the convolutions compute."""
    height = None if phases.height is None else phases.height + phases.rows.more
    return height, None if phases.width is None else phases.width + phases.columns.more


def _in_order(build: Builder, form: Form, out: Value, phases: Phases) -> Value:
    """The places moved into rows and columns, and the margins cut off."""
    rw, block = build.rw, build.block
    rows, columns = phases.rows, phases.columns
    cut = [(at, axis.skip, -axis.tail) for at, axis in ((2, rows), (3, columns)) if axis.skip or axis.tail]
    whole = rows.stride == columns.stride == 1
    if whole and not cut:
        return out
    blocks, made = weights.lanes(form.layouts[0], block) // block, out

    def sizes(times: tuple[int, int] = (1, 1), less: tuple[int, int] = (0, 0)) -> list[Value | int]:
        return [
            size * times[at] - less[at] if size is not None else _open_size(build, made, at + 2, (times[at], less[at]))
            for at, size in enumerate(_positions(phases))
        ]

    if not whole:
        split = _shaped(build, out, rows.stride, columns.stride, blocks, *sizes(), block)
        out = rw.op("Transpose", split, perm=(0, 3, 4, 1, 5, 2, 6))
    strides = rows.stride, columns.stride
    if cut:
        out = _sliced(build, _shaped(build, out, blocks, *sizes(strides), block), cut)
    return _shaped(build, out, blocks * block, *sizes(strides, (rows.skip + rows.tail, columns.skip + columns.tail)))


def _shaped(build: Builder, value: Value, *dims: Value | int) -> Value:
    """The value with the batch as it is and other dims, some of which are computed."""
    parts = [0, *dims]
    shape: Any = np.array(parts, np.int64) if all(isinstance(dim, int) for dim in parts) else None
    if shape is None:
        lists = [np.array([dim], np.int64) if isinstance(dim, int) else dim for dim in parts]
        shape = build.rw.op("Concat", *lists, axis=0)
    made: Value = build.rw.op("Reshape", value, shape)
    return made


def _open_size(build: Builder, value: Value, axis: int, change: tuple[int, int]) -> Value:
    """A dynamic size of a value, times a number and less another, as a list of one."""
    rw, (times, less) = build.rw, change
    size: Value = rw.op("Gather", rw.op("Shape", value), np.array([axis], np.int64), axis=0)
    if times != 1:
        size = rw.op("Mul", size, np.array([times], np.int64))
    if less:
        size = rw.op("Sub", size, np.array([less], np.int64))
    return size


def _sliced(build: Builder, value: Value, cut: list[tuple[int, int, int]]) -> Value:
    axes, starts, ends = (list(numbers) for numbers in zip(*cut, strict=True))
    ends = [end or _TO_THE_END for end in ends]
    made: Value
    if build.rw.graph.opset() < 10:
        made = build.rw.op("Slice", value, axes=axes, starts=starts, ends=ends)
    else:
        made = build.rw.op("Slice", value, *(np.array(numbers, np.int64) for numbers in (starts, ends, axes)))
    return made
