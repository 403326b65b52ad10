"""What lies around a `Transpose` and can be done before it as well as after it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from graphopt.errors import Decline
from graphopt.ir import Dim, Graph, Node, Tensor, Value
from graphopt.rewrite import Mismatch
from graphopt.rewrite.legality import check_constant
from graphopt_passes.fusion.transposes.forms import FORMS, moving_inputs, permuted
from graphopt_passes.fusion.transposes.permuted import Perm

MOST_NODES = 20_000
"""A region grows no further than this."""

_ALL_TYPES_SINCE = 9
"""From this opset on every graph can hold new constants of all types."""

_LINKS = ("Transpose", "Reshape")
_PRODUCTS = ("MatMul", "Gemm", "com.microsoft::FusedMatMul")
_SCALES = 3
"""How many factors may stand between a `Transpose` and the product."""


def perm_of(node: Node) -> Perm | None:
    """The permutation of a `Transpose`; None when it is left out and the rank is not known."""
    given = node.attr("perm")
    if given is not None:
        return tuple(given)
    rank = node.inputs[0].rank if node.inputs[0] is not None else None
    return None if rank is None else tuple(range(rank))[::-1]


def _perm_of_reshape(node: Node) -> Perm | None:
    """The permutation that a `Reshape` stands for that only moves axes of size 1; None when it does more."""
    x, y = node.inputs[0], node.outputs[0]
    before, after = (x.shape, y.shape) if x is not None and y is not None else (None, None)
    if before is None or after is None or len(before) != len(after) or None in before:
        return None
    long = [axis for axis, dim in enumerate(before) if dim != 1]
    if [before[axis] for axis in long] != [dim for dim in after if dim != 1]:
        return None
    ones = iter(axis for axis, dim in enumerate(before) if dim == 1)
    rest = iter(long)
    return tuple(next(ones if dim == 1 else rest) for dim in after)


def inverse(perm: Perm) -> Perm:
    """The permutation that undoes another one."""
    back = [0] * len(perm)
    for at, axis in enumerate(perm):
        back[axis] = at
    return tuple(back)


def joined(first: Perm, second: Perm) -> Perm:
    """The permutation that does one and then another."""
    return tuple(first[axis] for axis in second)


def is_identity(perm: Perm) -> bool:
    """Whether a permutation leaves all axes where they are."""
    return perm == tuple(range(len(perm)))


def is_absorbed(node: Node) -> bool:
    """Whether a `Transpose` swaps rows and columns for products alone, which runtimes do inside of the product."""
    perm, value = perm_of(node), node.outputs[0]
    last = len(perm or ())
    if value is None or perm != (*range(last - 2), last - 1, last - 2):
        return False
    for _ in range(_SCALES):
        if value.output_count or not value.users:
            return False
        if all(user.op in _PRODUCTS for user in value.users):
            return True
        scale = next(iter(value.users))
        others = [v for v in scale.inputs if v is not value and v is not None]
        if len(value.users) > 1 or scale.op not in ("Mul", "Div") or any(not _is_number(v) for v in others):
            return False
        if scale.outputs[0] is None:
            return False
        value = scale.outputs[0]
    return False


def _is_number(value: Value) -> bool:
    return value.is_const and all(dim == 1 for dim in value.shape or ())


@dataclass(slots=True)
class Region:
    """Values that have two forms, side 0 and side 1, and the operators that can work in either.

    Attributes:
        graph: the graph.
        forms: for each value by what it is permuted to give its form on either side; one of the two is the value.
        home: for each operator the side that it works on as it stands.
        moves: for each operator by what its inputs are permuted on the other side.
        links: the `Transpose` nodes, and `Reshape` of axes of size 1, that only turn one form into the other.
        declined: operators at the rim, and why they stay.
    """

    graph: Graph
    forms: dict[Value, tuple[Perm, Perm]] = field(default_factory=dict)
    home: dict[Node, int] = field(default_factory=dict)
    moves: dict[Node, Perm] = field(default_factory=dict)
    links: set[Node] = field(default_factory=set)
    declined: dict[Node, Mismatch] = field(default_factory=dict)

    def side(self, value: Value) -> int:
        """The side whose form of a value is the value itself."""
        return 0 if is_identity(self.forms[value][0]) else 1

    def moved(self, value: Value) -> Perm:
        """By what a value is permuted to give its form on the other side."""
        return self.forms[value][1 - self.side(value)]


def grow(seed: Node, most: int = MOST_NODES) -> Region | None:
    """The region around a `Transpose`, or a `Reshape` that only moves axes of size 1.

    Args:
        seed: the node.
        most: how many operators to take in.

    Returns:
        None when its permutation is not known or moves nothing.
    """
    perm = perm_of(seed) if seed.op == "Transpose" else _perm_of_reshape(seed)
    x, y = seed.inputs[0], seed.outputs[0]
    if perm is None or x is None or y is None or is_identity(perm):
        return None
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
            if node not in region.home and node not in region.links and node not in region.declined:
                queue.extend((_link if node.op in _LINKS else _take)(region, node, value))
    return region


def _link(region: Region, node: Node, value: Value) -> list[Value]:
    """Take in what a node turns a value into, or makes it from, if it only permutes, and that is the other form."""
    x, y = node.inputs[0], node.outputs[0]
    if x is None or y is None or (value is not x and value is not y):
        return []
    other = y if value is x else x
    forms = _by_transpose(region, node, value) if node.op == "Transpose" else _by_reshape(region, value, other)
    if forms is None or region.forms.setdefault(other, forms) != forms:
        return []
    region.links.add(node)
    return [other]


def _by_transpose(region: Region, node: Node, value: Value) -> tuple[Perm, Perm] | None:
    """The forms of what is on the other side of a `Transpose`."""
    perm = perm_of(node)
    if perm is None or is_absorbed(node):
        return None
    step = inverse(perm) if value is node.inputs[0] else perm
    first, second = (joined(step, form) for form in region.forms[value])
    return (first, second) if is_identity(first) or is_identity(second) else None


def _by_reshape(region: Region, value: Value, other: Value) -> tuple[Perm, Perm] | None:
    """The forms of what is on the other side of a `Reshape` that only moves axes of size 1."""
    moved, shape = region.moved(value), value.shape
    if shape is None or None in shape or len(shape) != len(moved) or other.shape != tuple(shape[a] for a in moved):
        return None
    if not keeps_order(moved, shape):
        return None
    same, back = tuple(range(len(moved))), inverse(moved)
    return (back, same) if region.side(value) == 0 else (same, back)


def keeps_order(perm: Perm, shape: Sequence[Dim]) -> bool:
    """Whether the axes that may be longer than 1 stay in order.

    Args:
        perm: a permutation.
        shape: of what it permutes.
    """
    long = [axis for axis in perm if shape[axis] != 1]
    return long == sorted(long)


def _take(region: Region, node: Node, value: Value) -> list[Value]:
    """Take in an operator that reads a value or makes it, and what it reads and makes."""
    if node.op not in FORMS:
        return []
    side, moved = region.side(value), region.moved(value)
    backward = value.producer is node
    if not backward and value not in moving_inputs(node, len(moved)):
        return []
    found = _forms_around(node, moved)
    if isinstance(found, Mismatch):
        if not backward:  # its inputs may be reached from elsewhere yet
            region.declined[node] = found
        return []
    forms = {v: (same, form) if side == 0 else (form, same) for v, (same, form) in found.items()}
    if forms.get(value) != region.forms[value]:
        return []  # the other way round it has another permutation
    if any(region.forms.get(v, form) != form for v, form in forms.items()):
        region.declined[node] = Mismatch("its operands would need different permutations")
        return []
    region.home[node], region.moves[node] = side, moved
    new = [v for v in forms if v not in region.forms]
    region.forms.update(forms)
    return new


def _forms_around(node: Node, moved: Perm) -> dict[Value, tuple[Perm, Perm]] | Mismatch:
    """The identity and the other form of what an operator reads and makes, when it reads permuted inputs.

    Args:
        node: the operator.
        moved: by what its inputs are permuted.
    """
    sources = {v: v for v in moving_inputs(node, len(moved))}
    if not sources or any(v.rank is not None and v.rank != len(moved) for v in sources):
        return Mismatch("the rank of its operands is not known to be {}", len(moved))
    found = permuted(node, sources, inverse(moved))
    if isinstance(found, Mismatch):
        return found
    for array in found.inputs if node.graph.opset() < _ALL_TYPES_SINCE else ():
        if isinstance(array, np.ndarray):
            try:
                check_constant(node.graph, Tensor.from_array(array))
            except Decline as declined:
                return Mismatch(*declined.args)
    after = inverse(found.perm)
    forms = {v: (tuple(range(len(moved))), moved) for v in sources}
    if not is_identity(after):
        forms |= {v: (tuple(range(len(after))), after) for v in node.outputs if v is not None}
    return forms
