"""Values stacked along a new axis that a reshape merges with the axis after it."""

from __future__ import annotations

from graphopt.ir import Dim
from graphopt.operators.concat import Concat
from graphopt.rewrite import Decline, Node, OpRule, Outcome, Rewriter, Value
from graphopt_passes.fusion.reshapes import RESHAPES

Dims = tuple[Dim, ...]


class FuseStackIntoConcat(OpRule):
    """Concatenate values along an axis, instead of stacking them before that axis and merging both by a reshape.

    `torch.stack(values, -2).flatten(-2)` is `torch.cat(values, -1)`: deformable attention joins the samples of its
    levels like this. All sizes but that of the axis must be known to be the same before and after.
    """

    # No pattern: there may be any number of values.
    ops = ("Flatten", "Reshape")
    sources = ("Concat",)
    opsets = "5-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        joined = node.operand(0).sole_source("Concat", reader=node)
        concat, dims = Concat.of(joined), node.result.dims()
        if concat.axis >= len(dims):
            raise Decline
        before, behind = dims[: concat.axis], dims[concat.axis + 1 :]
        values = [_unstacked(part, before, behind, joined, rw) for part in concat.parts]
        if isinstance(dims[concat.axis], int) and not all(isinstance(each.dims()[concat.axis], int) for each in values):
            raise Decline("only the Reshape states size {} of {}", dims[concat.axis], node.result.name)
        return rw.replace(node, [rw.op("Concat", *values, axis=concat.axis)])


def _unstacked(part: Value, before: Dims, behind: Dims, reader: Node, rw: Rewriter) -> Value:
    """A part without the stacked axis of size 1, if its other sizes are those of the result."""
    axis, stacked = len(before), part.dims()
    if len(stacked) != axis + len(behind) + 2 or stacked[axis] != 1:
        raise Decline
    wanted = (*before, stacked[axis + 1], *behind)
    array = part.const()
    if array is not None:
        value = rw.constant(array.squeeze(axis), like=part)
    else:
        value = part.source(*RESHAPES, reader=reader).operand(0)
    if None in wanted or (*stacked[:axis], *stacked[axis + 1 :]) != wanted or value.dims() != wanted:
        raise Decline("{} is not known to have the sizes of {}", value.name, reader.result.name)
    return value
