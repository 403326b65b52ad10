"""Minimum cuts by maximum flow: the cheapest way to divide things in two."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from itertools import count
from typing import Any, TypeVar

from graphopt.ir import Node, Value

INFINITE = 1e18


class MinimumCut:
    """A cut that puts each thing on the source side or the sink side; each pair has a price for being divided.

    `solve` finds a minimum cut (Dinic's algorithm, from both ends), and of several the one with the smallest source
    side.
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
        """Charge `amount` if `a` is on the source side and `b` on the sink side."""
        if amount <= 0:
            return
        edge = len(self._to)
        self._edges[a].append(edge)
        self._edges[b].append(edge + 1)
        self._to += (b, a)
        self._room += (amount, 0.0)

    def solve(self) -> set[int]:
        """The things on the source side.

        Flow is pushed from the source and, after a few rounds, alternately from the sink: along a chain of things that
        each have an edge of their own to the sink, or from the source, one of the two directions fills all these edges
        in one round.
        """
        self._push_straight()
        for turn in count():
            steps = self._steps(self.SOURCE)
            if steps[self.SINK] < 0:
                break
            self._push(self.SOURCE, steps)
            if turn >= _FEW:
                self._push(self.SINK, self._steps(self.SINK))
        return {node for node, number in enumerate(steps) if number >= 0}

    @property
    def cost(self) -> float:
        """The price of the cut that `solve` found."""
        return sum(self._room[edge ^ 1] for edge in self._edges[self.SOURCE] if edge % 2 == 0)  # odd ones lead to it

    def _push_straight(self) -> None:
        """Push the flow from the source over one thing to the sink, which is most of it."""
        to, room = self._to, self._room
        for edge in self._edges[self.SOURCE]:
            for behind in self._edges[to[edge]]:
                if to[behind] == self.SINK:
                    amount = min(room[edge], room[behind])
                    room[edge] -= amount
                    room[edge ^ 1] += amount
                    room[behind] -= amount
                    room[behind ^ 1] += amount

    def _steps(self, start: int) -> list[int]:
        """Distances from the source, or back from the sink, over edges with room; -1 for things not reached."""
        edges, to, room, back = self._edges, self._to, self._room, int(start == self.SINK)
        steps = [-1] * len(edges)
        steps[start] = 0
        reached = [start]
        for node in reached:  # grows during the loop
            for edge in edges[node]:
                head = to[edge]
                if steps[head] < 0 and room[edge ^ back] > _EPSILON:
                    steps[head] = steps[node] + 1
                    if head > self.SINK:
                        reached.append(head)
        return steps

    def _push(self, start: int, steps: list[int]) -> None:
        """Push flow from one end along edges that lead one step further, or to the other end, until all paths are full.

        The flow through a thing is subtracted once, when all of its edges were tried.
        """
        edges, to, room = self._edges, self._to, self._room
        back, end = int(start == self.SINK), self.SOURCE + self.SINK - start
        at, path = [0] * len(edges), list[int]()
        node, left, sent = start, [INFINITE], [0.0]
        while True:
            if node != end and left[-1] > _EPSILON:
                following, wanted = edges[node], steps[node] + 1
                for number in range(at[node], len(following)):
                    edge = following[number]
                    if room[edge ^ back] > _EPSILON and (to[edge] == end or steps[to[edge]] == wanted):
                        break
                else:
                    number = len(following)
                at[node] = number
                if number < len(following):
                    node = to[edge]
                    path.append(edge)
                    left.append(min(left[-1], room[edge ^ back]))
                    sent.append(left[-1] if node == end else 0.0)
                    continue
            if not path:
                return
            edge, amount, _ = path.pop(), sent.pop(), left.pop()
            room[edge ^ back] -= amount
            room[edge ^ back ^ 1] += amount
            is_done, node = node != end and at[node] == len(edges[node]), to[edge ^ 1]
            at[node] += is_done
            left[-1] -= amount
            sent[-1] += amount


_EPSILON = 1e-9
_FEW = 2
"""Rounds from the source alone; small graphs need no more."""


Places = Mapping[Node, int]
"""The thing that stands for each node."""


Reader = TypeVar("Reader", bound=Hashable)


def price_change(
    cut: MinimumCut, place: Mapping[Reader, int], amount: float, maker: int | None, readers: Collection[Reader],
    *, wanted: bool, times: int = 1,
) -> None:  # fmt: skip
    """Charge `amount` for each form in which a value is read and not computed; readers of one form share it.

    Args:
        cut: the cut.
        place: the thing that stands for each reader.
        amount: the cost of converting the value from one form to the other.
        maker: the thing that computes it; None if it only exists in the form of the sink.
        readers: its readers, mostly nodes, each in the form that is chosen for it.
        wanted: whether others read it in the form of the sink.
        times: how many times as much it costs to convert it to the form of the source.
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
    """The nodes to take at their second price, those on the source side, for the least total cost, and that cost.

    A form has the values that it reads as `operands`, and `gives` tells whether it has results; `price` adds the price
    of a value, given the thing that computes it, if any, and the nodes that read it.
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
