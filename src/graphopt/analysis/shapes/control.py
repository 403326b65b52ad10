"""Shapes through control flow: branches are joined, loops are iterated to a fixpoint."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.analysis.kernels import Array, Unsupported
from graphopt.analysis.kernels.base import normal_axis
from graphopt.analysis.shapes.data import same_contents
from graphopt.analysis.shapes.dim import Expr, Size, at_least
from graphopt.analysis.shapes.engine import Rule, Shape, ShapeAnalysis
from graphopt.ir import Node, TensorType, Value

_ROUNDS = 4
"""Most visits of a loop body before its state counts as unknown."""

_MAX_DEPTH = 2
"""Loops nested deeper than this are visited once, with unknown state: visits multiply."""

Shapes = list[Shape | None]


def _if(analysis: ShapeAnalysis, node: Node) -> Shapes:
    branches = [node.subgraphs["then_branch"], node.subgraphs["else_branch"]]
    for branch in branches:
        analysis.visit(branch)
    condition = analysis.truth(node.input(0))
    if condition is not None:
        branches = [branches[0 if condition else 1]]
    results = [[analysis.shape(value) for value in branch.outputs] for branch in branches]
    if len(results) == 1:
        return results[0]
    return [_join(analysis, a, b) for a, b in zip(*results, strict=True)]


def _if_data(analysis: ShapeAnalysis, node: Node) -> list[Array | None]:
    branches = [node.subgraphs["then_branch"], node.subgraphs["else_branch"]]
    condition = analysis.truth(node.input(0))
    contents = [[analysis.data(value) for value in branch.outputs] for branch in branches]
    if condition is not None:
        return contents[0 if condition else 1]
    pairs = zip(*contents, strict=True)
    return [a if same_contents(a, b) else None for a, b in pairs]


def _join(analysis: ShapeAnalysis, a: Shape | None, b: Shape | None) -> Shape | None:
    """The least upper bound of two shapes: the sizes that they share, fresh symbols for others."""
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(x if x == y else analysis.fresh() for x, y in zip(a, b, strict=True))


class _State:
    """The known shapes of loop-carried values, which every iteration must preserve."""

    def __init__(self, analysis: ShapeAnalysis, shapes: Shapes) -> None:
        self.analysis = analysis
        self.shapes = list(shapes)
        self.varying: set[tuple[int, int]] = set()

    def weaken(self, after: Sequence[Shape | None]) -> bool:
        """Drop what an iteration does not preserve. Returns whether anything was dropped."""
        changed = False
        for number, (before, behind) in enumerate(zip(self.shapes, after, strict=True)):
            if before is None:
                continue
            if behind is None or len(behind) != len(before):
                self.shapes[number] = None
                changed = True
                continue
            dims = list(before)
            for axis, (x, y) in enumerate(zip(before, behind, strict=True)):
                if x != y and (number, axis) not in self.varying:
                    self.varying.add((number, axis))
                    dims[axis] = self.analysis.fresh()
                    changed = True
            self.shapes[number] = tuple(dims)
        return changed

    def give_up(self) -> None:
        """Drop all shapes."""
        self.shapes = [None] * len(self.shapes)

    def final(self) -> Shapes:
        """The shapes after the last iteration: a dimension that varies gets a fresh symbol."""
        return [
            None if shape is None else tuple(
                self.analysis.fresh() if (number, axis) in self.varying else dim for axis, dim in enumerate(shape)
            )
            for number, shape in enumerate(self.shapes)
        ]  # fmt: skip


def _settle(
    analysis: ShapeAnalysis, state: _State, fixed: dict[Value, Shape | None],
    carried: Sequence[Value], results: Sequence[Value],
) -> None:  # fmt: skip
    """Visit a body until the shapes of its carried inputs hold for its results too."""
    body = next(iter(fixed)).graph if fixed else carried[0].graph
    if analysis.depth >= _MAX_DEPTH:
        state.give_up()
    analysis.depth += 1
    try:
        for number in range(_ROUNDS + 1):
            if number == _ROUNDS:
                state.give_up()
            for value, shape in (*fixed.items(), *zip(carried, state.shapes, strict=True)):
                analysis.set_shape(value, shape)
            analysis.visit(body)
            if not state.weaken([analysis.shape(value) for value in results]):
                return
    finally:
        analysis.depth -= 1


def _loop(analysis: ShapeAnalysis, node: Node) -> Shapes:
    body = node.subgraphs["body"]
    initial = [analysis.shape(v) if v is not None else None for v in node.inputs[2:]]
    count = len(initial)
    if len(body.inputs) != count + 2 or len(body.outputs) <= count:
        raise Unsupported("the body does not fit")
    mark = analysis.symbols.count
    state = _State(analysis, initial)
    fixed: dict[Value, Shape | None] = {value: _scalar_or_vector(value) for value in body.inputs[:2]}
    _settle(analysis, state, fixed, body.inputs[2:], body.outputs[1 : count + 1])
    runs = _runs_at_least_once(analysis, node)
    collected = [_collected(analysis, value, mark, runs) for value in body.outputs[count + 1 :]]
    return state.final() + collected


def _scalar_or_vector(value: Value) -> Shape:
    """The shape of a counter or condition: the runtime passes a one-element vector if the body declares one."""
    declared = value.declared
    is_vector = isinstance(declared, TensorType) and declared.rank == 1
    return (1,) if is_vector else ()


def _runs_at_least_once(analysis: ShapeAnalysis, node: Node) -> bool:
    trips = analysis.sizes(node.input(0)) if node.input(0) is not None else [1]
    starts = node.input(1) is None or analysis.truth(node.input(1)) is True
    return starts and bool(trips) and trips is not None and at_least(trips[0], 1)


def _collected(analysis: ShapeAnalysis, value: Value, mark: int, runs: bool) -> Shape | None:
    """The shape of a result that is stacked over an unknown number of iterations."""
    shape = analysis.shape(value)
    if shape is None or not runs:
        # Without an iteration the runtime guesses the other dimensions.
        return None if shape is None else tuple(analysis.fresh() for _ in range(len(shape) + 1))
    return analysis.fresh(), *_outer(analysis, shape, mark)


def _outer(analysis: ShapeAnalysis, shape: Shape, mark: int) -> Shape:
    """A shape with fresh symbols in place of those that are valid within one iteration only."""
    return tuple(dim if _is_outer(dim, mark) else analysis.fresh() for dim in shape)


def _is_outer(dim: Size, mark: int) -> bool:
    return not isinstance(dim, Expr) or all(atom.serial <= mark for product, _ in dim.terms for atom in product)


def _scan(analysis: ShapeAnalysis, node: Node) -> Shapes:
    body = node.subgraphs["body"]
    scanned = node.attr("num_scan_inputs")
    if node.graph.opset() < 9 or len(body.inputs) != len(node.inputs):
        raise Unsupported("the batched form of opset 8")
    count = len(node.inputs) - scanned
    axes = node.attr("scan_input_axes") or (0,) * scanned
    mark = analysis.symbols.count
    state = _State(analysis, [analysis.need(node, i) for i in range(count)])
    fixed: dict[Value, Shape | None] = {}
    length: Size | None = None
    for number, value in enumerate(body.inputs[count:]):
        shape = analysis.need(node, count + number)
        axis = normal_axis(axes[number], len(shape))
        fixed[value] = shape[:axis] + shape[axis + 1 :]
        length = shape[axis] if length is None or isinstance(shape[axis], int) else length
    _settle(analysis, state, fixed, body.inputs[:count], body.outputs[:count])
    return state.final() + _scan_outputs(analysis, node, body.outputs[count:], length, mark)


def _scan_outputs(
    analysis: ShapeAnalysis, node: Node, values: Sequence[Value], length: Size | None, mark: int
) -> Shapes:
    axes = node.attr("scan_output_axes") or (0,) * len(values)
    results: Shapes = []
    for value, axis in zip(values, axes, strict=True):
        shape = analysis.shape(value)
        if shape is None or length is None:
            results.append(None)
            continue
        known = _outer(analysis, shape, mark) if at_least(length, 1) else tuple(analysis.fresh() for _ in shape)
        at = normal_axis(axis, len(shape) + 1)
        results.append((*known[:at], length, *known[at:]))
    return results


RULES: dict[str, Rule] = {"If": _if, "Loop": _loop, "Scan": _scan}
DATA = {"If": _if_data}
