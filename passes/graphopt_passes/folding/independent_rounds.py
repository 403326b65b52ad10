"""Scans whose iterations are independent, vectorized."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from graphopt.ir import Node, Value
from graphopt.ir.forms import BROADCASTING
from graphopt.operators import Transpose, Unsqueeze
from graphopt.operators.carried import Carried, Scan
from graphopt.operators.reduce import REDUCTIONS, Reduction
from graphopt.operators.transpose import is_identity
from graphopt.rewrite import Decline, Numerics, OpRule, Outcome, Rewriter
from graphopt.rewrite.inline import check_effects, constants_of, replace_by
from graphopt_passes.elementwise import UNARY

_MOST_ELEMENTS = 1 << 22
"""Most elements of a value of all iterations together."""

_MOST_PER_ROW = 1 << 16
"""The same limit for the product of the known sizes, if a size such as the batch is open."""

_SUMS = REDUCTIONS - {"ReduceMax", "ReduceMin"}
"""Reductions whose result depends on the position of the axis by rounding only; extrema skip NaN along some axes."""

_COMPUTED = frozenset(BROADCASTING) | frozenset(UNARY) | _SUMS | {"Identity"}


class EliminateScanOfIndependentRounds(OpRule):
    """Replace a `Scan` without loop-carried states with its body, computed for all iterations at once.

    The body must consist of elementwise operators and reductions; the scanned axis becomes the last axis of every value
    that depends on it, so that operators broadcast along it, and reductions vectorize along it. An iteration costs
    about 1.9 us in the runtime. Values of the body then exist for all iterations, which limits their elements, even
    more if a size is open. `eliminate_loop_invariant_state` removes states that are only passed on.

    Distances of one row of 8 numbers to 200 others take 15 us instead of 378, of 40 rows 74 us instead of 573.
    """

    # No pattern: the body is any number of operators.
    ops = ("Scan",)
    opsets = "9-"
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Write the body once, with an additional axis."""
        loop = Carried.of(node)
        if loop.states:
            raise Decline("a state is carried from one iteration to the next")
        scan = Scan.of(loop)
        if len({*scan.backwards, *scan.out_backwards}) > 1:
            raise Decline("not all inputs and outputs are scanned in one direction")
        if scan.length < 2:
            raise Decline("there are {} iterations, expected 2 or more", scan.length)
        check_effects(node, loop.body)
        rounds = _Rounds(loop, scan, rw)
        for inner in loop.body:
            if inner.op != "Constant" and any(value and value.uses for value in inner.outputs):
                rounds.add(inner)
        results = [rounds.stacked(value, axis) for value, axis in zip(loop.after, scan.out_axes, strict=True)]
        return replace_by(rw, node, results[: len(node.outputs)], f"{scan.length} rounds at once")


class _Rounds:
    """The values of a body in all iterations.

    Attributes:
        rw: the gate.
        body: the body.
        length: number of iterations.
        same: loop-invariant values of the body: constants, and results computed from invariant values only. Captured
            values are invariant too.
        all: the other values, with the iterations along the last axis.
    """

    def __init__(self, loop: Carried, scan: Scan, rw: Rewriter) -> None:
        self.rw = rw
        self.body, self.length = loop.body, scan.length
        self.same = {value: made for value, made in constants_of(rw, loop.body).items() if made is not None}
        self.all: dict[Value, Value] = {}
        for inner, value, axis in zip(loop.body.inputs, scan.scanned, scan.axes, strict=True):
            rank = len(value.dims())
            self.all[inner] = self._moved(value, (*(k for k in range(rank) if k != axis), axis))

    def add(self, node: Node) -> None:
        """Write a node of the body for all iterations.

        Raises:
            Decline: it is no elementwise operator or reduction, or its result would take too much memory.
        """
        if node.op not in _COMPUTED or len(node.outputs) != 1:
            raise Decline("{} cannot be computed for all iterations at once", node.op)
        if self.all.keys().isdisjoint(node.operands):
            inputs = [value and self._same(value) for value in node.inputs]
            self.same[node.result] = self.rw.again(node, *inputs)
        elif node.op in _SUMS:
            self._keep(node, replace(Reduction.of(node), x=self.all[node.operand(0)]).write(self.rw))
        else:
            inputs = [value and self._operand(value, node) for value in node.inputs]
            self._keep(node, self.rw.again(node, *inputs))

    def stacked(self, value: Value, axis: int) -> Value | None:
        """An output of the body in all iterations, stacked along `axis`."""
        found = self.all.get(value)
        if found is None:
            raise Decline("{} is the same in every iteration", value.name)
        before = range(len(value.dims()))
        return self._moved(found, (*before[:axis], len(before), *before[axis:]))

    def _moved(self, value: Value, perm: tuple[int, ...]) -> Value:
        return value if is_identity(perm) else Transpose(value, perm).write(self.rw)

    def _same(self, value: Value) -> Value:
        found = self.same.get(value, value)
        if found.graph is self.body:
            raise Decline("{} is defined inside of the body", value.name)
        return found

    def _operand(self, value: Value, node: Node) -> Value:
        """An operand in the form that broadcasts against values with the iterations along the last axis."""
        if value in self.all:
            if node.op in UNARY and value in node.inputs[1:]:
                raise Decline("{} has a parameter that varies between iterations", node.op)
            return self.all[value]
        found = self._same(value)
        rank = len(value.dims()) if node.op in BROADCASTING else 0
        return Unsqueeze(found, (rank,)).write(self.rw) if rank else found

    def _keep(self, node: Node, value: Value) -> None:
        dims = (*node.result.dims(), self.length)
        sizes = [dim for dim in dims if isinstance(dim, int)]
        most = _MOST_ELEMENTS if len(sizes) == len(dims) else _MOST_PER_ROW
        if prod(sizes) > most:
            raise Decline("{} of all iterations would have {} elements or more", node.result.name, prod(sizes))
        self.all[node.result] = value
