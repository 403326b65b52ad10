"""Scales and shifts after moves and splits, folded into the weights of the linear operator before these."""

from __future__ import annotations

from graphopt.operators import Squeeze, Transpose, Unsqueeze
from graphopt.operators.affine import Affine
from graphopt.operators.linear import Convolution, Linear, MatrixProduct, RowProduct
from graphopt.operators.split import Split
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.fusion.gelu import completes_gelu
from graphopt_passes.fusion.moved import before_moves, moved_again
from graphopt_passes.fusion.reshapes import RESHAPES
from graphopt_passes.fusion.small_weights import refuse_lost_digits

_MOVES = (*RESHAPES, "Transpose")
_LINEAR = ("Add", "Conv", "ConvTranspose", "Gemm", "MatMul")


class FuseAffineIntoMovedLinear(OpRule):
    """Fold the scale or shift of a part of a linear operator's result, or of the moved result, into its weights.

    `BatchNormalization`, and `Mul`, `Div`, `Add` and `Sub` with a constant per channel, of one part of a `Split` along
    the channels: the weights of the other parts stay as they are. A single number may also follow reshapes and
    `Transpose`, like the scale of attention queries and the `1 + scale` of diffusion networks.
    """

    # No pattern: there may be any number of moves.
    ops = ("Add", "BatchNormalization", "Div", "Mul", "Sub")
    sources = ("Split", *_MOVES)
    opsets = "9-"
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        computed = [value for value in node.operands if not value.is_const]
        if len(computed) != 1 or not node.operand(0).dtype:
            raise Decline
        value, behind = before_moves(computed[0], node, _MOVES)
        reader = behind[-1] if behind else node
        split, x, before = value.made_by("Split"), value, list[Node]()
        if split is not None:
            value.sole_source("Split", reader=reader)
            x, before = before_moves(split.operand(0), split, _MOVES)
            reader = before[-1] if before else split
        if reader is node:
            raise Decline
        linear = _linear(x.sole_source(*_LINEAR, reader=reader))
        linear.kernel.check_one_use()
        if completes_gelu(node):
            raise Decline("{} is the last factor of a Gelu", node.result.name)
        channels = range(linear.channels) if split is None else _channels(linear, before, split, value)
        affine = _affine(node, computed[0], linear, len(channels), moved=bool(behind or before))
        affine = affine.among(channels, linear.channels)
        refuse_lost_digits(linear, affine, node)
        made = moved_again(_then(linear, affine, rw), before, rw)
        if split is None:
            return rw.replace(node, [moved_again(made, behind, rw)])
        parts = Split.of(split).reading(made).write(rw)
        result = moved_again(parts[split.outputs.index(value)], behind, rw)
        return rw.replace_all([(split, parts), (node, [result])], anchor=split)


def _linear(node: Node) -> Linear:
    if node.op in Convolution.ops:
        return Convolution.of(node)
    return MatrixProduct.of(node) if node.op == "Gemm" else RowProduct.of(node)


def _then(linear: Linear, affine: Affine, rw: Rewriter) -> Value:
    """The operator with the scale and shift folded in; a bias that it did not have must cost nothing."""
    if affine.shift is not None and isinstance(linear, RowProduct) and linear.shift is None:
        return MatrixProduct.of(linear.node).then(affine, rw)
    return linear.then(affine, rw)


def _affine(node: Node, value: Value, linear: Linear, channels: int, *, moved: bool) -> Affine:
    """The scale and shift of the channels that are read; after moves it must be the same for all channels."""
    rank, axis = (value.rank, -1) if moved else (linear.rank, linear.axis)
    if node.op == "BatchNormalization" and (moved or axis != 1):
        raise Decline("the channels of {} are on another axis", value.name)
    if not rank:
        raise Decline("the rank of {} is not known, or 0", value.name)
    if moved and any(other is not value and other.array().size != 1 for other in node.operands):
        raise Decline("{} is moved before it is combined with a constant that is not a scalar", value.name)
    return Affine.of(node, value, rank, axis, channels)


def _channels(linear: Linear, moves: list[Node], split: Node, part: Value) -> range:
    """The channels that a part of a split holds."""
    axis, width = linear.axis, 1
    for move in reversed(moves):
        axis, each = _axis_behind(move, axis, whole=width == 1)
        width *= each
    _, along, positions = Split.part(split, split.outputs.index(part))
    if along != axis:
        raise Decline("{} is not split along the channel axis", split.operand(0).name)
    return range(positions.start * width, positions.stop * width)


def _axis_behind(move: Node, axis: int, *, whole: bool) -> tuple[int, int]:
    """The channel axis after a move, and how many channels each of its positions holds."""
    if move.op == "Transpose":
        return Transpose.of(move).perm.index(axis), 1
    before, after = move.operand(0).dims(), move.result.dims()
    if move.op in ("Squeeze", "Unsqueeze"):
        view = Squeeze.of(move) if move.op == "Squeeze" else Unsqueeze.of(move)
        longer = range(max(len(before), len(after)))
        stays = [at for at in longer if at not in view.axes]
        if move.op == "Unsqueeze":
            return stays[axis], 1
        if axis in stays:
            return stays.index(axis), 1
    elif whole and axis < len(after) and None not in before[:axis] and before[:axis] == after[:axis]:
        channels, positions = before[axis], after[axis]
        if isinstance(channels, int) and isinstance(positions, int) and positions and channels % positions == 0:
            return axis, channels // positions
    raise Decline("{} is reshaped other than by splitting its channels", move.operand(0).name)
