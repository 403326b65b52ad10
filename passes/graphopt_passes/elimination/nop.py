"""Operators whose result is their first operand."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from onnx import TensorProto

from graphopt.operators import Reduction, Reshape, Selection, Slice
from graphopt.operators.resize import Resize, stated_scales
from graphopt.operators.transpose import Transpose, keeps_order
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter


class ChangesNothing(OpRule):
    """Remove an operator whose result equals its first operand."""

    @abstractmethod
    def check(self, node: Node) -> None:
        """Decline unless the result is known to equal the first operand."""

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        self.check(node)
        return rw.replace(node, [node.operand(0)])


class EliminateNopSlice(ChangesNothing):
    """Remove a `Slice` that selects every axis in full, with step 1.

    It starts at 0 and ends at or after the end: the size if that is known, or any number from 2^31-1 on. If steps are 1
    and the shapes before and after are known to be equal, starts and ends need not be known.
    """

    ops = ("Slice",)
    peers = {"onnxruntime": "EliminateSlice", "onnxscript": ("collapse_slice_rule", "collapse_slice2_rule")}

    def check(self, node: Node) -> None:
        x = node.operand(0)
        if any(step != 1 for step in node.ints("steps") or ()):
            raise Decline
        if x.has_shape_of(node.result):
            return
        for axis, cut in Slice.stated(node):  # which does not need the rank, even for axes from the end
            if not cut.takes_all(x.dim(axis)):
                size = x.dim(axis) or "an unknown size"
                raise Decline("it keeps {} to {} of {} along axis {}", cut.start, cut.end, size, axis)


class EliminateNopGather(ChangesNothing):
    """Remove a `Gather` that selects all slices along its axis in order."""

    ops = ("Gather",)

    def check(self, node: Node) -> None:
        indices = node.operand(1)
        if not indices.is_const or indices.rank != 1 or not (count := indices.size(0)):
            raise Decline
        if indices.array()[0] not in (0, -count):
            raise Decline
        taken = Selection.of(node.result)
        size = taken.x.size(taken.axis)
        if count != size:
            raise Decline("it selects {} of {} slices along axis {}", count, size, taken.axis)
        if not taken.takes_all:
            raise Decline("it reorders the slices along axis {}", taken.axis)


class EliminateNopSplit(ChangesNothing):
    """Remove a `Split` into one part.

    If the size of the part is given, it must be known to equal the size of the axis.
    """

    ops = ("Split",)
    peers = {"onnxoptimizer": "eliminate_nop_split"}

    def check(self, node: Node) -> None:
        if len(node.outputs) != 1:
            raise Decline
        x, sizes, axis = node.operand(0), node.ints("split"), node.attr("axis", 0)
        if sizes is not None and sum(sizes) != x.size(axis):
            raise Decline("the size of {} along axis {} is {}, not {}", x.name, axis, x.size(axis), sum(sizes))


class EliminateNopConcat(ChangesNothing):
    """Remove `Concat` of one input."""

    ops = ("Concat",)
    peers = {"onnxoptimizer": "eliminate_nop_concat"}

    def check(self, node: Node) -> None:
        if len(node.inputs) != 1:
            raise Decline


class EliminateNopPad(ChangesNothing):
    """Remove `Pad` whose pads are all zero, whatever its mode."""

    ops = ("Pad",)
    peers = {"onnxoptimizer": "eliminate_nop_pad"}

    def check(self, node: Node) -> None:
        pads = node.ints("pads")
        if pads is None or any(pads):
            raise Decline


class EliminateNopReshape(ChangesNothing):
    """Remove a `Reshape` whose result provably has the shape of its input.

    Either the shape operand shows it (`0` copies a dimension, one `-1` is inferred), or the shapes of both values are
    known, symbols included. A fixed size for an unknown dimension is a check at run time, and stays.
    """

    ops = ("Reshape",)
    peers = {"onnxoptimizer": "eliminate_nop_reshape"}

    def check(self, node: Node) -> None:
        x = node.operand(0)
        if x.has_shape_of(node.result):
            return
        reshape = Reshape.of(node)
        dims = x.dims()
        if len(reshape.target) != len(dims):
            raise Decline
        for axis, (dim, size) in enumerate(zip(dims, reshape.target, strict=True)):
            if size not in (-1, dim) and (size != 0 or reshape.allowzero):
                raise Decline("dimension {} of {} is {}, but the target is {}", axis, x.name, dim or "unknown", size)


class EliminateNopFlatten(ChangesNothing):
    """Remove a `Flatten` of a matrix that it does not change.

    It splits between the two axes, or at an end next to an axis of size 1.
    """

    ops = ("Flatten",)
    peers = {"onnxoptimizer": "eliminate_nop_flatten"}

    def check(self, node: Node) -> None:
        x = node.operand(0)
        dims = x.dims()
        if len(dims) != 2:
            raise Decline
        rows, columns = dims
        axis = node.attr("axis", 1)
        axis += 2 if axis < 0 else 0
        if not (axis == 1 or (axis == 0 and rows == 1) or (axis == 2 and columns == 1)):
            raise Decline("it merges the axes that become {} of {}", "columns" if axis else "rows", x.name)


class EliminateNopTranspose(ChangesNothing):
    """Remove a `Transpose` whose permutation changes neither shape nor order of elements.

    That is the identity, or a permutation that only moves axes of size 1 among axes of size 1.
    """

    ops = ("Transpose",)
    peers = {"onnxoptimizer": "eliminate_nop_transpose", "onnxscript": "TransposeIdentity"}

    def check(self, node: Node) -> None:
        transpose = Transpose.of(node)
        shape = transpose.x.shape
        if not keeps_order(transpose.perm, shape):
            raise Decline
        if any(at != axis and not (shape and shape[axis] == 1) for at, axis in enumerate(transpose.perm)):
            raise Decline("it moves only axes of size 1, which is a Reshape")


class EliminateNopExpand(ChangesNothing):
    """Remove an `Expand` to a shape that the input provably has.

    Every target size is 1 or equals the dimension, or both shapes are known, symbols included. `Expand` broadcasts in
    both directions, so one of an unknown dimension to a fixed size above 1 stays.
    """

    ops = ("Expand",)
    peers = {
        "onnxoptimizer": "eliminate_nop_expand",
        "onnxruntime": "ExpandElimination",
        "onnxscript": "ExpandIdentity",
    }

    def check(self, node: Node) -> None:
        x = node.operand(0)
        if x.has_shape_of(node.result):
            return
        wanted, dims = node.operand(1).ints(), x.dims()
        if len(wanted) > len(dims):
            raise Decline
        for dim, size in zip(dims[len(dims) - len(wanted) :], wanted, strict=True):
            if size not in (1, dim):
                raise Decline("it expands to size {}, from {} in {}", size, dim or "an unknown dimension", x.name)


class EliminateNopTile(ChangesNothing):
    """Remove a `Tile` whose repeats are all 1."""

    ops = ("Tile",)

    def check(self, node: Node) -> None:
        if not node.operand(0).has_shape_of(node.result) and (node.operand(1).array() != 1).any():
            raise Decline


class EliminateNopResize(ChangesNothing):
    """Remove `Resize` and `Upsample` with scale 1, or to the size of their input.

    Every mode then samples exactly at the elements. Cropping stays, as do scales other than 1 whose result has the same
    size by rounding.
    """

    ops = ("Resize", "Upsample")

    def check(self, node: Node) -> None:
        x, y = node.operand(0), node.result
        if node.attr("coordinate_transformation_mode", "") == "tf_crop_and_resize":
            raise Decline("it uses tf_crop_and_resize")
        scales = stated_scales(node)
        if scales.size:
            if (scales != 1).any():
                raise Decline("a scale is not 1")
        elif node.attr("keep_aspect_ratio_policy", "stretch") != "stretch":
            raise Decline("it keeps the aspect ratio")
        elif not x.has_shape_of(y) and set(Resize.of(node).scales) != {1.0}:
            raise Decline("the sizes of {} are not known to be those of {}", y.name, x.name)


class EliminateNopReduce(ChangesNothing):
    """Remove reductions over no axis, or over axes of size 1 that they keep.

    The sum, mean, product, maximum and minimum of one element is that element. Runtimes start sums from 0, so that a
    negative zero loses its sign; hence the level `rounding`. Reductions of 64-bit integers stay: ONNX Runtime computes
    them in double precision, which cannot represent all of them.
    """

    ops = ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")
    numerics = Numerics.ROUNDING
    peers = {"onnxsim": "eliminate_nop_reduce"}

    def check(self, node: Node) -> None:
        reduction = Reduction.of(node)
        reduction.check_holds_elements()
        if not reduction.axes:
            return
        dims = reduction.x.dims()
        if any(dims[axis] != 1 for axis in reduction.axes):
            raise Decline
        if not reduction.keepdims:
            raise Decline("it drops axes of size 1, which is a Squeeze")


class EliminateIdentity(ChangesNothing):
    """Remove `Identity`: every reader of its output reads its input instead.

    It stays between two interface values, for example a graph input and a graph output.
    """

    ops = ("Identity",)
    peers = {
        "onnxoptimizer": "eliminate_identity",
        "onnxruntime": "EliminateIdentity",
        "onnxscript": "IdentityEliminationPass",
    }

    def check(self, node: Node) -> None:
        """Accept every `Identity`."""


class EliminateNopCast(ChangesNothing):
    """Remove `Cast` and `CastLike` to the element type that their input has."""

    ops = ("Cast", "CastLike")
    peers = {"onnxoptimizer": "eliminate_nop_cast", "onnxruntime": "CastElimination", "onnxscript": "CastIdentity"}

    def check(self, node: Node) -> None:
        x = node.operand(0)
        target = node.operand(1).dtype if node.op == "CastLike" else node.attr("to")
        if isinstance(target, str):  # opset 1 states the type by name
            target = dict(TensorProto.DataType.items()).get(target.upper())
        if x.element_type() != target:
            raise Decline


class EliminateNopDropout(OpRule):
    """Remove `Dropout` that drops nothing: at inference, or with ratio 0.

    From opset 12 on, a mask that is read becomes a tensor of true. Older versions do not specify the mask at inference,
    and runtimes differ, so there such a node stays.
    """

    ops = ("Dropout",)
    peers = {
        "onnxoptimizer": "eliminate_nop_dropout",
        "onnxruntime": "EliminateDropout",
        "onnxscript": ("dropout_inference_rule", "dropout_zero_rule"),
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        _check_inference(node)
        x, mask = node.operand(0), node.output(1)
        if mask is None or not mask.uses:
            return rw.replace(node, [x, None])
        if node.graph.opset() < 12:
            raise Decline("mask {} is used, whose content is unspecified before opset 12", mask.name)
        return rw.replace(node, [x, rw.op("ConstantOfShape", rw.op("Shape", x), value=np.array([True]))])


def _check_inference(node: Node) -> None:
    """Decline in training mode: `is_test` = 0 up to opset 6, `training_mode` from opset 12 on."""
    training = node.input(2)
    if not node.attr("is_test", 1) and node.number("ratio") != 0:
        raise Decline("is_test is not set, so it may be in training mode")
    if training is not None and not training.holds(False) and node.number("ratio") != 0:
        raise Decline("{} is not known to be false, so it may be in training mode", training.name)
