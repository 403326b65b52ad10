"""Pools on blocked values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphopt.ir import Node, Value
from graphopt.match import Mismatch
from graphopt_passes.layout.extents import Extents, sliding
from graphopt_passes.layout.facts import Answer, Facts, Form, Kind, integers
from graphopt_passes.layout.lanes import ANYTHING, Lanes


def _pool(node: Node, facts: Facts) -> Answer:
    x = node.inputs[0]
    layout = facts.layout(x)
    kernel = node.attr("kernel_shape")
    if x is None or layout is None or kernel is None or len(kernel) != 2:
        return None
    if node.output(1) is not None and node.outputs[1].uses:  # type: ignore[union-attr]
        return Mismatch("indices of {} are used", node.outputs[0].name)  # type: ignore[union-attr]
    ceil = node.attr("ceil_mode", 0)
    if node.op == "AveragePool" and ceil and node.attr("count_include_pad", 0):
        return Mismatch("with ceil_mode the padding that counts depends on the version")
    if _exceeds(node, kernel, facts, x):
        return Mismatch("the window is larger than {}", x.name)
    extents = facts.refined(sliding(node, facts.extents(x), kernel), node)
    return Form(node, Kind.POOL, [x], [layout], extents, _pooled(node, kernel, extents, facts))


def _exceeds(node: Node, kernel: Sequence[int], facts: Facts, x: Value) -> bool:
    """Whether a window is larger than the image and its padding: the kernels count its cells differently."""
    auto, pads = node.attr("auto_pad", "NOTSET"), node.attr("pads") or (0, 0, 0, 0)
    if auto.startswith("SAME"):
        return False
    dilations = node.attr("dilations") or (1, 1)
    return any(
        isinstance(size, int)
        and (kernel[axis] - 1) * dilations[axis] + 1 > size + (auto == "NOTSET") * (pads[axis] + pads[axis + 2])
        for axis, size in enumerate(facts.extents(x)[1:])
    )


def _pooled(node: Node, kernel: Sequence[int], made: Extents, facts: Facts) -> Lanes:
    """The lanes of a pool: like those of its operand, unless a window may lie in the padding altogether."""
    x = node.inputs[0]
    assert x is not None
    dilations, strides = node.attr("dilations") or (1, 1), node.attr("strides") or (1, 1)
    pads = node.attr("pads") or (0, 0, 0, 0)
    for axis, (size, results) in enumerate(zip(facts.extents(x)[1:], made[1:], strict=True)):
        known = isinstance(size, int)
        if dilations[axis] > 1 and not (known and dilations[axis] <= size):
            return ANYTHING
        if not node.attr("ceil_mode", 0) or (strides[axis] <= kernel[axis] and not pads[axis + 2]):
            continue
        if not (known and isinstance(results, int) and (results - 1) * strides[axis] - pads[axis] < size):
            return ANYTHING
    return facts.lanes(x).averaged() if node.op == "AveragePool" else facts.lanes(x)


def _global_pool(node: Node, facts: Facts) -> Answer:
    x = node.inputs[0]
    layout = facts.layout(x)
    if x is None or layout is None:
        return None
    lanes = facts.lanes(x) if node.op == "GlobalMaxPool" else facts.lanes(x).averaged()
    return Form(node, Kind.GLOBAL_POOL, [x], [layout], (facts.extents(x)[0], 1, 1), lanes)


def _reduce_mean(node: Node, facts: Facts) -> Answer:
    axes = node.attrs.get("axes")
    if axes is None and len(node.inputs) > 1:
        axes = integers(node.inputs[1])
    if axes is None or sorted(int(a) % 4 for a in axes) != [2, 3]:
        return None
    form = _global_pool(node, facts)
    if isinstance(form, Form) and not node.attr("keepdims", 1):
        form.kind, form.layouts = Kind.GLOBAL_ROW, []
    return form


def _not_there(node: Node, facts: Facts) -> Answer:
    return Mismatch("there is no blocked {}", node.op) if facts.layout(node.inputs[0]) is not None else None


POOLS: dict[str, Callable[[Node, Facts], Answer]] = {
    "AveragePool": _pool,
    "GlobalAveragePool": _global_pool,
    "GlobalLpPool": _not_there,
    "GlobalMaxPool": _global_pool,
    "LpPool": _not_there,
    "MaxPool": _pool,
    "MaxRoiPool": _not_there,
    "ReduceMean": _reduce_mean,
}
"""The blocked form of each pool, or why it has none."""
