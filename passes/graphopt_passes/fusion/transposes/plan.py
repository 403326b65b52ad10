"""The choice of the operators of a region to change, so that the fewest bytes are transposed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from graphopt.ir import Node, Value
from graphopt.ir.types import element_bits, element_count
from graphopt.operators.transpose import keeps_order
from graphopt_passes.fusion.transposes.region import Region, is_absorbed
from graphopt_passes.layout.mincut import MinimumCut, price_change

_USUAL_SIZE = 16
"""The assumed size of an unknown dimension."""

_NODE, _RESHAPE = 16384.0, 4096.0
"""The cost of a `Transpose` in addition to its bytes, and the cost of one that only moves axes of size 1.

ONNX Runtime takes 0.035 to 0.09 ns a byte, whichever axes move, and about 0.8 us for a node.
"""

_INTO_CONV = frozenset({"Add", "Clip", "Div", "HardSigmoid", "LeakyRelu", "Mul", "Relu", "Sigmoid", "Sub", "Tanh"})
"""Operators that fuse into the convolution before them, arithmetic only with a constant operand."""

_MEASURING = ("Shape", "Size")

_CHANGE = 16.0
"""The cost of changing an operator, so that none is changed without a gain."""

_PIECE = 40.0
"""The cost of each row of each operand when the axis of a `Concat` becomes the last one: 2.5 ns."""


class _Tensor(NamedTuple):
    """One tensor: values that are permutations of each other.

    Operators of the region, and the two sides, are given as things of a `MinimumCut`.

    Attributes:
        made: its producer: an operator of the region, or the side on which it is available.
        read: its readers, likewise.
        price: the cost of transposing it.
        fusing: readers that fuse into the convolution that produces it, if they work on its side.
    """

    made: int
    read: tuple[int, ...]
    price: float
    fusing: tuple[int, ...]


def choose(region: Region) -> tuple[set[Node], float]:
    """The operators that should work on the other side, and the cost that saves, in bytes."""
    if not region.home:
        return set(), 0.0
    ends: dict[Node | int, int] = {0: MinimumCut.SINK, 1: MinimumCut.SOURCE}
    ends |= {node: thing for thing, node in enumerate(region.home, len(ends))}
    tensors = tuple(_tensors(region, ends))
    home = tuple([(side, _change(node, region)) for node, side in region.home.items()])
    divide = _divided if len(home) <= _FEW else _divided.__wrapped__
    source, cost = divide(home, tensors)
    changed = {node for node, side in region.home.items() if side != int(ends[node] in source)}
    sides = {ends[0]: 0, ends[1]: 1, **{ends[node]: side for node, side in region.home.items()}}
    return changed, sum(_cost(tensor, sides) for tensor in tensors) - cost


_FEW = 64
"""Regions of up to this many operators are divided once for all equal ones, as in the layers of a network."""


@lru_cache(maxsize=64)
def _divided(home: tuple[tuple[int, float], ...], tensors: tuple[_Tensor, ...]) -> tuple[frozenset[int], float]:
    """The operators for which side 1 is cheaper, as things of a cut, and the cost of the cut.

    Args:
        home: for each operator the side that it works on at present, and the cost of changing it.
        tensors: the tensors.
    """
    cut = MinimumCut()
    things = [cut.SOURCE, cut.SINK, *[cut.thing() for _ in home]]
    place = dict(enumerate(things))
    for thing, (side, change) in zip(things[2:], home, strict=True):
        _keep(cut, thing, side, change)
    for tensor in tensors:
        for thing in tensor.fusing:
            _keep(cut, thing, int(tensor.made == cut.SOURCE), tensor.price)
        price_change(cut, place, tensor.price, tensor.made, tensor.read, wanted=False)
    return frozenset(cut.solve()), cut.cost


def _keep(cut: MinimumCut, thing: int, side: int, amount: float) -> None:
    """Charge `amount` if `thing` is not on `side`."""
    if side == 0:
        cut.price(thing, MinimumCut.SINK, amount)
    else:
        cut.price(MinimumCut.SOURCE, thing, amount)


def _change(node: Node, region: Region) -> float:
    """The cost of changing an operator, not counting its transposes."""
    shape = node.result.shape
    if node.op != "Concat" or not shape:
        return _CHANGE
    perm, axis = region.moved(node.result), int(node.attr("axis", 1)) % len(shape)
    if perm[-1] != axis or axis == len(shape) - 1:
        return _CHANGE
    rows = element_count((size for at, size in enumerate(shape) if at != axis), _USUAL_SIZE)
    return _CHANGE + _PIECE * rows * len(node.inputs)


def _cost(tensor: _Tensor, sides: Mapping[int, int]) -> float:
    """The cost of a tensor for given sides: its transpose, and readers that do not fuse into its convolution."""
    made = sides[tensor.made]
    apart = any(sides[each] != made for each in tensor.read)
    return tensor.price * (apart + sum(sides[each] != made for each in tensor.fusing))


def _tensors(region: Region, ends: Mapping[Node | int, int]) -> Iterator[_Tensor]:
    """The values of a region, grouped into tensors."""
    seen: set[Value] = set()
    for value in region.forms:
        if value in seen:
            continue
        family = [value]
        seen.add(value)
        for member in family:
            near = [user.outputs[0] for user in member.users if user in region.links]
            if member.producer in region.links and member.producer is not None:
                near.append(member.producer.inputs[0])
            for other in near:
                if other is not None and other not in seen:
                    seen.add(other)
                    family.append(other)
        yield _tensor(region, family, ends)


def _tensor(region: Region, family: list[Value], ends: Mapping[Node | int, int]) -> _Tensor:
    made: Node | int = 0
    maker: Node | None = None
    read: dict[Node | int, None] = {}
    links, home = region.links, region.home
    for value in family:
        producer, side = value.producer, region.side(value)
        if producer is None or producer not in links:
            made, maker = (producer if producer is not None and producer in home else side), producer
        if value.output_count:
            read[side] = None
        for user in value.users:
            if user in home and value in region.moving_of(user, len(region.forms[value][0])):
                read[user] = None
            elif user not in links and not _is_free(user, region):
                read[side] = None
    fusing: list[Node] = []
    if maker is not None and maker.op in ("Conv", "ConvTranspose") and isinstance(made, int) and len(read) == 1:
        fusing = [node for node in read if isinstance(node, Node) and _goes_into_conv(node, family)]
    told, behind = (tuple([ends[each] for each in some]) for some in (read, fusing))
    return _Tensor(ends[made], told, _price(family[0], region), behind)


def _goes_into_conv(node: Node, family: list[Value]) -> bool:
    others = [value for value in node.operands if value not in family]
    return node.op in _INTO_CONV and all(value.is_const for value in others)


def _is_free(user: Node, region: Region) -> bool:
    """Whether a reader permutes anyway, or reads only the shape, so that it can read either form."""
    return user.graph is region.graph and (user.op in _MEASURING or (user.op == "Transpose" and not is_absorbed(user)))


def _price(value: Value, region: Region) -> float:
    shape = value.shape
    if shape is None:
        return _NODE + 4.0 * _USUAL_SIZE**4
    if keeps_order(region.moved(value), shape):
        return _RESHAPE
    return _NODE + element_count(shape, _USUAL_SIZE) * (element_bits(value.dtype or 0) or 32) / 8
