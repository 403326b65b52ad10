"""Parts of a `Split` whose axis is removed."""

from __future__ import annotations

import numpy as np

from graphopt.operators import Gather, Split, Squeeze
from graphopt.rewrite import Decline, Node, OpRule, Outcome, Rewriter, Value
from graphopt_passes.fusion.reshapes import RESHAPES
from graphopt_passes.fusion.selections import runs_along


class ConvertSplitToGathers(OpRule):
    """Replace a `Split` into parts of size 1, and the `Squeeze` of each part, with one `Gather` per part.

    PyTorch's exporter writes `unbind` as `Split` and `Squeeze`, for queries, keys and values of most vision
    transformers. Many short runs are left to `Split`, which copies them faster.
    """

    # No pattern: there are any number of parts.
    ops = ("Split",)
    opsets = "2-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        split = Split.of(node)
        if len(split.sizes) < 2 or set(split.sizes) != {1}:
            raise Decline
        readers = [
            (position, user)
            for position, part in enumerate(node.outputs)
            if part is not None
            for user in _squeezes(part, split)
        ]
        runs, run, fast = runs_along(split.x, split.axis)
        if not fast:
            raise Decline("{} contiguous runs of {} elements are split faster", runs, run)
        slices = [Gather(split.x, split.axis, np.array(position)).write(rw) for position, _ in readers]
        return rw.replace_all([(user, [value]) for (_, user), value in zip(readers, slices, strict=True)], anchor=node)


def _squeezes(part: Value, split: Split) -> tuple[Node, ...]:
    """The readers of a part; declines unless each of them removes the axis and no other."""
    if part.output_count:
        raise Decline("{} is a graph output", part.name)
    for user in part.users:
        if user.op != "Squeeze":
            raise Decline("{} is read by {}", part.name, user.op)
        if user.graph is not part.graph:
            raise Decline("{} is read in another graph", part.name)
        if Squeeze.of(user).axes != (split.axis,):
            raise Decline("{} is squeezed along more than axis {}", part.name, split.axis)
        if any(reader.op in RESHAPES for reader in user.result.users):
            raise Decline("{} is reshaped again", user.result.name)
    return tuple(part.users)
