"""The cheapest way to divide things in two, by maximum flow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, TypeVar

from graphopt.ir import Node, Value

INFINITE = 1e18


class MinimumCut:
    """Things are on the source side or the sink side; each pair has a price for being divided.

    `solve` finds a division of least total price (Dinic's algorithm), and of these the one with the smallest
    source side.
    """

    SOURCE = 0
    SINK = 1

    def __init__(self) -> None:
        self._edges: list[list[int]] = [[], []]
        self._to: list[int] = []
        self._room: list[float] = []

    def thing(self) -> int:
        self._edges.append([])
        return len(self._edges) - 1

    def price(self, a: int, b: int, amount: float) -> None:
        """Demand `amount` if `a` is on the source side and `b` on the sink side."""
        if amount <= 0:
            return
        edge = len(self._to)
        self._edges[a].append(edge)
        self._edges[b].append(edge + 1)
        self._to += (b, a)
        self._room += (amount, 0.0)

    def solve(self) -> set[int]:
        self._push_straight()
        while True:
            depth = self._depths()
            if depth[self.SINK] < 0:
                return {node for node, steps in enumerate(depth) if steps >= 0}
            self._push(depth)

    @property
    def cost(self) -> float:
        """The price of the division that `solve` found."""
        return sum(self._room[edge ^ 1] for edge in self._edges[self.SOURCE] if edge % 2 == 0)  # others lead to it

    def _push_straight(self) -> None:
        """Push the flow over single things, which is most of it."""
        to, room = self._to, self._room
        for edge in self._edges[self.SOURCE]:
            for behind in self._edges[to[edge]]:
                if to[behind] == self.SINK:
                    amount = min(room[edge], room[behind])
                    room[edge] -= amount
                    room[edge ^ 1] += amount
                    room[behind] -= amount
                    room[behind ^ 1] += amount

    def _depths(self) -> list[int]:
        """Steps from the source over edges with room; -1 for what is not reached."""
        edges, to, room = self._edges, self._to, self._room
        depth = [-1] * len(edges)
        depth[self.SOURCE] = 0
        level, steps = [self.SOURCE], 0
        while level and depth[self.SINK] < 0:
            steps += 1
            following = []
            for node in level:
                for edge in edges[node]:
                    if room[edge] > _EPSILON:
                        head = to[edge]
                        if depth[head] < 0:
                            depth[head] = steps
                            following.append(head)
            level = following
        return depth

    def _push(self, depth: list[int]) -> None:
        """Push flow along the shortest paths until each of them is full somewhere."""
        edges, to, room = self._edges, self._to, self._room
        at, ends = [0] * len(edges), [*map(len, edges)]
        path: list[int] = []
        node = self.SOURCE
        while True:
            if node == self.SINK:
                node = self._fill(path)
            following, wanted = edges[node], depth[node] + 1
            for number in range(at[node], ends[node]):
                edge = following[number]
                if depth[to[edge]] == wanted and room[edge] > _EPSILON:
                    at[node] = number
                    path.append(edge)
                    node = to[edge]
                    break
            else:
                at[node] = ends[node]
                if not path:
                    return
                node = to[path.pop() ^ 1]
                at[node] += 1

    def _fill(self, path: list[int]) -> int:
        """Fill a path and cut it before its first full edge. Returns the node it ends at."""
        to, room = self._to, self._room
        amount = min([room[edge] for edge in path])
        for edge in path:
            room[edge] -= amount
            room[edge ^ 1] += amount
        full = next(at for at, edge in enumerate(path) if room[edge] <= _EPSILON)
        node = to[path[full] ^ 1]
        del path[full:]
        return node


_EPSILON = 1e-9


Places = Mapping[Node, int]
"""The thing that stands for each node."""


Reader = TypeVar("Reader", bound=Hashable)


def price_change(
    cut: MinimumCut, place: Mapping[Reader, int], amount: float, maker: int | None, readers: Collection[Reader],
    *, wanted: bool, times: int = 1,
) -> None:  # fmt: skip
    """Demand an amount for each form in which a value is read and not made; readers of one form share it.

    Args:
        cut: the cut.
        place: the thing that stands for each reader.
        amount: what it costs to bring the value from one form to the other.
        maker: the thing that makes it; None where it is only there in the form of the sink.
        readers: what reads it, nodes for the most part, in the form that is chosen for them.
        wanted: whether others read it in the form of the sink.
        times: how many times as much it costs to bring it into the form that is chosen.
    """
    if readers:
        enter = cut.thing()
        cut.price(enter, cut.SINK if maker is None else maker, amount * times)
        for reader in readers:
            cut.price(place[reader], enter, INFINITE)
    if maker is not None:
        leave = cut.thing()
        cut.price(maker, leave, amount)
        for reader in readers:
            cut.price(leave, place[reader], INFINITE)
        if wanted:
            cut.price(leave, cut.SINK, INFINITE)


def cheapest(
    forms: Mapping[Node, Any], prices: Mapping[Node, tuple[float, float]],
    price: Callable[[MinimumCut, Places, Value, int | None, list[Node]], None],
) -> tuple[set[Node], float]:  # fmt: skip
    """The nodes whose second price makes the whole cheapest, those on the source side, and what the whole costs then.

    A form says which values it reads as `operands`, and whether it `gives` results; `price` adds that of a value which
    is made, if it is, at a place, and read by nodes.
    """
    cut = MinimumCut()
    place = {node: cut.thing() for node in forms}
    for node, (first, second) in prices.items():
        cut.price(cut.SOURCE, place[node], first)
        cut.price(place[node], cut.SINK, second)
    readers: dict[Value, list[Node]] = {}
    for node, form in forms.items():
        for value in dict.fromkeys(form.operands):
            readers.setdefault(value, []).append(node)
    makers = {value: place[node] for node, form in forms.items() if form.gives for value in node.results}
    for value in dict.fromkeys([*readers, *makers]):
        price(cut, place, value, makers.get(value), readers.get(value, []))
    side = cut.solve()
    return {node for node in forms if place[node] in side}, cut.cost
