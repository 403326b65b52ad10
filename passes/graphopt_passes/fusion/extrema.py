"""Smallest and largest values that follow each other."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by, only_reader


class FuseConsecutiveMinMax(OpRule):
    """Join `Min` of `Min`, or `Max` of `Max`, into one of all their operands, the constant ones made one."""

    name = "fuse_consecutive_min_max"
    ops = ("Max", "Min")
    opsets = "8-"
    numerics = Numerics.ROUNDING  # of two zeros either may be found
    peers: ClassVar[dict[str, str]] = {"onnxscript": "FuseSuccessiveMin"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Collect the operands of an inner one."""
        for value in node.inputs:
            inner = made_by(value, node.op)
            if value is None or inner is None:
                continue
            problem = only_reader(value, node)
            if problem is not None:
                return problem
            operands: list[Value] = []
            for each in node.inputs:
                operands += [v for v in (inner.inputs if each is value else [each]) if v is not None]
            joined = _with_one_constant(operands, node.op)
            return joined if isinstance(joined, Mismatch) else rw.replace(node, [rw.op(node.op, *joined)])
        return None


def _with_one_constant(operands: list[Value], op: str) -> list[Value | np.ndarray] | Mismatch:
    """The operands with all that is constant computed ahead."""
    plain: list[Value | np.ndarray] = [v for v in dict.fromkeys(operands) if not v.is_const]
    constants = [v for v in dict.fromkeys(operands) if v.is_const]
    if len(constants) < 2:
        return [*plain, *constants]
    arrays = [array for v in constants if (array := v.const(1 << 20)) is not None]
    if len(arrays) < len(constants) or any(a.dtype.kind not in "fiu" or np.isnan(a).any() for a in arrays):
        return Mismatch("the constants are large, hold NaN or are no numbers")
    best = arrays[0]
    for array in arrays[1:]:
        try:
            best = np.minimum(best, array) if op == "Min" else np.maximum(best, array)
        except ValueError:
            return Mismatch("the constants cannot be broadcast")
    return [*plain, np.asarray(best)]
