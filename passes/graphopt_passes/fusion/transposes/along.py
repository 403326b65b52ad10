"""Operators that part, repeat, resize, scale or multiply along some axes, on permuted inputs."""

from __future__ import annotations

import numpy as np

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch
from graphopt_passes.elimination.facts import constant_ints
from graphopt_passes.fusion.transposes.axes import SLOWER, left, slows
from graphopt_passes.fusion.transposes.permuted import Perm, Permuted, Sources, first, rearranged

ARG_REDUCTIONS = ("ArgMax", "ArgMin")
NORMALIZATIONS = ("LayerNormalization", "RMSNormalization")

_IMAGE_AXES = 2
"""Runtimes resize smoothly along the last two axes."""


def _axis(node: Node, default: int, rank: int) -> int | Mismatch:
    axis = node.attr("axis", default)
    if not isinstance(axis, int) or not -rank <= axis < rank:
        return Mismatch("the axis of {} does not exist", node.op)
    return axis % rank


def one_axis(node: Node, sources: Sources, perm: Perm) -> Permuted | Mismatch:
    """`Split`, `TopK` and `Hardmax`, which work along one axis and keep it."""
    x = first(node, sources)
    axis = _axis(node, -1 if node.op != "Split" else 0, len(perm))
    if isinstance(x, Mismatch):
        return x
    if isinstance(axis, Mismatch):
        return axis
    if node.op == "Hardmax" and node.graph.opset() < 13:
        return Mismatch("before opset 13 {} works along all axes from one on", node.op)
    if node.op != "Split" and slows([axis], perm):
        return SLOWER
    return Permuted([x, *node.inputs[1:]], {**node.attrs, "axis": perm[axis]}, perm)


def arg_reduction(node: Node, sources: Sources, perm: Perm) -> Permuted | Mismatch:
    """Positions of the largest or smallest along one axis, which may go."""
    x, axis = first(node, sources), _axis(node, 0, len(perm))
    if isinstance(x, Mismatch):
        return x
    if isinstance(axis, Mismatch):
        return axis
    if slows([axis], perm):
        return SLOWER
    after = perm if node.attr("keepdims", 1) else left([axis], perm)
    return Permuted([x], {**node.attrs, "axis": perm[axis]}, after)


def running_sum(node: Node, sources: Sources, perm: Perm) -> Permuted | Mismatch:
    """`CumSum` along a constant axis."""
    x, given = first(node, sources), node.input(1)
    axes = constant_ints(given) if given is not None else ()
    if isinstance(x, Mismatch):
        return x
    if isinstance(axes, Mismatch):
        return axes
    if len(axes) != 1 or not -len(perm) <= axes[0] < len(perm):
        return Mismatch("the axis of {} does not exist", node.op)
    axis = axes[0] % len(perm)
    return SLOWER if slows([axis], perm) else Permuted([x, np.array(perm[axis], np.int64)], dict(node.attrs), perm)


def gather(node: Node, sources: Sources, perm: Perm) -> Permuted | Mismatch:
    """Positions along one axis: a list of them, or a single one, with which the axis goes."""
    x, indices, axis = first(node, sources), node.input(1), _axis(node, 0, len(perm))
    if isinstance(x, Mismatch):
        return x
    if isinstance(axis, Mismatch):
        return axis
    if indices is None or indices.rank not in (0, 1):
        return Mismatch("the indices are not known to be a list")
    after = perm if indices.rank else left([axis], perm)
    return Permuted([x, indices], {**node.attrs, "axis": perm[axis]}, after)


def tile(node: Node, sources: Sources, perm: Perm) -> Permuted | Mismatch:
    """A constant number of repeats for each axis."""
    return _each_axis(node, sources, perm, 6, 0)


def expand(node: Node, sources: Sources, perm: Perm) -> Permuted | Mismatch:
    """Broadcasting to a constant shape that adds no axes."""
    return _each_axis(node, sources, perm, 8, 1)


def _each_axis(node: Node, sources: Sources, perm: Perm, since: int, fill: int) -> Permuted | Mismatch:
    """Operators that are told a constant number for each axis; `fill` for those in front that may be left out."""
    x, given = first(node, sources), node.input(1)
    if isinstance(x, Mismatch):
        return x
    if node.graph.opset() < since or given is None:
        return Mismatch("{} has another form at this opset", node.op)
    numbers = constant_ints(given)
    if isinstance(numbers, Mismatch):
        return numbers
    missing = len(perm) - len(numbers)
    if missing < 0 or (missing and not fill):
        return Mismatch("{} has {} numbers for {} axes", given.name, len(numbers), len(perm))
    return Permuted([x, _moved((fill,) * missing + numbers, perm)], dict(node.attrs), perm)


def _moved(numbers: tuple[int, ...], perm: Perm) -> np.ndarray:
    moved = np.empty(len(perm), np.int64)
    moved[list(perm)] = numbers
    return moved


def resize(node: Node, sources: Sources, perm: Perm) -> Permuted | Mismatch:
    """Constant scales or sizes, of the last two axes unless each element is taken from its nearest."""
    x, opset = first(node, sources), node.graph.opset()
    if isinstance(x, Mismatch):
        return x
    if node.attrs.get("axes") is not None or (opset >= 11 and _given(node.input(1))):
        return Mismatch("it resizes certain axes, or crops")
    inputs: list[Value | np.ndarray | None] = [x, *node.inputs[1:]]
    resized: set[int] = set()
    found = False
    for index in (1,) if opset < 11 else (2, 3):
        value = node.input(index)
        if not _given(value):
            continue
        array = value.const(1 << 12) if value is not None else None
        if array is None or array.shape != (len(perm),):
            return Mismatch("scales or sizes are not constant")
        moved = np.empty_like(array)
        moved[list(perm)] = array
        inputs[index], found = moved, True
        resized |= {perm[axis] for axis in range(len(perm)) if not _as_it_was(node, array, axis, index == 3)}
    if not found:
        return Mismatch("scales or sizes are not constant")
    if node.attr("mode", "nearest") != "nearest" and any(axis < len(perm) - _IMAGE_AXES for axis in resized):
        return Mismatch("it would resize other axes than the last two")
    return Permuted(inputs, dict(node.attrs), perm)


def _given(value: Value | None) -> bool:
    return value is not None and not (value.is_const and value.shape == (0,))


def _as_it_was(node: Node, array: np.ndarray, axis: int, is_size: bool) -> bool:
    """Whether an axis keeps its size."""
    if not is_size:
        return bool(array[axis] == 1)
    x = node.input(0)
    return x is not None and x.shape is not None and x.shape[axis] == int(array[axis])


def quantization(node: Node, sources: Sources, perm: Perm) -> Permuted | Mismatch:
    """`QuantizeLinear` and `DequantizeLinear` with one scale, or one for each position of an axis."""
    x, scale = first(node, sources), node.input(1)
    if isinstance(x, Mismatch):
        return x
    if scale is None or scale.shape is None or len(scale.shape) > 1 or node.attr("block_size", 0):
        return Mismatch("the scales are not known to be one for each position of an axis")
    if scale.shape in ((), (1,)) or node.graph.opset() < 13:
        one = scale.shape in ((), (1,))
        attrs = {name: value for name, value in node.attrs.items() if name != "axis"}
        return Permuted([x, *node.inputs[1:]], attrs, perm) if one else Mismatch("it has several scales")
    axis = _axis(node, 1, len(perm))
    if isinstance(axis, Mismatch):
        return axis
    return Permuted([x, *node.inputs[1:]], {**node.attrs, "axis": perm[axis]}, perm)


def normalization(node: Node, sources: Sources, perm: Perm) -> Permuted | Mismatch:
    """Normalization along the last axes, which stay where they are; scale and bias vary along them alone."""
    x, axis = first(node, sources), _axis(node, -1, len(perm))
    if isinstance(x, Mismatch):
        return x
    if isinstance(axis, Mismatch):
        return axis
    if any(perm[at] != at for at in range(axis, len(perm))):
        return Mismatch("the normalized axes would move")
    if len(node.outputs) > 1:
        return Mismatch("mean or variance are read")
    for value in node.inputs[1:]:
        if value is not None and (value.shape is None or any(dim != 1 for dim in value.shape[: axis - len(perm)])):
            return Mismatch("{} is not known to vary along the normalized axes alone", value.name)
    return Permuted([x, *node.inputs[1:]], dict(node.attrs), perm)


def product(node: Node, sources: Sources, perm: Perm) -> Permuted | Mismatch:
    """`MatMul` whose rows and columns stay in place, by one matrix or with both operands permuted alike."""
    a, b = node.input(0), node.input(1)
    rank = len(perm)
    if a is None or b is None or a not in sources:
        return Mismatch("only the right operand is transposed")
    if b.rank == 2 and b not in sources:
        if rank < 2 or perm[-1] != rank - 1:
            return Mismatch("the axis that is added up would move")
        return Permuted([sources[a], b], dict(node.attrs), perm)
    if perm[-2:] != (rank - 2, rank - 1):
        return Mismatch("the axis that is added up, or that of the rows, would move")
    other = sources[b] if b in sources else rearranged(b, perm) if b.rank == rank else None
    if other is None:
        return Mismatch("{} is not transposed alike", b.name)
    return other if isinstance(other, Mismatch) else Permuted([sources[a], other], dict(node.attrs), perm)
