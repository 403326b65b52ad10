"""Operators on images, rows and volumes with channels last: their forms, prices and rewrites."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

import numpy as np

from graphopt.ir.types import element_count
from graphopt.operators import Pool
from graphopt.operators.transpose import LAST, Perm, channels_first, channels_last
from graphopt.records import dataclass
from graphopt.rewrite import Decline, Node, Rewriter, Value
from graphopt_passes.fusion.contrib.operands import DOMAIN
from graphopt_passes.fusion.transposes.axes import cuts, parts
from graphopt_passes.fusion.transposes.permuted import axis_of
from graphopt_passes.layout.activations import ELEMENTWISE
from graphopt_passes.layout.cost import Price
from graphopt_passes.layout.known import is_number
from graphopt_passes.layout.nhwc import BYTES, gains

_RANKS = (3, 4, 5)
"""The ranks of rows, images and volumes, with batch and channels."""
_SIDE = 56
"""The assumed size of an unknown dimension."""
Rates = Mapping[str, float]
"""Nanoseconds of each kind of work; see `graphopt_passes.algorithm.work`."""


@dataclass(frozen=True, slots=True)
class LastForm:
    """A node on images with channels last.

    Attributes:
        node: the node.
        images: the positions of the images among its inputs.
        price: microseconds with channels second and last, without transposes around.
        op: domain and type of the operator.
        attrs: its attributes.
        constants: new constants, by the position of the input that they replace.
        gives: whether its outputs are images with channels last.
        rank: the rank of its images.
    """

    node: Node
    images: tuple[int, ...]
    price: Price = (0.0, 0.0)
    op: tuple[str, str] = ("", "")
    attrs: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[int, np.ndarray] = field(default_factory=dict)
    gives: bool = True
    rank: int = 4

    @property
    def last(self) -> Perm:
        """The permutation that moves channels last."""
        return channels_last(self.rank)

    @property
    def first(self) -> Perm:
        """The permutation that moves channels back."""
        return channels_first(self.rank)

    @property
    def operands(self) -> dict[Value, None]:
        """The images that it reads, each once."""
        return dict.fromkeys(self.node.operand(at) for at in self.images)

    def write(self, last: Callable[[Value], Value], rw: Rewriter) -> tuple[Value, ...]:
        """Write the results with channels last; `last` gives an operand in that order."""
        inputs = [*self.node.inputs, *[None] * (1 + max(self.constants, default=-1) - len(self.node.inputs))]
        for at in self.images:
            inputs[at] = last(self.node.operand(at))
        for at, array in self.constants.items():
            inputs[at] = rw.constant(array, like=self.node.input(at))
        domain, op_type = self.op
        return rw.outputs(len(self.node.outputs), op_type, *inputs, domain=domain, **self.attrs)


def elements(value: Value) -> int:
    """How many elements an image has, estimated if sizes are unknown."""
    batch, *others = value.shape or (1, 64, None, None)
    return element_count(others, _SIDE) * element_count((batch,))


def reorder(value: Value, rates: Rates) -> float:
    """Microseconds of a `Transpose` between both orders."""
    kind = "bytes between orders" if value.dtype in BYTES else "floats between orders"
    return (rates["kernel"] + elements(value) * rates[kind]) / 1e3


def last_form(node: Node, rates: Rates) -> LastForm:
    """The form of a node, priced by a machine's rates; declines if it has none."""
    read = _FORMS.get(node.op)
    if read is None or any(value is None for value in node.outputs):
        raise Decline
    form = read(node, rates)
    ranks = [value.rank for value in form.operands]
    if form.gives:
        ranks += [value.rank for value in node.results]
    if read is _convolution:  # if its own rank is not known, that of its weight is
        ranks = [len(node.operand(3).sizes()), *(rank for rank in ranks if rank is not None)]
    own = ranks[0]
    if own not in _RANKS or any(rank != own for rank in ranks):
        raise Decline
    return replace(form, rank=own)


def _rank(value: Value) -> int:
    if value.rank not in _RANKS:
        raise Decline
    return value.rank


def _same(node: Node, images: tuple[int, ...], price: Price = (0.0, 0.0), **changed: Any) -> LastForm:
    return LastForm(node, images, price, (node.domain, node.op_type), {**node.attrs, **changed})


def _contrib(node: Node, price: Price, op_type: str = "", **changed: Any) -> LastForm:
    return LastForm(node, (0,), price, (DOMAIN, op_type or node.op_type), {**node.attrs, **changed})


def _rated(node: Node, kind: str, rates: Rates) -> Price:
    size = sum(elements(value) for value in node.results) / 1e3
    return size * rates[kind], size * rates[f"{kind} last"]


def _convolution(node: Node, rates: Rates) -> LastForm:
    tensor = node.operand(3).constant_tensor
    if tensor is None or not gains(node):
        raise Decline
    # The kernel for channels second transposes image and result by itself; other transposes may still cancel.
    plain = 1.05 * (reorder(node.operand(0), rates) + reorder(node.result, rates))
    return _contrib(node, (plain, 0.0), channels_last=1)


def _unary(node: Node, rates: Rates) -> LastForm:
    parameters = [value for value in node.inputs[1:] if value is not None]
    if len(node.outputs) != 1 or not all(value.is_const and is_number(value) for value in parameters):
        raise Decline
    if node.attr("block_size", 0) or (node.op_type == "FastGelu" and parameters):
        raise Decline("{} has a parameter along an axis", node.op)
    return _same(node, (0,))


def _binary(first: int, second: int) -> Callable[[Node, Rates], LastForm]:
    """Operators of two operands, one of which may be constant."""

    def read(node: Node, rates: Rates) -> LastForm:
        images, constants, rank = [], {}, _rank(node.result)
        for at in (first, second):
            value = node.operand(at)
            if value.constant_tensor is None:
                images.append(at)
            elif not is_number(value):
                array = value.array()
                if array.ndim > rank:
                    raise Decline
                wide = array.reshape((1,) * (rank - array.ndim) + array.shape)
                constants[at] = np.ascontiguousarray(wide.transpose(channels_last(rank)))
        return replace(_same(node, tuple(images)), constants=constants)

    return read


def _concat(start: int, step: int) -> Callable[[Node, Rates], LastForm]:
    """Operators whose parts begin at input `start` and take `step` inputs each."""

    def read(node: Node, rates: Rates) -> LastForm:
        places = tuple(range(start, len(node.inputs), step))
        first = channels_first(_rank(node.operand(start)))
        return _same(node, places, _rated(node, "image pass", rates), axis=first[axis_of(node, first)])

    return read


def _first(node: Node) -> Perm:
    return channels_first(_rank(node.operand(0)))


def _split(node: Node, rates: Rates) -> LastForm:
    return _same(node, (0,), _rated(node, "image pass", rates), **parts(node, _first(node)).settings)


def _slice(node: Node, rates: Rates) -> LastForm:
    return _same(node, (0,), _rated(node, "image pass", rates), **cuts(node, _first(node)).settings)


def _pool(kind: str, op_type: str = "", **changed: Any) -> Callable[[Node, Rates], LastForm]:
    def read(node: Node, rates: Rates) -> LastForm:
        if not gains(node) or len(node.outputs) != 1:
            raise Decline
        return _contrib(node, _rated(node, kind, rates), op_type, **changed)

    return read


def _average_pool(node: Node, rates: Rates) -> LastForm:
    form = _pool("average of bytes", channels_last=1)(node, rates)
    # The kernel for channels last divides by the number of rows or columns, and crashes the process if it is 0.
    Pool.of(node).check_fits()
    return form


def _global_average_pool(node: Node, rates: Rates) -> LastForm:
    # Type inference of this operator assumes rank 4 where it does not know the rank.
    if node.attr("channels_last", 0) or node.operand(0).rank != len(LAST):
        raise Decline
    return _contrib(node, (0.0, 0.0), channels_last=1)


def _transpose(node: Node, rates: Rates) -> LastForm:
    """A `Transpose` between both orders is free if its image has both; for rows both directions are the same."""
    perm = tuple(node.attr("perm", ()))
    if len(perm) not in _RANKS[1:]:
        raise Decline
    if perm == channels_last(len(perm)):
        return LastForm(node, (0,), (reorder(node.operand(0), rates), 0.0), gives=False)
    if perm == channels_first(len(perm)):
        return LastForm(node, (), (reorder(node.result, rates), 0.0))
    raise Decline


_FORMS: dict[str, Callable[[Node, Rates], LastForm]] = {
    **dict.fromkeys((*ELEMENTWISE, "DequantizeLinear", "QuantizeLinear"), _unary),
    **dict.fromkeys((f"{DOMAIN}::QLinearLeakyRelu", f"{DOMAIN}::QLinearSigmoid"), _unary),
    **dict.fromkeys((f"{DOMAIN}::QLinearAdd", f"{DOMAIN}::QLinearMul"), _binary(0, 3)),
    **dict.fromkeys(("Add", "Div", "Mul", "Sub"), _binary(0, 1)),
    **dict.fromkeys(("QLinearConv", f"{DOMAIN}::QLinearConv"), _convolution),
    f"{DOMAIN}::QLinearAveragePool": _average_pool,
    f"{DOMAIN}::QLinearConcat": _concat(2, 3),
    f"{DOMAIN}::QLinearGlobalAveragePool": _global_average_pool,
    "Concat": _concat(0, 1),
    "MaxPool": _pool("maximum of bytes", "NhwcMaxPool", storage_order=None),
    "Slice": _slice,
    "Split": _split,
    "Transpose": _transpose,
}
