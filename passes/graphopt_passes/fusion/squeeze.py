"""Squeezes and unsqueezes that meet their like."""

from __future__ import annotations

from itertools import count
from typing import ClassVar

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by
from graphopt_passes.fusion.axes import absolute, read_axes, write_with_axes


def _pair(node: Node) -> tuple[Node, Value] | Mismatch | None:
    """The node of the same operator above, and what that reads."""
    value = node.input(0)
    first = made_by(value, node.op)
    if value is None or first is None:
        return None
    if first.graph is not node.graph:
        return Mismatch("{} is computed in an outer graph", value.name)
    x = first.input(0)
    return (first, x) if x is not None else None


class FuseConsecutiveSqueezes(OpRule):
    """Join two `Squeeze` into one.

    The first one stays for its other readers, where it has any.
    """

    name = "fuse_consecutive_squeezes"
    ops = ("Squeeze",)
    peers: ClassVar[dict[str, str]] = {"onnxoptimizer": "fuse_consecutive_squeezes"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Count the second axes among those that the first leaves."""
        found = _pair(node)
        if not isinstance(found, tuple):
            return found
        first, x = found
        one, two = read_axes(first), read_axes(node)
        for axes in (one, two):
            if isinstance(axes, Mismatch):
                return axes
            if axes is None:
                return Mismatch("no axes are given: what has size 1 is squeezed")
        assert isinstance(one, tuple)
        assert isinstance(two, tuple)
        outer = absolute(one, x.rank)
        inner = absolute(two, x.rank - len(one) if x.rank is not None else None)
        if outer is None or inner is None:
            return Mismatch("the rank of {} is not known", x.name)
        left = (axis for axis in count() if axis not in outer)
        kept = [axis for _, axis in zip(range(max(inner, default=-1) + 1), left, strict=False)]
        joined = (*outer, *(kept[axis] for axis in inner))
        return rw.replace(node, [write_with_axes(rw, "Squeeze", x, joined, 13)])


class FuseConsecutiveUnsqueezes(OpRule):
    """Join two `Unsqueeze` into one.

    The first one stays for its other readers, where it has any.
    """

    name = "fuse_consecutive_unsqueezes"
    ops = ("Unsqueeze",)
    peers: ClassVar[dict[str, str]] = {
        "onnxoptimizer": "fuse_consecutive_unsqueezes",
        "onnxscript": "UnsqueezeUnsqueeze",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Move the first axes to where the second leave room."""
        found = _pair(node)
        if not isinstance(found, tuple):
            return found
        first, x = found
        one, two = read_axes(first), read_axes(node)
        for axes in (one, two):
            if not isinstance(axes, tuple):
                return axes
        assert isinstance(one, tuple)
        assert isinstance(two, tuple)
        middle = x.rank + len(one) if x.rank is not None else None
        inner = absolute(one, middle)
        outer = absolute(two, middle + len(two) if middle is not None else None)
        if inner is None or outer is None:
            return Mismatch("the rank of {} is not known", x.name)
        free = (axis for axis in count() if axis not in outer)
        slots = [axis for _, axis in zip(range(max(inner, default=-1) + 1), free, strict=False)]
        joined = (*outer, *(slots[axis] for axis in inner))
        return rw.replace(node, [write_with_axes(rw, "Unsqueeze", x, joined, 13)])
