"""Layout of a graph drawing: layers from the inputs down, with few crossings."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH, HEIGHT = 150.0, 46.0
"""Distances between neighbours in a layer and between layers."""

_SWEEPS = 4


def positions(count: int, edges: Sequence[tuple[int, int]]) -> list[tuple[float, float]]:
    """Coordinates of the nodes of an acyclic graph.

    Args:
        count: number of nodes, numbered so that edges go from lower to higher numbers.
        edges: pairs of node numbers.

    Returns:
        The centre of each node.
    """
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        above[target].append(source)
        below[source].append(target)
    layers = _layers(count, above, below)
    xs = [0.0] * count
    for layer in layers:
        for place, node in enumerate(layer):
            xs[node] = (place - (len(layer) - 1) / 2) * WIDTH
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        for layer in layers if downwards else reversed(layers):
            _settle(layer, above if downwards else below, xs)
    ys = [0.0] * count
    for depth, layer in enumerate(layers):
        for node in layer:
            ys[node] = depth * HEIGHT
    return list(zip(xs, ys, strict=True))


def _layers(count: int, above: list[list[int]], below: list[list[int]]) -> list[list[int]]:
    """Layers of nodes, each as near above its first reader as possible: constant subexpressions are at their use."""
    depth = [0] * count
    for node in range(count):
        depth[node] = max((depth[each] + 1 for each in above[node]), default=0)
    for node in reversed(range(count)):
        if below[node]:
            depth[node] = min(depth[each] for each in below[node]) - 1
    layers: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for node in range(count):
        layers[depth[node]].append(node)
    return layers


def _settle(layer: list[int], neighbours: list[list[int]], xs: list[float]) -> None:
    """Move the nodes of a layer towards the mean of their neighbours, and apart if they would overlap."""
    wish = {n: sum(xs[e] for e in neighbours[n]) / len(neighbours[n]) if neighbours[n] else xs[n] for n in layer}
    layer.sort(key=lambda node: wish[node])
    placed: list[float] = []
    for node in layer:
        placed.append(max(wish[node], placed[-1] + WIDTH) if placed else wish[node])
    # Nodes are only pushed to the right; the whole layer is then shifted back by the mean displacement.
    shift = sum(at - wish[node] for at, node in zip(placed, layer, strict=True)) / len(layer) if layer else 0.0
    for at, node in zip(placed, layer, strict=True):
        xs[node] = at - shift
