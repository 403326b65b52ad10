"""Which nodes can run on blocked values, and how: one function for each family of operators."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_

import numpy as np

from graphopt.ir import Node, Value
from graphopt.match import Mismatch
from graphopt_passes.layout.activations import (
    ELEMENTWISE,
    gated_by_sigmoid,
    lanes_behind,
    lanes_of_activation,
    range_of,
)
from graphopt_passes.layout.extents import sliding
from graphopt_passes.layout.facts import (
    FLOAT,
    Answer,
    Facts,
    Form,
    Kind,
    channel_vector,
    image_and_kernel,
    integers,
    scalar,
)
from graphopt_passes.layout.lanes import ANYTHING, COMBINED, ZERO, Lanes, mapped
from graphopt_passes.layout.pools import POOLS
from graphopt_passes.layout.resize import resize_form
from graphopt_passes.layout.spatial import crop_form, cut_axes, pad_form, pixel_gate_form
from graphopt_passes.layout.transposed import transposed_form
from graphopt_passes.layout.weights import canonical, divided, lanes


def form_of(node: Node, facts: Facts) -> Answer:
    """The blocked form of a node.

    Args:
        node: a node whose inputs `facts` knows.
        facts: what is known of values.

    Returns:
        The form; a `Mismatch` with the reason of a near miss; None for nodes that are no business of this pass.
    """
    maker = MAKERS.get(node.op)
    if maker is None or not node.inputs or not node.outputs or node.outputs[0] is None:
        return None
    answer = maker(node, facts)
    if isinstance(answer, Form) and answer.kind.mixes:
        answer.by_plain = not facts.lanes(answer.operands[0]).bounded
    return answer


# ---------------------------------------------------------------------- convolutions


def _conv(node: Node, facts: Facts) -> Answer:
    found = image_and_kernel(node, outputs=0)
    if not isinstance(found, tuple):
        return found
    x, tensor = found
    outputs, per_group = tensor.dims[:2]
    group = int(node.attr("group", 1))
    layout = facts.layout(x) or ((per_group * group,) if x.shape is None else None)
    if layout is None or sum(layout) != per_group * group or outputs % group:
        return Mismatch("channels of {} do not fit its weight", x.name)
    merge = 1 if group == 1 or (per_group == 1 and outputs == group) else _merge(facts.block, group, per_group, outputs)
    source = facts.extents(x)
    extents = facts.refined(sliding(node, source, tensor.dims[2:]), node)
    data: dict[str, object] = {"merge": merge, "group": group}
    form = Form(node, Kind.CONV, [x], [(outputs,)], extents, ZERO, head=True, data=data)
    if group > 1 and merge == 1 and per_group == 1 and outputs == group:
        form.kind, form.layouts, form.note = Kind.DEPTHWISE, [layout], "depthwise"
        form.lanes = _times_zero(facts.lanes(x))
    elif group > merge:
        if not facts.aligned(layout) or len(layout) != 1:
            return Mismatch("groups of {} do not lie in whole blocks", x.name)
        form.kind, form.note = Kind.GROUPED, f"{group // merge} groups"
    else:
        form.plain = per_group * group < facts.block
    return _with_residual(form, facts)


def _times_zero(lanes: Lanes) -> Lanes:
    """What a depthwise convolution, whose weights are zero there, makes of padding lanes."""
    return ZERO if lanes.bounded else ANYTHING


def _merge(block: int, group: int, per_group: int, outputs: int) -> int:
    """How many groups to make one so that each has whole blocks; all of them when nothing less does."""
    for merge in range(1, group):
        if group % merge == 0 and per_group * merge % block == 0 and outputs // group * merge % block == 0:
            return merge
    return group


def _with_residual(form: Form, facts: Facts) -> Answer:
    """For com.microsoft::FusedConv: the residual input that it already adds."""
    node = form.node
    residual = node.input(3) if node.domain else None
    if residual is not None:
        layout = facts.layout(residual)
        if layout != form.layouts[0]:
            return Mismatch("{} is not known to have the shape of the convolution", residual.name)
        form.operands.append(residual)
        form.lanes = facts.lanes(residual) if form.lanes == ZERO else ANYTHING
    if node.domain:
        form.lanes = lanes_of_activation(node, form.lanes)
    return form


# ---------------------------------------------------------------------- elementwise


def _unary(node: Node, facts: Facts) -> Answer:
    x = node.inputs[0]
    layout = facts.layout(x)
    if x is None or layout is None:
        return None
    if any(v is not None and not _is_number(v) for v in node.inputs[1:]):
        return None
    lanes = lanes_behind(node, [facts.lanes(x)])
    return Form(node, Kind.ELEMENTWISE, [x], [layout], facts.extents(x), lanes)


def _is_number(value: Value) -> bool:
    tensor = value.constant_tensor
    if tensor is not None:
        return tensor.numel == 1 and len(tensor.dims) <= 4
    return value.shape == ()


def _elementwise(node: Node, facts: Facts) -> Answer:
    gated = gated_by_sigmoid(node)
    if gated is not None:
        return _silu(node, facts, *gated)
    images = [v for v in node.inputs if v is not None and not _is_number(v)]
    layouts = [facts.layout(v) for v in images]
    if not images or None in layouts or any(v.is_const for v in images):
        return _per_channel(node, facts)
    if len(images) == 2 and layouts[0] == layouts[1]:
        gate = _gate(node, facts, images)
        if gate is not None:
            return gate
    pixel_gate = pixel_gate_form(node, facts, images)
    if pixel_gate is not None:
        return pixel_gate
    first = images[0]
    if any(layout != layouts[0] for layout in layouts) or any(
        facts.extents(v) != facts.extents(first) for v in images[1:]
    ):
        return Mismatch("operands of {} are not known to be of one shape", node.outputs[0].name)  # type: ignore[union-attr]
    layout = layouts[0]
    assert layout is not None
    operands = [facts.lanes(v) if v in images else range_of(v) for v in node.inputs if v is not None]
    return Form(node, Kind.ELEMENTWISE, images, [layout], facts.extents(first), lanes_behind(node, operands))


def _silu(node: Node, facts: Facts, x: Value, sigmoid: Node) -> Answer:
    layout = facts.layout(x)
    if layout is None:
        return None
    data: dict[str, object] = {"sigmoid": sigmoid}
    lanes = lanes_behind(sigmoid, [facts.lanes(x)])
    lanes = lanes_behind(node, [facts.lanes(x), lanes])
    return Form(node, Kind.SILU, [x], [layout], facts.extents(x), lanes, data=data)


def _gate(node: Node, facts: Facts, images: list[Value]) -> Answer:
    """An image and one number for each of its channels, as squeeze-and-excitation has it."""
    sizes = [facts.extents(v) for v in images]
    gates = [i for i in (0, 1) if sizes[i][1:] == (1, 1) and sizes[1 - i][1:] != (1, 1)]
    if not gates or len(node.inputs) != 2 or node.op not in _GATES:
        return None
    gate, image = images[gates[0]], images[1 - gates[0]]
    batch, height, width = extents = facts.extents(image)
    layout = facts.layout(image)
    assert layout is not None
    lanes = lanes_behind(node, [facts.lanes(v) for v in images])
    form = Form(node, Kind.GATE, [image, gate], [layout], extents, lanes, head=True)
    if facts.extents(gate)[0] == 1 and (node.op in ("Mul", "Add") or (node.op == "Sub" and gates == [1])):
        form.note = "gate as weight" if node.op == "Mul" else "gate as bias"
        return form
    if facts.extents(gate)[0] == batch and isinstance(height, int) and isinstance(width, int):
        form.kind, form.head, form.note = Kind.SPREAD_GATE, False, "gate spread out"
        return form
    return Mismatch("batch and size of {} are dynamic, so its gate stays in NCHW", image.name)


_GATES = frozenset({"Add", "Max", "Min", "Mul", "Sub"})
"""Operators on an image and a gate."""


def _per_channel(node: Node, facts: Facts) -> Answer:
    """Mul or Add of a constant for each channel: a depthwise 1x1 convolution."""
    if node.op not in ("Mul", "Add", "Sub", "Div") or len(node.inputs) != 2:
        return None
    for index, (image, other) in enumerate((node.inputs, node.inputs[::-1])):
        layout = facts.layout(image)
        if image is None or other is None or layout is None or (index == 1 and node.op in ("Sub", "Div")):
            continue
        numbers = channel_vector(other, sum(layout))
        if numbers is None:
            continue
        scale, shift = np.ones_like(numbers), None
        if node.op in ("Mul", "Div"):
            scale = numbers if node.op == "Mul" else (1 / numbers.astype(np.float64)).astype(np.float32)
        else:
            shift = numbers if node.op == "Add" else -numbers
        return _affine(node, facts, image, scale, shift)
    return None


def _affine(node: Node, facts: Facts, x: Value, scale: np.ndarray, shift: np.ndarray | None) -> Answer:
    layout = facts.layout(x)
    assert layout is not None
    if not np.isfinite(scale).all():
        return Mismatch("the factors of {} are not finite", node.outputs[0].name)  # type: ignore[union-attr]
    data: dict[str, object] = {"scale": scale, "shift": shift}
    lanes = _times_zero(facts.lanes(x))
    return Form(node, Kind.AFFINE, [x], [layout], facts.extents(x), lanes, head=True, note="1x1 depthwise", data=data)


def _batch_normalization(node: Node, facts: Facts) -> Answer:
    x = node.inputs[0]
    layout = facts.layout(x)
    if x is None or layout is None:
        return None
    arrays = [v.const() if v is not None else None for v in node.inputs[1:5]]
    if len(arrays) < 4 or any(a is None or a.dtype != np.float32 or a.size != sum(layout) for a in arrays):
        return Mismatch("statistics of {} are not constant", node.outputs[0].name)  # type: ignore[union-attr]
    if node.attr("training_mode", 0) or any(v is not None and v.uses for v in node.outputs[1:]):
        return Mismatch("{} is in training mode", node.outputs[0].name)  # type: ignore[union-attr]
    gamma, beta, mean, variance = (a.astype(np.float64) for a in arrays if a is not None)
    scale = gamma / np.sqrt(variance + float(node.attr("epsilon", 1e-5)))
    shift = beta - mean * scale
    return _affine(node, facts, x, scale.astype(np.float32), shift.astype(np.float32))


def _prelu(node: Node, facts: Facts) -> Answer:
    """PRelu with a constant slope for each channel."""
    x, slope = node.input(0), node.input(1)
    layout = facts.layout(x)
    if x is None or slope is None or layout is None or node.graph.opset() < _BROADCASTING_MIN:
        return None
    numbers = channel_vector(slope, sum(layout))
    if numbers is None and slope.constant_tensor is not None and slope.constant_tensor.numel == 1:
        number = scalar(slope)
        numbers = None if number is None else np.full(sum(layout), number, np.float32)
    if numbers is None:
        return Mismatch("{} is no constant for each channel", slope.name)
    if not np.isfinite(numbers).all():
        return Mismatch("{} is not finite", slope.name)
    lanes = mapped("Relu", facts.lanes(x))
    return Form(node, Kind.PRELU, [x], [layout], facts.extents(x), lanes, data={"scale": numbers})


_BROADCASTING_MIN = 8


# ---------------------------------------------------------------------- channels joined and divided


def _concat(node: Node, facts: Facts) -> Answer:
    inputs = [v for v in node.inputs if v is not None]
    layouts = [facts.layout(v) for v in inputs]
    if node.attr("axis") not in (1, -3) or any(layout is None for layout in layouts):
        return None
    segments = canonical([s for layout in layouts for s in layout or ()], facts.block)
    lanes = reduce(or_, map(facts.lanes, inputs))
    return Form(node, Kind.CONCAT, inputs, [segments], facts.extents(inputs[0]), lanes)


def _split(node: Node, facts: Facts) -> Answer:
    x = node.inputs[0]
    layout = facts.layout(x)
    if x is None or layout is None or node.attr("axis", 0) not in (1, -3) or None in node.outputs:
        return None
    count = len(node.outputs)
    sizes = list(node.attrs.get("split") or ()) or integers(node.input(1))
    if sizes is None and node.input(1) is None:
        each = -(-sum(layout) // count)
        sizes = [min(each, sum(layout) - each * i) for i in range(count)]
    if sizes is None or sum(sizes) != sum(layout) or min(sizes) < 1:
        return Mismatch("{} is not split at known channels", x.name)
    pieces = divided(layout, sizes, facts.block)
    if pieces is None:
        return Mismatch("{} is not split at block boundaries", x.name)
    return Form(node, Kind.SPLIT, [x], pieces, facts.extents(x), facts.lanes(x), data={"layout": layout})


def _slice(node: Node, facts: Facts) -> Answer:
    x = node.inputs[0]
    layout = facts.layout(x)
    if x is None or layout is None:
        return None
    if cut_axes(node) != [1]:
        return crop_form(node, facts)
    if node.graph.opset() < 10:
        return Mismatch("{} is sliced by attributes", x.name)
    starts, ends = integers(node.input(1)), integers(node.input(2))
    steps = integers(node.input(4)) if node.input(4) is not None else [1]
    if starts is None or ends is None or steps != [1] or len(starts) != 1:
        return Mismatch("{} is not sliced at known channels", x.name)
    total = sum(layout)
    start, end = (min(max(i + total if i < 0 else i, 0), total) for i in (starts[0], ends[0]))
    pieces = divided(layout, (start, end - start, total - end), facts.block) if start < end else None
    if pieces is None:
        return Mismatch("{} is not sliced at block boundaries", x.name)
    first = lanes(pieces[0], facts.block)
    data: dict[str, object] = {"layout": layout, "start": first, "end": first + lanes(pieces[1], facts.block)}
    return Form(node, Kind.SLICE, [x], pieces[1:2], facts.extents(x), facts.lanes(x), data=data)


def _transpose(node: Node, facts: Facts) -> Answer:
    """From and to NHWC: reorders do that as well."""
    x, perm = node.inputs[0], tuple(node.attr("perm") or ())
    if x is None or perm not in ((0, 2, 3, 1), (0, 3, 1, 2)):
        return None
    if perm == (0, 2, 3, 1):
        layout = facts.layout(x)
        if layout is None:
            return None
        if len(layout) != 1:
            return Mismatch("channels of {} lie apart", x.name)
        return Form(node, Kind.TO_NHWC, [x], [], facts.extents(x), ZERO, data={"channels": layout[0]})
    shape = x.shape
    if x.dtype != FLOAT or shape is None or not isinstance(shape[3], int) or shape[3] % 4 or not shape[3]:
        return None
    return Form(node, Kind.FROM_NHWC, [], [(shape[3],)], facts.refined(None, node), ZERO)


MAKERS: dict[str, Callable[[Node, Facts], Answer]] = {
    "Conv": _conv,
    "com.microsoft::FusedConv": _conv,
    "ConvTranspose": transposed_form,
    **POOLS,
    "BatchNormalization": _batch_normalization,
    "Concat": _concat,
    "Pad": pad_form,
    "PRelu": _prelu,
    "Split": _split,
    "Slice": _slice,
    "Resize": resize_form,
    "Upsample": resize_form,
    "Transpose": _transpose,
    **dict.fromkeys(COMBINED, _elementwise),
    **dict.fromkeys(ELEMENTWISE, _unary),
}
