"""The table of cases in which the standard, its shape inference and ONNX Runtime disagree about a result's shape.

A shape in doubt counts as unknown, whether it comes from the standard's inference of a model or of a node, or from the
rules of graphopt's own analysis. `docs/runtime-differences.md` describes each entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphopt.analysis.pool_sizes import axes_that_differ, pool_may_differ, spatial
from graphopt.analysis.propagation import WRONG_SLICE, is_of_shape
from graphopt.errors import Decline
from graphopt.ir import Node
from graphopt.operators.resize import stated_scales
from graphopt.operators.slice import FARTHEST
from graphopt.records import dataclass

Known = tuple[Any, ...] | None
"""A shape as far as it is known: integers, and other objects for sizes that are not fixed."""

Doubts = list[tuple[int, int | None]]
"""The doubts about a node: an output, and an axis of it, or None for its whole shape."""

BROKEN = (TypeError, ValueError, IndexError, KeyError, AttributeError, ArithmeticError, MemoryError)
"""Exceptions of rules on malformed nodes: a missing attribute or input, or one of the wrong type."""


@dataclass(frozen=True, slots=True)
class Facts:
    """A node with its known shapes.

    Attributes:
        node: the node.
        shapes: the shapes of its inputs.
        claims: the claimed shapes of its outputs.
        branches: the claimed shapes of the outputs of its subgraphs, by attribute name.
    """

    node: Node
    shapes: Sequence[Known]
    claims: Sequence[Known]
    branches: dict[str, Sequence[Known]]

    def shape(self, index: int) -> Known:
        """The shape of an input."""
        return self.shapes[index] if index < len(self.shapes) else None

    def everywhere(self, axes: Sequence[int]) -> Doubts:
        """These axes of all outputs."""
        return [(index, axis) for index in range(len(self.node.outputs)) for axis in axes]

    def whole(self) -> Doubts:
        """All outputs."""
        return [(index, None) for index in range(len(self.node.outputs))]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """An entry of the table.

    Attributes:
        title: its heading in the documentation.
        ops: the operators.
        doubts: the doubts about a node.
        possible: whether there may be doubts, judging by attributes only; for nodes of functions, whose shapes are
            not known.
        own_rule_is_right: whether only the standard's inference is wrong, so that graphopt's own rules hold.
        until: the first version of ONNX Runtime that agrees, "" if none does. The doubts remain, since a model may run
            on an older one.
    """

    title: str
    ops: tuple[str, ...]
    doubts: Callable[[Facts], Doubts]
    possible: Callable[[Node], bool] = lambda node: True
    own_rule_is_right: bool = False
    until: str = ""


# Windows


def _pool(facts: Facts) -> Doubts:
    x = facts.shape(0)
    return facts.everywhere([axis + 2 for axis in axes_that_differ(facts.node, x[2:])]) if x is not None else []


def _conv_transpose(facts: Facts) -> Doubts:
    """In ONNX Runtime, padding is never negative, and `output_padding` is part of the size."""
    node, w = facts.node, facts.shape(1)
    if not _is_padded_alike(node) or w is None:
        return []
    count = len(w) - 2
    strides, dilations = spatial(node, "strides", count, 1), spatial(node, "dilations", count, 1)
    extra, kernel = spatial(node, "output_padding", count, 0), node.attr("kernel_shape") or w[2:]
    unsure = []
    for axis in range(count):
        wide = (kernel[axis] - 1) * dilations[axis] + 1 if type(kernel[axis]) is int else 0
        if extra[axis] or wide < strides[axis]:
            unsure.append(axis + 2)
    return facts.everywhere(unsure)


def _is_padded_alike(node: Node) -> bool:
    return not node.attr("output_shape") and node.attr("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER")


def _has_output_shape(node: Node) -> bool:
    return bool(node.attr("output_shape"))


# Sums of products


def _einsum(facts: Facts) -> Doubts:
    """Inference uses the first size of a letter, which may be a 1 that is broadcast."""
    terms, result = _terms(facts.node)
    ranks = [len(shape) for shape in facts.shapes if shape is not None]
    claim = facts.claims[0]
    if claim is None or len(ranks) < len(terms):
        return []
    sizes: dict[str, list[Any]] = {}
    for term, shape in zip(terms, facts.shapes, strict=True):
        for letter, size in zip(_letters(term, len(shape or ())), shape or (), strict=True):
            sizes.setdefault(letter, []).append(size)
    stated = zip(_letters(result, len(claim)), claim, strict=True)
    return [
        (0, axis) for axis, (letter, size) in enumerate(stated)
        if (type(size) is not int or size == 1) and any(other != size for other in sizes[letter])
    ]  # fmt: skip


def _terms(node: Node) -> tuple[list[str], str]:
    """The letters of the operands and of the result; by default the result has the letters that occur once."""
    operands, arrow, result = str(node.attr("equation")).replace(" ", "").partition("->")
    if not arrow:
        once = sorted(letter for letter in operands if letter.isalpha() and operands.count(letter) == 1)
        result = "".join(["..." if "..." in operands else "", *once])
    return operands.split(","), result


def _letters(term: str, rank: int) -> list[str]:
    """One letter per axis; the axes of an ellipsis are numbered from the last one."""
    front, dots, back = term.partition("...")
    count = rank - len(front) - len(back) if dots else 0
    return [*front, *map(str, range(count, 0, -1)), *back]


def _repeats_letters(node: Node) -> bool:
    terms, result = _terms(node)
    return any(sum(letter in term for term in terms) > 1 for letter in result)


def _prelu(facts: Facts) -> Doubts:
    """The standard allows no slope larger than the data; the runtime broadcasts both."""
    x, slope = facts.shape(0), facts.shape(1)
    if x is None or facts.node.graph.opset() < _BROADCAST_SLOPES:
        return []
    if slope is None or len(slope) > len(x):
        return facts.whole()
    offset = len(x) - len(slope)
    pairs = enumerate(zip(x[offset:], slope, strict=True), offset)
    return [(0, axis) for axis, (size, by) in pairs if by not in (1, size) and (type(size) is not int or size == 1)]


_BROADCAST_SLOPES = 7


# Parts and axes


def _ints(node: Node, name: str) -> tuple[int, ...] | None:
    """A list of integers of a node; None if it is omitted or not constant."""
    try:
        return node.ints(name)
    except Decline:
        return None


def _slice(facts: Facts) -> Doubts:
    ends, axes, steps = (_ints(facts.node, name) for name in ("ends", "axes", "steps"))
    if steps is None or ends is None:
        return []
    if axes is None:
        axes = tuple(range(len(ends))) if facts.node.input(3) is None else ()
    return _normal(facts, [a for a, end, step in zip(axes, ends, steps, strict=False) if step < 0 and end in FARTHEST])


def _slice_may_differ(node: Node) -> bool:
    ends, steps = _ints(node, "ends"), _ints(node, "steps") or ()
    return min(steps, default=0) < 0 and (ends is None or any(end in FARTHEST for end in ends))


def _named_slice(facts: Facts) -> Doubts:
    """A part of a shape of unknown rank, to which inference assigns the length of the whole."""
    if facts.node.graph.opset() != WRONG_SLICE or not is_of_shape(facts.node):
        return []
    claims = enumerate(facts.claims)
    return [(at, axis) for at, claim in claims for axis, dim in enumerate(claim or ()) if isinstance(dim, str)]


def _normal(facts: Facts, axes: Sequence[int]) -> Doubts:
    """Doubts about axes of the results, which may be negative."""
    ranks = [(index, len(claim)) for index, claim in enumerate(facts.claims) if claim is not None]
    return [(index, axis % rank) for index, rank in ranks for axis in axes if -rank <= axis < rank]


def _overlooked(facts: Facts) -> Doubts:
    """Inference treats an operand of unknown shape as omitted."""
    unseen = any(facts.shape(index) is None for index in _runtime_operands(facts.node))
    return [(0, axis) for claim in facts.claims for axis in range(len(claim or ()))] if unseen else []


def _runtime_operands(node: Node) -> list[int]:
    """The indices of axes and steps operands that are not constant."""
    operands = ((index, node.input(index)) for index in (3, 4))
    return [index for index, value in operands if value is not None and not value.is_const]


def _squeeze(facts: Facts) -> Doubts:
    return facts.whole() if _squeezes_nothing(facts.node) or facts.shape(1) == (0,) else []


def _squeezes_nothing(node: Node) -> bool:
    return _ints(node, "axes") == ()


def _overlooks_axes(facts: Facts) -> Doubts:
    """Also the size of a part without elements, which inference leaves unknown."""
    attrs = facts.node.attrs
    pairs = zip(attrs.get("starts") or (), attrs.get("ends") or (), strict=False)
    empty = any(end <= start or start < 0 <= end for start, end in pairs)
    return facts.whole() if empty or _has_odd_axes(facts.node) else []


def _has_odd_axes(node: Node) -> bool:
    axes = node.attrs.get("axes") or ()
    return tuple(sorted(axes)) != tuple(axes) or any(axis < 0 for axis in axes)


def _reduction(facts: Facts) -> Doubts:
    node, x = facts.node, facts.shape(0)
    if x is None or 0 not in x:
        return []
    axes = (node.attr("axis", 0),) if node.op in ("ArgMax", "ArgMin") else _ints(node, "axes")
    if axes is None or min(axes, default=0) >= 0:
        return []
    return _normal(facts, axes) if node.attr("keepdims", 1) else facts.whole()


def _nonzero(facts: Facts) -> Doubts:
    return [(0, 0), (0, 1)] if facts.shape(0) == () else []


# Sizes computed from other numbers


def _range(facts: Facts) -> Doubts:
    numbers = [value.const(8) if value is not None else None for value in facts.node.inputs]
    if any(n is None or n.size != 1 for n in numbers) or len(numbers) != 3:
        return []
    start, limit, delta = (n.reshape(-1)[0] for n in numbers if n is not None)
    if start.dtype.kind == "i":
        span, numbers_of = int(limit) - int(start), np.iinfo(start.dtype)
        return [] if numbers_of.min <= span <= numbers_of.max and abs(span) < 1 << 53 else [(0, 0)]
    if start.dtype.kind != "f" or not np.isfinite([start, limit, delta]).all() or not delta:
        return []
    with np.errstate(all="ignore"):
        spans = [
            (float(limit) - float(start)) / float(delta),
            float(limit - start) / float(delta),
            float((limit - start) / delta),
        ]
    return [(0, 0)] if not np.isfinite(spans).all() or len({math.ceil(span) for span in spans}) > 1 else []


def _resize(facts: Facts) -> Doubts:
    return _normal(facts, facts.node.attr("axes")) if _keeps_ratio_of_last_axes(facts.node) else []


def _keeps_ratio_of_last_axes(node: Node) -> bool:
    axes = node.attr("axes") or ()
    return node.attr("keep_aspect_ratio_policy", "stretch") != "stretch" and min(axes, default=0) < 0


def comes_to_one_size(size: int, factor: float) -> bool:
    """Whether floor(size * factor) is the same exactly and in the runtime's float32 arithmetic."""
    single = np.float32(factor)
    if not np.isfinite(single):
        return False
    return math.floor(np.float32(size) * single) == math.floor(size * float(single))


def _scaled(facts: Facts) -> Doubts:
    node, x = facts.node, facts.shape(0)
    if x is None or not (scales := _scales(node)):
        return []
    axes = node.attr("axes") or range(len(x))
    known = [(axis, scale) for axis, scale in zip(axes, scales, strict=True) if type(x[axis]) is int]
    return _normal(facts, [axis for axis, scale in known if not comes_to_one_size(x[axis], scale)])


def _scales(node: Node) -> list[float]:
    """The scales of a resize; empty if it has sizes instead, or they are not constant."""
    try:
        return [float(scale) for scale in stated_scales(node)]
    except Decline:
        return []


_EXACT_SCALE = 1 << 8
"""Products of any size up to 2**16 and a fraction with a numerator below this are exact in float32."""


def _scales_by_fractions(node: Node) -> bool:
    sizes = node.input(3) if node.op == "Resize" else None
    if sizes is not None:
        return False
    scales = _scales(node)
    return not scales or any(scale.as_integer_ratio()[0] >= _EXACT_SCALE for scale in scales)


def _stft(facts: Facts) -> Doubts:
    return [(0, 2)] if _has_no_sides(facts.node) else []


def _has_no_sides(node: Node) -> bool:
    return "onesided" not in node.attrs


def _zeros(facts: Facts) -> Doubts:
    return [
        (i, a)
        for i, claim in enumerate(facts.claims)
        for a, dim in enumerate(claim or ())
        if type(dim) is int and not dim
    ]


def _unknown_past(facts: Facts) -> Doubts:
    """Inference ignores a past of unknown length in the fourth output, the scores, which includes it."""
    node, past = facts.node, facts.shape(4)
    is_known = past is not None and len(past) == _PAST_AXES and type(past[2]) is int
    return [] if is_known or node.input(4) is None or not _claim(facts, 3) else [(3, 3)]


_PAST_AXES = 4


def _part(facts: Facts) -> Doubts:
    return facts.whole() if _is_part_of_a_size(facts.node) else []


def _is_part_of_a_size(node: Node) -> bool:
    """Whether a sequence has parts of one size, which do not keep the axis in ONNX Runtime."""
    maker = node.operand(0).producer
    while maker is not None and maker.op == "Identity":
        maker = maker.operand(0).producer
    if maker is None or maker.op != "SplitToSequence" or maker.attr("keepdims", 1):
        return False
    size = maker.input(1)
    return size is not None and size.rank != 1


# Control flow


def _if(facts: Facts) -> Doubts:
    """Only shapes that both branches claim hold; the standard's inference uses one branch if the other is unknown."""
    then, other = facts.branches.get("then_branch", ()), facts.branches.get("else_branch", ())
    found: Doubts = []
    for index in range(len(facts.node.outputs)):
        a, b = (shapes[index] if index < len(shapes) else None for shapes in (then, other))
        if a is None or b is None or len(a) != len(b):
            found.append((index, None))
        else:
            found += [(index, axis) for axis, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
    return found


def _loop(facts: Facts) -> Doubts:
    node = facts.node
    if _has_a_trip(node) and _starts(node):
        return []
    stacked = range(max(len(node.inputs) - 2, 0), len(node.outputs))
    return [(index, axis) for index in stacked for axis in range(1, len(_claim(facts, index)))]


def _claim(facts: Facts, index: int) -> tuple[Any, ...]:
    return (facts.claims[index] if index < len(facts.claims) else None) or ()


def _starts(node: Node) -> bool:
    value = node.input(1)
    known = value.const(8) if value is not None else None
    return value is None or (known is not None and bool(known.all()))


def _has_a_trip(node: Node) -> bool:
    value = node.input(0)
    known = value.const(8) if value is not None else None
    return value is None or (known is not None and known.size == 1 and int(known.reshape(-1)[0]) >= 1)


_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip


_POOLS = (
    "AveragePool", "LpPool", "MaxPool", "com.microsoft.nchwc::AveragePool", "com.microsoft.nchwc::MaxPool",
    "com.microsoft::QLinearAveragePool",
)  # fmt: skip


def _never(node: Node) -> bool:
    return False


TABLE: tuple[Disagreement, ...] = (
    Disagreement("Pools", _POOLS, _pool, pool_may_differ),
    Disagreement("ConvTranspose with SAME padding", ("ConvTranspose",), _conv_transpose, _is_padded_alike),
    Disagreement(
        "ConvTranspose with an output shape", ("ConvTranspose",),
        lambda facts: facts.whole() if _has_output_shape(facts.node) else [], _has_output_shape, own_rule_is_right=True,
    ),
    Disagreement("Einsum of sizes that are 1", ("Einsum",), _einsum, _repeats_letters, own_rule_is_right=True),
    Disagreement("PRelu with a larger slope", ("PRelu",), _prelu),
    Disagreement("Slice backwards to the largest integer", ("Slice",), _slice, _slice_may_differ),
    Disagreement(
        "Slice and Pad with operands of unknown rank", ("Pad", "Slice"), _overlooked,
        lambda node: bool(_runtime_operands(node)), own_rule_is_right=True,
    ),
    Disagreement("Squeeze with an empty list of axes", ("Squeeze",), _squeeze, _squeezes_nothing),
    Disagreement(
        "Axes of older opsets from the back or out of order", ("Slice", "Squeeze", "Unsqueeze"), _overlooks_axes,
        _has_odd_axes, own_rule_is_right=True,
    ),
    Disagreement(
        "Reductions of empty tensors", (*_REDUCTIONS, "ArgMax", "ArgMin"), _reduction, _never, until="1.32",
    ),
    Disagreement("NonZero of a scalar", ("NonZero",), _nonzero, _never),
    Disagreement("Range", ("Range",), _range),
    Disagreement("Resize that keeps the aspect ratio", ("Resize",), _resize, _keeps_ratio_of_last_axes),
    Disagreement("Resize by scales", ("Resize", "Upsample"), _scaled, _scales_by_fractions),
    Disagreement("STFT without onesided", ("STFT",), _stft, _has_no_sides),
    Disagreement("Attention of unknown sizes", ("Attention",), _zeros),
    Disagreement("Attention after a past of unknown length", ("Attention",), _unknown_past),
    Disagreement(
        "Parts of one size without the axis", ("ConcatFromSequence", "SequenceAt"), _part, _is_part_of_a_size,
    ),
    Disagreement("If whose branches differ", ("If",), _if, own_rule_is_right=True),
    Disagreement("Loop without a round", ("Loop",), _loop, own_rule_is_right=True),
)  # fmt: skip
"""All entries."""

_OF_NAMES = (Disagreement("Slice at opset 10", ("Slice",), _named_slice, _never, own_rule_is_right=True),)
"""Entries that no run shows, since only symbols are wrong."""

_ALL = (*TABLE, *_OF_NAMES)
ENTRIES: dict[str, tuple[Disagreement, ...]] = {
    op: tuple(entry for entry in _ALL if op in entry.ops) for op in dict.fromkeys(op for e in _ALL for op in e.ops)
}
"""The entries of each operator."""


def doubts(facts: Facts, *, own: bool = False) -> Doubts:
    """The doubts about the outputs of a node; all outputs if a malformed node raises.

    Args:
        facts: the node with its known shapes.
        own: whether graphopt's own rules claim the shapes, not the standard's inference.
    """
    entries = ENTRIES.get(facts.node.op, ())
    try:
        return [doubt for entry in entries if not (own and entry.own_rule_is_right) for doubt in entry.doubts(facts)]
    except BROKEN:
        return facts.whole()


def may_disagree(node: Node) -> bool:
    """Whether the result of a node in a function, where no shapes are known, may be in doubt."""
    entries = ENTRIES.get(node.op.removeprefix(_REFERRING), ())
    if node.op.startswith(_REFERRING):
        return any(entry.possible is not _never for entry in entries)
    try:
        return any(entry.possible(node) for entry in entries)
    except BROKEN:
        return True


_REFERRING = "referring "
"""The prefix of operators with references to the enclosing function's attributes."""
