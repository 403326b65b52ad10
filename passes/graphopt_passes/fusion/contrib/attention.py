"""Attention of a sequence to itself, with the projections to queries, keys and values, as one operator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from graphopt.ir.types import agree
from graphopt.match import Either, Match, OpBuilder, Pattern
from graphopt.operators import Gather, Reshape, Softmax, Split, Squeeze, Transpose
from graphopt.operators.product import LayerProduct
from graphopt.records import dataclass
from graphopt.rewrite import Decline, Dim, Node, Rewriter, Value
from graphopt_passes.fusion.contrib.operands import DOMAIN, ForRuntime

_HEADS, _TURNED = "bcrc", "bccr"
"""The axes of operands: batches, heads, rows and the columns of a head, or with the last two swapped."""
_LANES, _UNUSED, _OF_MASKED = 16, 4, 32
"""Columns computed at once, how many of the last ones of a head may be unused, and the fewest columns for which a mask
pays."""
_ROWS = 128
"""Rows from which several batches pay: the operator projects each head of each batch separately."""
_MOST_MOVES = 16
"""The most operators that arrange the columns of a product."""
_HEADS_FROM, _WIDE, _FEW = 2, 640, 64
"""The fewest heads, among which threads divide the work, and the columns above which only so many rows pay."""


class FuseSelfAttention(ForRuntime):
    """Fuse `softmax(alpha * Q @ K^T + mask) @ V` with `Q`, `K`, `V` = `x @ W + b` into `Attention` of ONNX Runtime.

    `Q`, `K` and `V` are columns of one product or of several, in any order that `Reshape`, `Transpose`, `Split` and
    `Gather` give them. The operator computes each head where the next step reads it, so that nothing is transposed.
    With its projections, attention of one batch of 16 to 1024 rows takes 0.69 to 1.01 of the time on one thread, and
    0.81 to 1.02 on two, among which it divides heads; a ViT takes 0.96 and 1.01, a CLIP 0.99 and 0.85. Heads of more
    than 16 columns may leave 4 of their last 16 lanes unused, with a mask none: heads of 36 or 40 columns would take
    0.92 to 1.08, 64 batches of 16 rows 0.89 to 1.10, and 12 heads of 64 columns 1.04 on two threads. A symbolic batch
    is taken to be small.
    """

    peers = {"onnxruntime": "AttentionFusion", "onnxsim": "fuse_attention"}

    def pattern(self, op: OpBuilder, q: Pattern, k: Pattern, v: Pattern, mask: Pattern) -> Pattern:
        scores = Either(
            op.MatMul(q, k, _bind="scores"), op.domain(DOMAIN).FusedMatMul(q, k, _bind="scores", _other_attrs=True)
        )
        weights = op.Softmax(Either(scores, op.Add(scores, mask)), _bind="softmax", _other_attrs=True)
        product = op.MatMul(weights, v, _bind="product")
        return op.Reshape(op.Transpose(product, perm=(0, 2, 1, 3)), ..., _bind="joined", _other_attrs=True)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        attrs = m.scores.attrs
        if attrs.get("transA") or attrs.get("transBatchA") or attrs.get("transBatchB") or not attrs.get("alpha", 1.0):
            raise Decline("{} is not a product of queries with keys", m.scores.result.name)
        if Softmax.of(m.softmax).axes != (3,):
            raise Decline("{} is not normalized along its last axis", m.softmax.result.name)
        parts = [_Columns.of(value) for value in (m.q, m.k, m.v)]
        for part, axes in zip(parts, (_HEADS, _HEADS if attrs.get("transB") else _TURNED, _HEADS), strict=True):
            part.check(parts[0], axes)
        _check_unused([part.nodes for part in parts], (m.scores, m.product))
        (batch, rows), heads, size = parts[0].lead, len(parts[0].columns), parts[2].columns.size
        _check_pays(m, batch, rows)
        operands = _input(parts[0].source.x, batch, rows, rw), *_weights(parts, rw)
        result = rw.op(
            "Attention", *operands, None, None, m.mask and _mask(m.mask, (batch, heads, rows), rw), domain=DOMAIN,
            num_heads=heads, scale=attrs.get("alpha", 1.0),
            qkv_hidden_sizes=None if size == parts[0].columns.size else [part.columns.size for part in parts],
        )  # fmt: skip
        if m.joined.result.shape == (batch, rows, size) and None not in (batch, rows):
            return result
        return Reshape.to(result, m.joined.result.dims(), before=(batch, rows, size)).write(rw)


@dataclass(frozen=True, slots=True)
class _Columns:
    """Columns of a product of rows with constant weights, arranged along several axes.

    Attributes:
        source: the product.
        axes: a letter for each axis: `b` for batches, `r` for the rows of each, `m` for both as one, `c` for columns.
        columns: the numbers of the columns, with the axes that are called `c`, in their order.
        lead: the number of batches, and of rows of each; without meaning while they are one axis.
        nodes: the operators that compute the value from the rows.
    """

    source: LayerProduct
    axes: str
    columns: np.ndarray
    lead: tuple[Dim, ...]
    nodes: tuple[Node, ...]

    @classmethod
    def of(cls, value: Value, most: int = _MOST_MOVES) -> _Columns:
        """Read how a value is computed; declines if it does not consist of columns of a product."""
        node = value.producer
        if node is None or not most or node.op not in ("Gather", "Reshape", "Split", "Squeeze", "Transpose"):
            source, dims = _product(value), value.dims()
            if len(dims) not in (2, 3):
                raise Decline("{} is not rows of one batch axis at most", value.name)
            axes = "mc" if len(dims) == 2 else "brc"
            return cls(source, axes, np.arange(source.outputs), dims[:2], source.nodes)
        inner = cls.of(node.operand(0), most - 1)
        found = replace(inner, nodes=(*inner.nodes, node))
        if node.op == "Transpose":
            return found._moved(Transpose.of(node).perm)
        if node.op == "Gather":
            gather = Gather.of(node)
            return found._taken(gather.axis, gather.from_front())
        if node.op == "Split":
            _, axis, positions = Split.part(node, value.index)
            return found._taken(axis, np.array(positions, np.int64))
        gone = Squeeze.of(node).axes if node.op == "Squeeze" else None
        return found._reshaped(node.operand(0).dims(), value.dims(), gone)

    def _place(self, axis: int) -> int:
        """The axis of `columns` for an axis of the value."""
        if self.axes[axis] != "c":
            raise Decline("rows of {} are selected", self.source.nodes[-1].result.name)
        return self.axes[:axis].count("c")

    def _moved(self, perm: Sequence[int]) -> _Columns:
        order = [self._place(axis) for axis in perm if self.axes[axis] == "c"]
        return replace(self, axes="".join(self.axes[axis] for axis in perm), columns=self.columns.transpose(order))

    def _taken(self, axis: int, positions: np.ndarray) -> _Columns:
        """The columns at some positions; a single position removes the axis."""
        axes = self.axes[:axis] + "c" * positions.ndim + self.axes[axis + 1 :]
        return replace(self, axes=axes, columns=self.columns.take(positions, axis=self._place(axis)))

    def _reshaped(self, before: Sequence[Dim], dims: Sequence[Dim], squeezed: Sequence[int] | None) -> _Columns:
        """Columns divided among several axes, or without an axis of size 1."""
        single = next((at for at in range(len(before)) if (*before[:at], *before[at + 1 :]) == dims), None)
        gone = (single,) if squeezed is None and single is not None and before[single] == 1 else squeezed
        if gone is not None:
            found = self
            for axis in reversed(gone):
                found = found._taken(axis, np.array(0))
            return found
        sizes, lead = [size for size in dims[2:] if isinstance(size, int)], self.lead
        kept = self.axes[:2] == "br" and any(map(agree, lead, dims))  # with as many elements, the other is kept, too
        if self.axes == "mc":
            kept, lead = len(dims) > 2, tuple(dims[:2])
        if not kept or len(sizes) != len(dims) - 2 or math.prod(sizes) != self.columns.size:
            raise Decline("{} is not known to be rows of heads", self.nodes[-1].result.name)
        return replace(self, axes="br" + "c" * len(sizes), columns=self.columns.reshape(sizes), lead=lead)

    def check(self, first: _Columns, axes: str) -> None:
        """Decline unless the columns of heads are arranged in this order, and as many as those of the first operand."""
        if self.axes != axes:
            raise Decline("{} is not columns of heads", self.nodes[-1].result.name)
        if self.source.x is not first.source.x or self.source.inputs != first.source.inputs:
            raise Decline("{} and {} are not computed of the same rows", self.source.x.name, first.source.x.name)
        if not any(map(agree, self.lead, first.lead)):
            raise Decline("rows of {} are divided into other batches", self.nodes[-1].result.name)
        if len(self.columns) != len(first.columns):
            raise Decline("{} has {} heads, not {}", self.nodes[-1].result.name, len(self.columns), len(first.columns))


def _product(value: Value) -> LayerProduct:
    try:
        return LayerProduct.of(value)
    except Decline:
        raise Decline("{} is not a product of floats with constant weights", value.name) from None


def _check_pays(m: Match, batch: Dim, rows: Dim) -> None:
    """Decline if the operator was measured to be slower than its parts."""
    widths, unused = [m.q.size(3), m.v.size(3)], 0 if m.mask else _UNUSED
    least = _OF_MASKED if m.mask else 1
    if any(width < least or (width > _LANES and -width % _LANES > unused) for width in widths):
        raise Decline("heads of {} have {} and {} columns, for which the kernel is slower", m.q.name, *widths)
    if isinstance(batch, int) and batch > 1 and not (isinstance(rows, int) and rows >= _ROWS):
        raise Decline("{} has {} batches of {} rows, for which the kernel is slower", m.q.name, batch, rows)
    heads = m.q.size(1)
    if heads < _HEADS_FROM or (heads * max(widths) > _WIDE and not (isinstance(rows, int) and rows <= _FEW)):
        raise Decline("{} has {} heads of {} rows, for which the kernel is no faster", m.q.name, heads, rows)


def _check_unused(parts: Sequence[Sequence[Node]], readers: Sequence[Node]) -> None:
    """Decline if something besides the attention reads a step of its projections, or a loop would repeat them."""
    nodes = dict.fromkeys(node for part in parts for node in part)
    within = {*nodes, *readers}
    for node in nodes:
        if node.graph is not readers[0].graph:
            raise Decline("{} is computed in an outer graph", node.result.name)
        for result in node.results:
            if result.output_count or not within.issuperset(result.users):
                raise Decline("{} has other readers", result.name)


def _input(x: Value, batch: Dim, rows: Dim, rw: Rewriter) -> Value:
    """The rows, divided into batches."""
    *lead, size = x.dims()
    if 0 in (batch, rows, size):
        raise Decline("{} is empty", x.name)
    if len(lead) == 2:
        return x
    reshape = x.made_by("Reshape")
    whole = reshape.operand(0) if reshape is not None else x
    if len(dims := whole.dims()) == 3 and dims[2] == size and (agree(dims[0], batch) or agree(dims[1], rows)):
        return whole
    return Reshape.to(x, (batch, rows, size)).write(rw)


def _weights(parts: Sequence[_Columns], rw: Rewriter) -> tuple[Value, Value | None]:
    """The weights and biases of queries, keys and values, one after the other."""
    first = parts[0].source
    order = [part.columns.reshape(-1) for part in parts]
    if all(part.source == first for part in parts) and not first.swapped:
        whole = np.concatenate(order)
        if np.array_equal(whole, np.arange(first.outputs)):
            return first.weight, first.bias
    weights, biases = [], []
    for part, columns in zip(parts, order, strict=True):
        matrix, row = part.source.weight.array(), part.source.bias
        weights.append((matrix.T if part.source.swapped else matrix)[:, columns])
        biases.append(row.array()[columns] if row else np.zeros(len(columns), np.float32))
    bias = rw.constant(np.concatenate(biases), like=first.bias) if any(part.source.bias for part in parts) else None
    return rw.constant(np.concatenate(weights, axis=1), like=first.weight), bias


def _mask(mask: Value, scores: tuple[Dim, Dim, Dim], rw: Rewriter) -> Value:
    """What is added to the scores, with a row for each query, as the operator requires."""
    batch, heads, rows = scores
    dims = (*[1] * (4 - len(mask.dims())), *mask.dims())
    wanted = (batch, heads, rows, rows)
    if len(dims) != 4 or not all(size == 1 or agree(size, whole) for size, whole in zip(dims, wanted, strict=True)):
        raise Decline("{} is not known to be broadcast to the scores", mask.name)
    if dims[-1] == 1 and rows != 1:
        raise Decline("{} has one number for all keys", mask.name)
    if len(mask.dims()) < 4:
        mask = Reshape.to(mask, dims).write(rw)
    if dims[2] == 1 and rows != 1:
        if not isinstance(rows, int):
            raise Decline("the number of rows of {} is not known", mask.name)
        mask = rw.op("Expand", mask, np.array([1, 1, rows, 1]))
    return mask
