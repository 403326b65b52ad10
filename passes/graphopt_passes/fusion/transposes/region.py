"""The region around a `Transpose`: the operators that can be done before it as well as after it."""

from __future__ import annotations

from collections import deque
from dataclasses import field

import numpy as np

from graphopt.errors import Decline
from graphopt.ir import Graph, Node, Tensor, Value
from graphopt.operators.quantizing import reads_stored_bytes
from graphopt.operators.transpose import Perm, Transpose, inverse, is_identity, joined, keeps_order
from graphopt.records import dataclass
from graphopt.rewrite.legality import check_constant
from graphopt_passes.elementwise import is_constant_number
from graphopt_passes.fusion.transposes.table import OPERATORS, moving_inputs, permuted

MOST_NODES = 20_000
"""The most operators of a region."""

_LINKS = ("Transpose", "Reshape")
_PRODUCTS = ("MatMul", "Gemm", "com.microsoft::FusedMatMul")
_SCALES = 3
"""How many scalings may stand between a `Transpose` and a matrix product."""


def permutes(node: Node, perm: Perm) -> bool:
    """Whether a node is a `Transpose` by `perm`."""
    return node.op == "Transpose" and tuple(node.attr("perm") or range(len(perm))[::-1]) == perm


def is_absorbed(node: Node) -> bool:
    """Whether a `Transpose` swaps rows and columns for matrix products only, which runtimes do inside the product.

    Products of bytes have no kernels that do, but their constant matrices can be stored transposed.
    """
    rank, value = len(node.attr("perm") or node.operand(0).shape or ()), node.outputs[0]
    if rank < 2 or not permutes(node, (*range(rank - 2), rank - 1, rank - 2)) or reads_stored_bytes(node):
        return False
    for _ in range(_SCALES):
        if value is None or value.output_count or not value.users:
            return False
        if all(user.op in _PRODUCTS for user in value.users):
            return True
        scale = next(iter(value.users))
        others = [other for other in scale.operands if other is not value]
        if len(value.users) > 1 or scale.op not in ("Mul", "Div") or not all(map(is_constant_number, others)):
            return False
        value = scale.outputs[0]
    return False


@dataclass(slots=True)
class Region:
    """Values with two forms, one on side 0 and one on side 1, and the operators that can work on either side.

    Attributes:
        graph: the graph.
        forms: for each value the permutations that give its forms on side 0 and 1; one of them is the identity.
        home: for each operator the side that it works on at present.
        moves: for each operator the permutation of its inputs to the other side.
        moving: for each operator the inputs that are permuted.
        links: the `Transpose` nodes, and `Reshape` of axes of size 1, that turn one form into the other.
        declined: operators at the border of the region, and why they are not part of it.
    """

    graph: Graph
    forms: dict[Value, tuple[Perm, Perm]] = field(default_factory=dict)
    home: dict[Node, int] = field(default_factory=dict)
    moves: dict[Node, Perm] = field(default_factory=dict)
    moving: dict[Node, list[Value]] = field(default_factory=dict)
    links: set[Node] = field(default_factory=set)
    declined: dict[Node, Decline] = field(default_factory=dict)

    def side(self, value: Value) -> int:
        """The side whose form of a value is the value itself."""
        return 0 if is_identity(self.forms[value][0]) else 1

    def moved(self, value: Value) -> Perm:
        """The permutation of a value that gives its form on the other side."""
        first, second = self.forms[value]
        return second if is_identity(first) else first

    def moving_of(self, node: Node, rank: int) -> list[Value]:
        """The operands of an operator of the region that must be permuted alike by a permutation of `rank` axes."""
        return self.moving[node] if len(self.moves[node]) == rank else moving_inputs(node, rank)


def grow(seed: Node, most: int = MOST_NODES) -> Region:
    """The region of about `most` operators around a `Transpose`, or a `Reshape` that only moves axes of size 1.

    Declines if the permutation is unknown or the identity, or if a matrix product absorbs the `Transpose`.
    """
    view = Transpose.of_either(seed)
    perm, x, y = view.perm, view.x, seed.result
    if is_identity(perm) or (seed.op == "Transpose" and is_absorbed(seed)):
        raise Decline
    region = Region(seed.graph)
    same = tuple(range(len(perm)))
    region.forms[x], region.forms[y] = (same, perm), (inverse(perm), same)
    region.links.add(seed)
    queue = deque([x, y])
    while queue and len(region.home) < most:
        value = queue.popleft()
        around = [node for node in value.users if node.graph is region.graph]
        if value.producer is not None and value.producer.graph is region.graph:
            around.append(value.producer)
        for node in around:
            if node in region.home or node in region.links or node in region.declined:
                continue
            try:
                queue.extend((_link if node.op in _LINKS else _take)(region, node, value))
            except Decline as declined:
                # a node that is reached from its result may still be reached from an operand
                if declined.args and value.producer is not node:
                    region.declined[node] = declined
    return region


def _link(region: Region, node: Node, value: Value) -> list[Value]:
    """Add a `Transpose` or `Reshape` of `value`, or one that gives it, if it leads to the value's other form."""
    x, y = node.operand(0), node.result
    if value is not x and value is not y:
        raise Decline
    other = y if value is x else x
    forms = _by_transpose(region, node, value) if node.op == "Transpose" else _by_reshape(region, value, other)
    if region.forms.setdefault(other, forms) != forms:
        raise Decline
    region.links.add(node)
    return [other]


def _by_transpose(region: Region, node: Node, value: Value) -> tuple[Perm, Perm]:
    """The forms of the value at the other end of a `Transpose`."""
    perm = Transpose.of(node).perm
    if is_absorbed(node):
        raise Decline
    step = inverse(perm) if value is node.inputs[0] else perm
    first, second = (joined(step, form) for form in region.forms[value])
    if not is_identity(first) and not is_identity(second):
        raise Decline
    return first, second


def _by_reshape(region: Region, value: Value, other: Value) -> tuple[Perm, Perm]:
    """The forms of the value at the other end of a `Reshape` that only moves axes of size 1."""
    moved, shape = region.moved(value), value.shape or ()
    if None in shape or len(shape) != len(moved) or other.shape != tuple(shape[axis] for axis in moved):
        raise Decline
    if not keeps_order(moved, shape):
        raise Decline
    same, back = tuple(range(len(moved))), inverse(moved)
    return (back, same) if region.side(value) == 0 else (same, back)


def _take(region: Region, node: Node, value: Value) -> list[Value]:
    """Add an operator that reads or computes `value`. Returns its other permuted operands and results."""
    if node.op not in OPERATORS:
        raise Decline
    side, moved = region.side(value), region.moved(value)
    moving = moving_inputs(node, len(moved))
    if value.producer is not node and value not in moving:
        raise Decline
    found, known = _forms_around(node, moved, moving), region.forms
    forms = {v: (same, form) if side == 0 else (form, same) for v, (same, form) in found.items()}
    if value not in forms or forms[value] != known[value]:
        raise Decline  # as a result of this operator, the value would have another form
    new = []
    for v, form in forms.items():
        if v not in known:
            new.append(v)
        elif known[v] != form:
            region.declined[node] = Decline("its operands need different permutations")
            raise Decline
    region.home[node], region.moves[node], region.moving[node] = side, moved, moving
    known.update(forms)
    return new


def _forms_around(node: Node, moved: Perm, moving: list[Value]) -> dict[Value, tuple[Perm, Perm]]:
    """The two forms, identity first, of the operands and results of an operator whose operands are permuted."""
    if not moving:
        raise Decline
    for value in moving:
        if value.rank not in (None, len(moved)):
            raise Decline  # it was reached from a result of another rank
    sources = dict(zip(moving, moving, strict=True))
    found = permuted(node, sources, inverse(moved))
    for array in found.operands.values():
        if isinstance(array, np.ndarray):
            check_constant(node.graph, Tensor.from_array(array))
    after = inverse(found.perm)
    forms = {v: (tuple(range(len(moved))), moved) for v in sources}
    if not is_identity(after):
        forms |= {v: (tuple(range(len(after))), after) for v in node.results}
    return forms
