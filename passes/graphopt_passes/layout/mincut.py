"""The cheapest way to divide things in two, by maximum flow."""

from __future__ import annotations

from collections import deque

INFINITE = 1e18


class Cut:
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
        """A new thing to place."""
        self._edges.append([])
        return len(self._edges) - 1

    def price(self, a: int, b: int, amount: float) -> None:
        """Demand `amount` if `a` is on the source side and `b` on the sink side."""
        if amount <= 0:
            return
        for tail, head, room in ((a, b, amount), (b, a, 0.0)):
            self._edges[tail].append(len(self._to))
            self._to.append(head)
            self._room.append(room)

    def solve(self) -> set[int]:
        """The source side."""
        while True:
            depth = self._depths()
            if self.SINK not in depth:
                return set(depth)
            at = [0] * len(self._edges)
            while self._augment(depth, at):
                pass

    def _depths(self) -> dict[int, int]:
        depth = {self.SOURCE: 0}
        queue = deque([self.SOURCE])
        while queue:
            node = queue.popleft()
            for edge in self._edges[node]:
                head = self._to[edge]
                if self._room[edge] > _EPSILON and head not in depth:
                    depth[head] = depth[node] + 1
                    queue.append(head)
        return depth

    def _augment(self, depth: dict[int, int], at: list[int]) -> bool:
        """Push flow along one path of the level graph; False when there is none left."""
        path: list[int] = []
        node = self.SOURCE
        while node != self.SINK:
            edges = self._edges[node]
            while at[node] < len(edges):
                edge = edges[at[node]]
                head = self._to[edge]
                if self._room[edge] > _EPSILON and depth.get(head) == depth[node] + 1:
                    break
                at[node] += 1
            if at[node] < len(edges):
                path.append(edges[at[node]])
                node = self._to[edges[at[node]]]
                continue
            if not path:
                return False
            edge = path.pop()
            node = self._to[edge ^ 1]
            at[node] += 1
        amount = min(self._room[edge] for edge in path)
        for edge in path:
            self._room[edge] -= amount
            self._room[edge ^ 1] += amount
        return True


_EPSILON = 1e-9
