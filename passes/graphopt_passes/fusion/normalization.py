"""Normalizations over the last axes, written out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from onnx import TensorProto

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by
from graphopt_passes.fusion.axes import absolute, read_axes
from graphopt_passes.fusion.factors import exponent, number


@dataclass(frozen=True, slots=True)
class Scatter:
    """A value divided by the root of the mean of its squares.

    Attributes:
        value: what is divided.
        axes: the axes of the mean, as written.
        epsilon: what is added to the mean.
        inner: the nodes in between.
    """

    value: Value
    axes: tuple[int, ...]
    epsilon: float
    inner: frozenset[Node]


def _root(value: Value | None, op: str) -> tuple[Value, list[Node]] | None:
    """What a root is taken of, when `value` is a root (for `Div`) or its reciprocal (for `Mul`)."""
    node = value.producer if value is not None else None
    nodes: list[Node] = []
    if node is not None and op == "Mul":
        if node.op == "Pow" and exponent(node.input(1)) == -0.5:
            return (node.inputs[0], [node]) if node.inputs[0] is not None else None
        below = node.input(0) if node.op == "Reciprocal" else None
        if node.op == "Div" and number(node.input(0)) == 1.0:
            below = node.input(1)
        if below is None:
            return None
        nodes.append(node)
        node = below.producer
    below = node.input(0) if node is not None else None
    if node is None or below is None:
        return None
    is_root = node.op == "Sqrt" or (node.op == "Pow" and exponent(node.input(1)) == 0.5)
    return (below, [*nodes, node]) if is_root else None


def read_scatter(node: Node) -> Scatter | None:
    """Recognize `v / sqrt(mean(v * v) + epsilon)` at its last operator."""
    left, right = node.input(0), node.input(1)
    for value, divisor in ((left, right), (right, left)) if node.op == "Mul" else ((left, right),):
        root = _root(divisor, node.op)
        if value is None or root is None:
            continue
        total, nodes = root
        add = total.producer
        if add is None or add.op != "Add":
            continue
        for mean, epsilon in (add.inputs, add.inputs[::-1]):
            small = number(epsilon)
            reduce = made_by(mean, "ReduceMean")
            if small is None or reduce is None or not reduce.attr("keepdims", 1):
                continue
            axes, square = read_axes(reduce), _squared(reduce.input(0))
            if isinstance(axes, tuple) and square is not None and _same(square[0], value):
                return Scatter(value, axes, small, frozenset({*nodes, add, reduce, square[1]}))
    return None


def _squared(value: Value | None) -> tuple[Value, Node] | None:
    node = value.producer if value is not None else None
    if node is None or node.input(0) is None or node.inputs[0] is None:
        return None
    if (node.op == "Pow" and exponent(node.input(1)) == 2.0) or (node.op == "Mul" and node.inputs[0] is node.inputs[1]):
        return node.inputs[0], node
    return None


def _same(a: Value, b: Value) -> bool:
    """Whether two values are one, or the same difference computed twice."""
    one, two = a.producer, b.producer
    if a is b:
        return True
    return one is not None and two is not None and one.op == two.op == "Sub" and one.inputs == two.inputs


def not_alone(node: Node, x: Value, inner: frozenset[Node]) -> Mismatch | None:
    """Why what is written out from `x` to `node` cannot be one operator: other readers, graphs or element types."""
    if any(part.graph is not node.graph for part in inner):
        return Mismatch("{} is computed in an outer graph", x.name)
    for part in inner:
        for value in part.outputs:
            if value is not None and (value.output_count or any(u not in inner and u is not node for u in value.users)):
                return Mismatch("{} has other readers", value.name)
    return Mismatch("the element type of {} is not float32", x.name) if x.dtype != TensorProto.FLOAT else None


def count_axes(node: Node, x: Value, scatter: Scatter, inner: frozenset[Node]) -> Mismatch | int:
    """The number of normalized axes; why they cannot be, or what is between has other readers."""
    problem = not_alone(node, x, inner)
    if problem is not None:
        return problem
    if not scatter.axes:
        return Mismatch("an empty list of axes stands for all of them, or for none")
    axes = absolute(scatter.axes, x.rank)
    if x.shape is None or axes is None:
        return Mismatch("the rank of {} is not known", x.name)
    if sorted(axes) != list(range(len(x.shape) - len(axes), len(x.shape))):
        return Mismatch("axes {} are not the last ones", scatter.axes)
    if not all(isinstance(dim, int) and dim > 0 for dim in x.shape[-len(axes) :]):
        return Mismatch("the normalized axes are empty, or their size is not known")  # runtimes refuse empty ones
    constants = [v for part in inner for v in part.inputs if v is not None and v.is_const and part.op != "ReduceMean"]
    if any((v.rank or 0) > len(x.shape) for v in constants):
        return Mismatch("the constants may add axes to {}", x.name)
    return len(axes)


def _ones(x: Value, count: int) -> np.ndarray:
    assert x.shape is not None
    return np.ones([dim for dim in x.shape[-count:] if isinstance(dim, int)], dtype=np.float32)


def _absorb(node: Node, op: str, rw: Rewriter) -> Outcome:
    """Take a scale, or a bias, into a normalization that has none yet."""
    for value, other in ((node.input(0), node.input(1)), (node.input(1), node.input(0))):
        norm = value.producer if value is not None else None
        constant = other.const() if other is not None else None
        if value is None or norm is None or norm.op != op or constant is None or norm.input(2) is not None:
            continue
        scale = norm.input(1)
        weights = scale.const() if scale is not None else None
        if weights is None or (node.op == "Mul" and not (weights == 1).all()):
            continue
        if norm.graph is not node.graph:
            return Mismatch("{} is computed in an outer graph", value.name)
        if not value.one_use or norm.outputs[1:]:
            return Mismatch("{} has other readers", value.name)
        row = spread(constant, weights.shape, value.rank)
        if row is None:
            return Mismatch("the constant of shape {} varies along other axes", constant.shape)
        operands = [norm.inputs[0], row] if node.op == "Mul" else [norm.inputs[0], scale, row]
        return rw.replace(node, [rw.op(op, *operands, **norm.attrs)])
    return None


def spread(constant: np.ndarray, shape: tuple[int, ...], rank: int | None) -> np.ndarray | None:
    """A constant as an array of the normalized axes, None when it varies along others or adds axes."""
    lead = constant.ndim - len(shape)
    if rank is None or constant.ndim > rank or any(size != 1 for size in constant.shape[: max(lead, 0)]):
        return None
    own = constant.reshape(constant.shape[max(lead, 0) :])
    sizes: tuple[int, ...] = own.shape
    if any(size not in (1, full) for size, full in zip(sizes[::-1], shape[::-1], strict=False)):
        return None
    return np.ascontiguousarray(np.broadcast_to(own, shape))


class FuseLayerNormalization(OpRule):
    """Recognize `LayerNormalization` over the last axes, then take the scale and the bias after it into it.

    The mean may be subtracted once or twice; the squares are `Pow` or `Mul`; the root divides, or its reciprocal
    multiplies. For float32 and axes of known size.
    """

    name = "fuse_layer_normalization"
    ops = ("Div", "Mul", "Add")
    opsets = "17-"
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {
        "onnxsim": "fuse_layer_norm",
        "onnxruntime": "LayerNormFusionL1",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look for a normalization that ends here, or for a scale or bias of one."""
        centered = read_centered(node) if node.op != "Add" else None
        if centered is None:
            return _absorb(node, "LayerNormalization", rw) if node.op != "Div" else None
        if isinstance(centered, Mismatch):
            return centered
        x, scatter, inner = centered
        count = count_axes(node, x, scatter, inner)
        if isinstance(count, Mismatch):
            return count
        ones = rw.constant(_ones(x, count), like=f"{x.name}_scale")
        return rw.replace(node, [rw.op("LayerNormalization", x, ones, axis=-count, epsilon=scatter.epsilon)])


def read_centered(node: Node) -> tuple[Value, Scatter, frozenset[Node]] | Mismatch | None:
    """Recognize `c / sqrt(mean(c * c) + epsilon)` with `c = x - mean(x)` at its last operator: `x`, what is between."""
    scatter = read_scatter(node)
    center = scatter.value.producer if scatter is not None else None
    if scatter is None or center is None or center.op != "Sub":
        return None
    x, mean = center.input(0), center.input(1)
    reduce = made_by(mean, "ReduceMean")
    if x is None or reduce is None or reduce.input(0) is not x:
        return None
    if not _are_equal(read_axes(reduce), scatter.axes, x.rank) or not reduce.attr("keepdims", 1):
        return Mismatch("mean and variance have other axes")
    centers = {u for u in (center, *(_center_of(n) for n in scatter.inner)) if u is not None}
    return x, scatter, scatter.inner | centers | {reduce}


def _are_equal(a: tuple[int, ...] | Mismatch | None, b: tuple[int, ...], rank: int | None) -> bool:
    """Whether two lists of axes name the same ones, from whichever end they are counted."""
    if not isinstance(a, tuple):
        return False
    one, two = absolute(a, rank), absolute(b, rank)
    return a == b or (one is not None and two is not None and set(one) == set(two))


def _center_of(node: Node) -> Node | None:
    """The difference that a square is taken of."""
    value = node.input(0)
    return value.producer if value is not None and value.producer is not None and value.producer.op == "Sub" else None


class FuseRmsNormalization(OpRule):
    """Recognize `RMSNormalization` over the last axes, then take the scale after it into it."""

    name = "fuse_rms_normalization"
    ops = ("Div", "Mul")
    opsets = "23-"
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {"onnxsim": "fuse_rms_norm", "onnxruntime": "SimplifiedLayerNormFusion"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look for a normalization that ends here, or for a scale of one."""
        scatter = read_scatter(node)
        if scatter is None:
            return _absorb(node, "RMSNormalization", rw) if node.op == "Mul" else None
        x = scatter.value
        if x.producer is not None and x.producer.op == "Sub":
            return None
        count = count_axes(node, x, scatter, scatter.inner)
        if isinstance(count, Mismatch):
            return count
        ones = rw.constant(_ones(x, count), like=f"{x.name}_scale")
        return rw.replace(node, [rw.op("RMSNormalization", x, ones, axis=-count, epsilon=scatter.epsilon)])
