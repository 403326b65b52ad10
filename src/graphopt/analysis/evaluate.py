"""Evaluation of constant regions ahead of time, with the cost known in advance.

`plan` finds the nodes of a graph whose inputs are all constant and decides, from shapes only, which of their results
may be stored. `evaluate` computes them: by NumPy for data movement, integers, and floating-point operations that IEEE
754 rounds correctly; by one ONNX Runtime session, with its optimizations off, for all others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from graphopt.analysis.budget import SMALL
from graphopt.analysis.kernels import KERNELS, Array, Unsupported, run_kernel
from graphopt.analysis.plan import ConstantRegion, Policy, plan
from graphopt.analysis.runtime import run
from graphopt.errors import Decline, ModelError
from graphopt.ir import Node, Tensor, Value
from graphopt.ir.slices import is_mapped

_IEEE: dict[str, np.ufunc] = {
    "Abs": np.abs, "Add": np.add, "Ceil": np.ceil, "Div": np.divide, "Floor": np.floor, "Mul": np.multiply,
    "Neg": np.negative, "Sqrt": np.sqrt, "Sub": np.subtract,
}  # fmt: skip
"""Operations whose results IEEE 754 defines bit for bit, so that NumPy and a runtime agree."""


def evaluate(region: ConstantRegion) -> dict[Value, Tensor]:
    """Compute a region.

    Args:
        region: the result of `plan`; nodes that cannot be computed are added to its `declined`, with the reason.

    Returns:
        The results of the region's roots, as far as they could be computed.
    """
    return _Evaluation(region).run()


class _Evaluation:
    def __init__(self, region: ConstantRegion) -> None:
        self.region = region
        self.known: dict[Value, Tensor] = {}
        self.keep = {v for node in region.roots for v in node.outputs if v is not None}
        self.readers = dict.fromkeys(self.keep, 1)
        for node in region.nodes:
            for value in node.inputs:
                if value is not None and value.producer is not None:
                    self.readers[value] = self.readers.get(value, 0) + 1

    def run(self) -> dict[Value, Tensor]:
        left = self.region.nodes
        while left:
            left = self._numpy_round(left)
            batch, later = self._runtime_batch(left)
            if batch:
                self._runtime(batch)
            elif len(later) == len(left):
                self.region.declined.update(dict.fromkeys(later, Decline("it cannot be computed")))
                break
            left = later
        return {value: tensor for value, tensor in self.known.items() if value in self.keep}

    def _numpy_round(self, nodes: list[Node]) -> list[Node]:
        """Compute the nodes that NumPy can; returns the others."""
        left: list[Node] = []
        waiting: set[Node] = set()
        for node in nodes:
            if self._lacks_input(node):
                continue
            blocked = any(v is not None and v.producer in waiting for v in node.inputs)
            if blocked or not self._by_numpy(node):
                left.append(node)
                waiting.add(node)
        return left

    def _runtime_batch(self, nodes: list[Node]) -> tuple[list[Node], list[Node]]:
        """Nodes that the runtime can compute together, and nodes that depend on their results."""
        batch: list[Node] = []
        later: list[Node] = []
        waiting: set[Node] = set()
        for node in nodes:
            blocked = any(v is not None and v.producer in waiting for v in node.inputs)
            if not blocked and node in self.region.no_runtime and all(self._operand(v) for v in node.inputs if v):
                # NumPy was tried before, and failed.
                self.region.declined.setdefault(node, Decline("it cannot be computed safely"))
                waiting.add(node)
            elif blocked or node in self.region.no_runtime:
                later.append(node)
                waiting.add(node)
            else:
                batch.append(node)
        return batch, later

    def _by_numpy(self, node: Node) -> bool:
        try:
            tensors = [None if value is None else self._operand(value) for value in node.inputs]
            if node.op not in _IEEE and node.op not in KERNELS:
                raise Unsupported(f"{node.op} has no NumPy kernel")  # before any operand is read
            arrays = [None if tensor is None else tensor.array() for tensor in tensors]
            results = _ieee(node, arrays) or _clipped(node, arrays) or run_kernel(node, arrays)
        except (Unsupported, ModelError) as error:
            if node in self.region.no_runtime:
                self.region.declined[node] = Decline("it cannot be computed ({})", str(error))
                return True
            return False
        for value, array in zip(node.outputs, results, strict=False):
            if value is not None:
                self.known[value] = Tensor.from_array(_released(array), _result_type(value, array))
        self._forget(node)
        return True

    def _runtime(self, nodes: Sequence[Node]) -> None:
        """Run one session for all nodes; if it fails, one for each half."""
        nodes = [node for node in nodes if not self._lacks_input(node)]
        inside = set(nodes)
        wanted = [
            v for node in nodes for v in node.outputs
            if v is not None and (v in self.keep or any(u not in inside for u in v.users))
        ]  # fmt: skip
        operands = {v: t for node in nodes for v in node.inputs if v is not None and (t := self._operand(v))}
        if not wanted:
            return
        try:
            self.known.update(run(nodes, wanted, operands))
        except Exception as error:  # of many types: no kernel, bad input, out of memory
            if len(nodes) == 1:
                self.region.declined[nodes[0]] = Decline("it cannot be computed ({})", type(error).__name__)
                return
            self._runtime(nodes[: len(nodes) // 2])
            self._runtime(nodes[len(nodes) // 2 :])
            return
        for node in nodes:
            self._forget(node)

    def _lacks_input(self, node: Node) -> bool:
        """Whether an input could not be computed; then neither can the node."""
        declined = self.region.declined
        lacks = any(v is not None and v.producer in declined for v in node.inputs)
        if lacks:
            declined[node] = Decline("an input could not be computed")
        return lacks

    def _operand(self, value: Value) -> Tensor | None:
        return self.known.get(value) or value.constant_tensor

    def _forget(self, node: Node) -> None:
        """Release operands without further readers."""
        for value in node.inputs:
            if value in self.readers:
                self.readers[value] -= 1
                if not self.readers[value]:
                    self.known.pop(value, None)


def _released(array: Array) -> Array:
    """The array, or a copy if it is a small view that would keep a larger array in memory."""
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    return array.copy() if base.nbytes > 2 * array.nbytes and not is_mapped(base) else array


def _result_type(value: Value, array: Array) -> int | None:
    """The ONNX type of a result if NumPy's type does not determine it, as for strings stored as objects."""
    if array.dtype.kind == "O":
        return int(TensorProto.STRING)
    return value.dtype


def _ieee(node: Node, arrays: list[Array | None]) -> list[Array] | None:
    function = _IEEE.get(node.op)
    if function is None or node.graph.opset() < 7:
        return None
    operands = [a for a in arrays if a is not None]
    if len(operands) != len(arrays) or len(arrays) != function.nin:
        return None
    if len({a.dtype for a in operands}) != 1 or operands[0].dtype not in (np.float32, np.float64):
        return None
    try:
        with np.errstate(all="ignore"):
            return [np.asarray(function(*operands), operands[0].dtype)]
    except ValueError as error:
        raise Unsupported(str(error)) from error


def _clipped(node: Node, arrays: list[Array | None]) -> list[Array] | None:
    """The result of a `Clip` of floats if all runtimes agree: for finite ones, without zeros of both signs."""
    data, *limits = arrays if node.op == "Clip" and node.graph.opset() >= 11 else [None]
    present = [limit for limit in limits if limit is not None]
    if data is None or data.dtype not in (np.float32, np.float64) or any(each.size != 1 for each in present):
        return None
    if any(each.dtype != data.dtype or not np.isfinite(each).all() for each in (data, *present)):
        return None
    zeros = [np.signbit(each[each == 0]) for each in (data, *present)]
    if len({*np.concatenate(zeros).tolist()}) > 1:
        return None
    for limit, function in zip(limits, (np.maximum, np.minimum), strict=False):
        data = data if limit is None else function(data, limit.reshape(()))
    return [np.asarray(data)]


__all__ = ["SMALL", "ConstantRegion", "Policy", "evaluate", "plan"]
