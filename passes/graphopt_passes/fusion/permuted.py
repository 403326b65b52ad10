"""How operators work on permuted inputs: what to change so that the permutation can be done afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch
from graphopt_passes.elimination.facts import int_list

_MOST_BYTES = 1 << 20
"""A constant that is larger is not written a second time in another order."""

UNARY = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cast", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Elu",
    "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "IsInf", "IsNaN", "LeakyRelu", "Log", "Mish", "Neg",
    "Not", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt",
    "Tan", "Tanh", "ThresholdedRelu",
)  # fmt: skip
BROADCASTING = (
    "Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mul", "Or",
    "PRelu", "Pow", "Sub", "Sum", "Where", "Xor",
)  # fmt: skip
REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceProd", "ReduceSum",
    "ReduceSumSquare",
)  # fmt: skip
"""Not the largest and the smallest: which one runtimes find beside NaN depends on the order."""
Perm = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Permuted:
    """An operator on unpermuted inputs, and the permutation that its result needs then.

    Attributes:
        inputs: its inputs; arrays are new constants.
        attrs: its attributes.
        perm: of the result.
    """

    inputs: list[Value | np.ndarray | None]
    attrs: dict[str, Any]
    perm: Perm


def permuted(node: Node, sources: Mapping[Value, Value], perm: Perm) -> Permuted | Mismatch:
    """The operator on what its inputs are permuted from.

    Args:
        node: an operator of `FORMS`.
        sources: those of its inputs that are permuted, and from what; all that is not constant must be among them.
        perm: the permutation; axis `i` of the input is axis `perm[i]` of the source.
    """
    return FORMS[node.op](node, sources, perm)


def _first(node: Node, sources: Mapping[Value, Value]) -> Value | Mismatch:
    """The source of the first input, the others not being permuted."""
    x = node.input(0)
    if x is None or x not in sources or any(v in sources for v in node.inputs[1:] if v is not None):
        return Mismatch("the transposed value is not only what it works on")
    return sources[x]


def _unary(node: Node, sources: Mapping[Value, Value], perm: Perm) -> Permuted | Mismatch:
    x = _first(node, sources)
    return x if isinstance(x, Mismatch) else Permuted([x, *node.inputs[1:]], dict(node.attrs), perm)


def _broadcasting(node: Node, sources: Mapping[Value, Value], perm: Perm) -> Permuted | Mismatch:
    if node.graph.opset() < (7 if node.op != "PRelu" else 9) or (
        node.op in ("Max", "Mean", "Min", "Sum") and node.graph.opset() < 8
    ):
        return Mismatch("the operands of {} are not broadcast freely at this opset", node.op)
    if node.op == "PRelu" and node.input(0) not in sources:
        return Mismatch("only the slope is transposed")
    inputs: list[Value | np.ndarray | None] = []
    for value in node.inputs:
        if value is None:
            return Mismatch("an operand is left out")
        found = sources[value] if value in sources else _rearranged(value, perm)
        if isinstance(found, Mismatch):
            return found
        inputs.append(found)
    return Permuted(inputs, dict(node.attrs), perm)


def _rearranged(value: Value, perm: Perm) -> Value | np.ndarray | Mismatch:
    """An operand as the source needs it: a constant in the other order, and what is alike in every order as it is."""
    rank, shape = len(perm), value.shape
    if shape is not None and len(shape) <= rank and all(dim == 1 for dim in shape):
        return value
    array = value.const(_MOST_BYTES)
    if array is None or array.dtype == object:
        return Mismatch("{} is neither transposed alike nor a small constant", value.name)
    if array.ndim > rank:
        return Mismatch("{} adds axes", value.name)
    whole = array.reshape((1,) * (rank - array.ndim) + array.shape)
    return np.ascontiguousarray(whole.transpose(np.argsort(perm)))


def _concat(node: Node, sources: Mapping[Value, Value], perm: Perm) -> Permuted | Mismatch:
    axis = node.attr("axis")
    if axis is None or not -len(perm) <= axis < len(perm):
        return Mismatch("the axis is not known")
    inputs: list[Value | np.ndarray | None] = []
    for value in node.inputs:
        source: Value | np.ndarray | None = sources.get(value) if value is not None else None
        if source is None:
            array = value.const(_MOST_BYTES) if value is not None else None
            if array is None or array.dtype == object or array.ndim != len(perm):
                return Mismatch("not all that is joined is transposed alike")
            source = np.ascontiguousarray(array.transpose(np.argsort(perm)))
        inputs.append(source)
    return Permuted(inputs, {**node.attrs, "axis": perm[axis]}, perm)


def _slows(axes: Sequence[int], perm: Perm) -> bool:
    """Whether the axis that lies closest together is worked along before, and is not afterwards."""
    last = len(perm) - 1
    return last in axes and last not in [perm[axis] for axis in axes]


_SLOWER = Mismatch("it would work along an axis whose elements lie apart")


def _softmax(node: Node, sources: Mapping[Value, Value], perm: Perm) -> Permuted | Mismatch:
    axis, x = node.attr("axis", -1), _first(node, sources)
    if isinstance(x, Mismatch):
        return x
    if node.graph.opset() < 13 or not -len(perm) <= axis < len(perm):
        return Mismatch("before opset 13 {} works along all axes from one on", node.op)
    axis %= len(perm)
    return _SLOWER if _slows([axis], perm) else Permuted([x], {**node.attrs, "axis": perm[axis]}, perm)


def _left(gone: Sequence[int], perm: Perm) -> Perm:
    """The permutation of the axes that stay when some of the input's go."""
    kept = [perm[axis] for axis in range(len(perm)) if axis not in gone]
    return tuple(sorted(kept).index(axis) for axis in kept)


def _normal(node: Node, axes: tuple[int, ...], rank: int) -> list[int] | Mismatch:
    if any(not -rank <= axis < rank for axis in axes) or len({axis % rank for axis in axes}) < len(axes):
        return Mismatch("the axes of {} do not exist", node.op)
    return sorted(axis % rank for axis in axes)


def _with_axes(
    node: Node, x: Value, axes: list[int], since: int, index: int, **attrs: Any
) -> tuple[list[Value | np.ndarray | None], dict[str, Any]]:
    """Inputs and attributes with other axes, in either opset form."""
    kept = {**node.attrs, **attrs}
    if node.graph.opset() < since:
        return [x, *node.inputs[1:]], {**kept, "axes": tuple(axes)}
    rest = [*node.inputs[1:], *[None] * index][: max(index, len(node.inputs) - 1)]
    inputs: list[Value | np.ndarray | None] = [x, *rest]
    inputs[index] = np.array(axes, np.int64)
    return inputs, kept


def _reduction(node: Node, sources: Mapping[Value, Value], perm: Perm) -> Permuted | Mismatch:
    x, rank = _first(node, sources), len(perm)
    since = 13 if node.op == "ReduceSum" else 18
    axes = int_list(node, "axes", 1, since)
    if isinstance(x, Mismatch):
        return x
    if isinstance(axes, Mismatch):
        return axes
    if not axes:
        return Mismatch("it reduces all axes, or none")
    normal = _normal(node, axes, rank)
    if isinstance(normal, Mismatch):
        return normal
    if _slows(normal, perm):
        return _SLOWER
    inputs, attrs = _with_axes(node, x, sorted(perm[axis] for axis in normal), since, 1)
    return Permuted(inputs, attrs, perm if node.attr("keepdims", 1) else _left(normal, perm))


def _pad(node: Node, sources: Mapping[Value, Value], perm: Perm) -> Permuted | Mismatch:
    x, rank = _first(node, sources), len(perm)
    pads = int_list(node, "pads", 1, 11)
    if isinstance(x, Mismatch):
        return x
    if pads is None or isinstance(pads, Mismatch) or node.graph.opset() < 2:
        return Mismatch("the pads are not constant")
    if node.input(3) is not None or len(pads) != 2 * rank:
        return Mismatch("it pads certain axes only")
    moved = [0] * (2 * rank)
    for axis, source in enumerate(perm):
        moved[source], moved[rank + source] = pads[axis], pads[rank + axis]
    if node.graph.opset() < 11:
        return Permuted([x], {**node.attrs, "pads": tuple(moved)}, perm)
    return Permuted([x, np.array(moved, np.int64), *node.inputs[2:]], dict(node.attrs), perm)


def _slice(node: Node, sources: Mapping[Value, Value], perm: Perm) -> Permuted | Mismatch:
    x, axes = _first(node, sources), int_list(node, "axes", 3, 10)
    if isinstance(x, Mismatch):
        return x
    if axes is None or isinstance(axes, Mismatch):
        return Mismatch("the axes of the slice are not known")
    rank = len(perm)
    if any(not -rank <= axis < rank for axis in axes):
        return Mismatch("the axes of {} do not exist", node.op)
    inputs, attrs = _with_axes(node, x, [perm[axis % rank] for axis in axes], 10, 3)
    return Permuted(inputs, attrs, perm)


def _squeeze(node: Node, sources: Mapping[Value, Value], perm: Perm) -> Permuted | Mismatch:
    x, axes = _first(node, sources), int_list(node, "axes", 1, 13)
    if isinstance(x, Mismatch):
        return x
    if not axes or isinstance(axes, Mismatch):
        return Mismatch("the axes of size 1 are not known")
    normal = _normal(node, axes, len(perm))
    if isinstance(normal, Mismatch):
        return normal
    inputs, attrs = _with_axes(node, x, sorted(perm[axis] for axis in normal), 13, 1)
    return Permuted(inputs, attrs, _left(normal, perm))


def _unsqueeze(node: Node, sources: Mapping[Value, Value], perm: Perm) -> Permuted | Mismatch:
    x, axes = _first(node, sources), int_list(node, "axes", 1, 13)
    if isinstance(x, Mismatch):
        return x
    if not axes or isinstance(axes, Mismatch):
        return Mismatch("the new axes are not known")
    rank = len(perm) + len(axes)
    normal = _normal(node, axes, rank)
    if isinstance(normal, Mismatch):
        return normal
    # The new axes come first: where they stand among others does not matter to memory.
    count = len(normal)
    rest = iter(perm)
    after = tuple(normal.index(axis) if axis in normal else count + next(rest) for axis in range(rank))
    inputs, attrs = _with_axes(node, x, list(range(count)), 13, 1)
    return Permuted(inputs, attrs, after)


FORMS: Mapping[str, Callable[[Node, Mapping[Value, Value], Perm], Permuted | Mismatch]] = {
    **dict.fromkeys(UNARY, _unary),
    **dict.fromkeys(BROADCASTING, _broadcasting),
    **dict.fromkeys(REDUCTIONS, _reduction),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _softmax),
    "Concat": _concat,
    "Pad": _pad,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
}
"""What can be done before a permutation as well as after it."""
