"""Rewriting operators for fewer channels, where some are constant or unread."""

from __future__ import annotations

from contextlib import suppress
from math import gcd

import numpy as np

from graphopt.analysis.runtime import run
from graphopt.ir import FLOAT_TYPES, REMOVED_KEY, Node, Tensor, Value
from graphopt.operators.layer import LinearLayer
from graphopt.operators.linear import narrowed
from graphopt.records import dataclass
from graphopt.rewrite import Decline, Rewriter
from graphopt_passes.elimination.channels import POINTWISE, Place, Space

_BLOCK = 16
"""The largest channel block of kernels."""


def narrow(value: Value, channels: int, layer: LinearLayer, rw: Rewriter) -> set[Value]:
    """Remove channels that a layer produces or reads from all their producers and readers; declines if all stay.

    Returns the values that share the channels, which need not be visited again.
    """
    space = Space(layer.node.graph, channels)
    space.explore(Place(value, layer.axis, layer.rank))
    numbers = _Numbers(space)
    kept = _kept(space, numbers)
    rw.enter(space.graph)  # new nodes get their own names, not names derived from the visited node
    _Writer(space, numbers, kept, rw).write()
    rw.add_to_metadata(REMOVED_KEY, channels - len(kept))
    return set(space.places)


class _Numbers:
    """For each value of a space, the number in each channel, and whether the channel is known to be uniform."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.known: dict[Value, tuple[np.ndarray, np.ndarray]] = {}
        for node in sorted({**space.makers, **space.between}, key=lambda node: node.order):
            layer = space.makers.get(node) or space.between.get(node)
            self.known[node.result] = (
                self._of_layer(layer) if layer is not None
                else self._of_pointwise(node) if node.op in POINTWISE
                else self.known[node.operand(0)]
            )  # fmt: skip

    def _of_layer(self, layer: LinearLayer) -> tuple[np.ndarray, np.ndarray]:
        bias, known = layer.bias(), layer.dead()
        numbers = np.where(known, bias, 0.0)
        if layer.is_depthwise:
            before, same = self.known[layer.node.operand(0)]
            taps = layer.weight.astype(np.float64).reshape(layer.channels, -1).sum(axis=1)
            through = same & ((before == 0) | layer.is_uniform()) & ~known
            numbers = np.where(through, before * taps + bias, numbers)
            known = known | through
        with np.errstate(over="ignore"):
            return _finite(numbers.astype(layer.weight.dtype), known)

    def _of_pointwise(self, node: Node) -> tuple[np.ndarray, np.ndarray]:
        """Evaluate an operator at one position in the runtime, which will also run the model."""
        at = self.space.places[node.result]
        shape = [1] * at.rank
        shape[at.axis] = self.space.channels
        read = node.operands
        joined = [self.known[value] for value in read if value in self.known]
        known = np.logical_and.reduce([same for _, same in joined])
        zero = np.logical_or.reduce([same & (numbers == 0) for numbers, same in joined])
        if not known.any() and not (node.op == "Mul" and zero.any()):
            return joined[0][0], known
        operands = {value: tensor for value in read if (tensor := value.constant_tensor) is not None}
        for value in read:
            if value not in operands:
                operands[value] = Tensor.from_array(self.known[value][0].reshape(shape))
        try:
            result = run([node], [node.result], operands)[node.result].array()
        except Exception as error:  # the runtime raises exceptions of many types
            raise Decline("{} cannot be evaluated ({})", node.op, type(error).__name__) from error
        found = result.reshape(-1)
        if node.op == "Mul":
            found, known = np.where(zero & ~known, 0, found), known | zero
        return _finite(found, known)


def _finite(numbers: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    known = known & np.isfinite(numbers)
    return np.where(known, numbers, numbers.dtype.type(0)), known


def _kept(space: Space, numbers: _Numbers) -> np.ndarray:
    """The channels that stay, in order; declines if all stay."""
    channels = space.channels
    gone = np.full(channels, bool(space.readers))
    for layer in space.readers.values():
        gone &= _free(layer, *numbers.known[layer.node.operand(0)])
    dead = np.flatnonzero(gone)
    if not dead.size:
        raise Decline("no channel is constant, without padding, for all readers")
    block = gcd(channels, _BLOCK)
    number = min(dead.size // block * block, channels - block)
    if number <= 0:
        raise Decline("{} of {} channels are dead, not enough to remove a block of {}", dead.size, channels, block)
    return np.delete(np.arange(channels), dead[dead.size - number :])


def _free(layer: LinearLayer, number: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The channels that a reader does not need."""
    zero = known & (number == 0)
    constant = known if layer.is_uniform() and _has_bias(layer) else zero
    assert layer.read is not None
    others = tuple(axis for axis in range(layer.weight.ndim) if axis != layer.read)
    finite = np.isfinite(layer.weight).all(axis=others) if constant.any() else constant
    return np.asarray(layer.unread() | (constant & finite))


def _has_bias(layer: LinearLayer) -> bool:
    """Whether the operator has a bias operand, or can get one, and its present bias is constant."""
    with suppress(Decline):
        layer.bias()
        return layer.node.op != "MatMul" or layer.rank == 2
    return False


@dataclass(slots=True)
class _Writer:
    """Rewrites the operators of a space for the channels that stay."""

    space: Space
    numbers: _Numbers
    kept: np.ndarray
    rw: Rewriter

    def write(self) -> None:
        """Replace the readers in order, after writing the operators that each needs and that are not written yet."""
        space = self.space
        made: dict[Value | None, Value] = {}
        rows = {node: self._added(layer) for node, layer in space.readers.items()}
        detail = f"{space.channels - len(self.kept)} of {space.channels} channels are constant or not read"
        for node in sorted(space.readers, key=lambda node: node.order):
            for needed in self._needed(node.operand(0), made):
                made[needed.result] = self._narrow(needed, made)
            self.rw.replace(node, [self._reader(space.readers[node], made[node.operand(0)], rows[node])], detail)

    def _needed(self, value: Value, made: dict[Value | None, Value]) -> list[Node]:
        """The operators of the space that a value depends on and that are not written yet, in topological order."""
        found: set[Node] = set()
        todo = [value]
        while todo:
            value = todo.pop()
            node = value.producer
            if node is None or value in made or node in found:
                continue
            found.add(node)
            if node not in self.space.makers:
                todo += [read for read in node.operands if read in self.space.places]
        return sorted(found, key=lambda node: node.order)

    def _narrow(self, node: Node, made: dict[Value | None, Value]) -> Value:
        layer = self.space.makers.get(node) or self.space.between[node]
        attrs = dict(node.attrs)
        if layer is None:
            at = self.space.places[node.result]
            operands = [self._operand(value, at, made) for value in node.inputs]
        else:
            x = made[node.operand(0)] if layer.is_depthwise else node.operand(0)
            operands = [x, self._part(node.operand(1), layer.made), self._operand(node.input(2), None, made)]
            if layer.is_depthwise:
                attrs["group"] = len(self.kept)
        return self.rw.op(node.op_type, *operands, **attrs, name=node.name)

    def _operand(self, value: Value | None, at: Place | None, made: dict[Value | None, Value]) -> Value | None:
        """The replacement of an operand: the narrow value, or a constant restricted to the channels that stay."""
        if value in made:
            return made[value]
        if value is None or value.array().size <= 1 or value.dtype not in FLOAT_TYPES:
            return value
        array = value.array()
        return self._part(value, array.ndim - 1 if at is None else at.axis - (at.rank - array.ndim))

    def _part(self, value: Value, axis: int) -> Value:
        return self.rw.constant(np.take(value.array(), self.kept, axis), like=value)

    def _added(self, layer: LinearLayer) -> np.ndarray | None:
        """The new bias of a reader; None if the removed channels contribute nothing."""
        numbers, _ = self.numbers.known[layer.node.operand(0)]
        gone = np.setdiff1d(np.arange(self.space.channels), self.kept)
        added = layer.added(numbers, gone[~layer.unread()[gone]])
        return narrowed(layer.bias() + added, layer.weight.dtype, "biases") if added.any() else None

    def _reader(self, layer: LinearLayer, x: Value, row: np.ndarray | None) -> Value:
        node, attrs = layer.node, dict(layer.node.attrs)
        assert layer.read is not None
        weight, shift = self._part(node.operand(1), layer.read), node.input(2)
        op = node.op_type
        if row is not None:
            shift = self.rw.constant(row, like=shift or f"{node.operand(1).name}_bias")
            attrs.pop("beta", None)
            op = "Gemm" if op == "MatMul" else op
        return self.rw.op(op, x, weight, shift, **attrs, name=node.name)
