"""Computing constant regions ahead of time, with the cost known before anything is computed.

`plan` finds the nodes of a graph whose inputs are all constant and decides, from inferred shapes alone, which of their
results may be stored. `evaluate` computes them: NumPy for data movement, integers, and floating-point operations that
IEEE 754 rounds correctly; one ONNX Runtime session, with its optimizations off, for all the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from graphopt.analysis.kernels import Unsupported, run_kernel
from graphopt.analysis.purity import why_not_fold
from graphopt.errors import ModelError
from graphopt.ir import Graph, Node, Tensor, TensorType, Value
from graphopt.ir.flush import emit
from graphopt.ir.types import element_bits

Array = np.ndarray[Any, Any]

SMALL = 1 << 16
"""Results up to this many bytes are always worth storing: shapes, scales, biases."""

_ALLOWANCE = 1 << 20
"""A graph may grow by this many bytes in all, whatever its size."""

_SHRINKING = frozenset({
    "Abs", "Cast", "Ceil", "Cos", "Erf", "Exp", "Floor", "Identity", "Log", "Neg", "Not", "Reciprocal", "Relu", "Round",
    "Sigmoid", "Sign", "Sin", "Sqrt", "Squeeze", "Tanh", "Transpose", "Unsqueeze",
})  # fmt: skip
"""Operators whose result has no more elements than their first input."""

_IEEE: dict[str, Callable[..., Any]] = {
    "Abs": np.abs, "Add": np.add, "Div": np.divide, "Mul": np.multiply, "Neg": np.negative, "Sqrt": np.sqrt,
    "Sub": np.subtract,
}  # fmt: skip
"""Operations that IEEE 754 defines to the last bit, so that NumPy and a runtime agree."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What may be stored.

    Attributes:
        max_bytes: the largest result.
        max_growth: how many times the constants that it makes superfluous a result above 64 KiB may take.
        fold_qdq: whether quantize and dequantize operators are computed too.
    """

    max_bytes: int = 1 << 28
    max_growth: float = 1.5
    fold_qdq: bool = False


@dataclass(slots=True)
class Region:
    """Nodes to compute and the results to keep.

    Attributes:
        nodes: every node to compute, in order.
        roots: those whose results are read outside of the region.
        declined: nodes with constant inputs that are left alone, with the reason.
    """

    nodes: list[Node] = field(default_factory=list)
    roots: list[Node] = field(default_factory=list)
    declined: dict[Node, str] = field(default_factory=dict)


def plan(graph: Graph, policy: Policy) -> Region:
    """What to compute of a graph; nothing is computed yet.

    Args:
        graph: the graph; types must have been inferred.
        policy: the limits.
    """
    region = Region()
    chosen: dict[Node, int] = {}
    for node in graph:
        if node.op == "Constant" or not _constant_inputs(node, chosen):
            continue
        reason = why_not_fold(node, qdq=policy.fold_qdq)
        size = None if reason is not None else _bytes(node)
        if reason is None and size is None:
            reason = "the size of its result is not known"
        elif size is not None and size > _limit(graph, policy):
            reason = f"its result has {size} bytes, more than {_limit(graph, policy)}"
        if reason is not None:
            region.declined[node] = reason
        else:
            chosen[node] = size or 0
    _keep_what_pays(graph, chosen, policy, region)
    region.nodes = _needed(chosen, region.roots)
    return region


def _limit(graph: Graph, policy: Policy) -> int:
    """A body may never run: only small results are computed in one."""
    return policy.max_bytes if graph.owner is None else SMALL


def _constant_inputs(node: Node, chosen: dict[Node, int]) -> bool:
    if not node.inputs:
        return False
    return all(v is None or v.producer in chosen or v.is_const for v in node.inputs)


def _bytes(node: Node) -> int | None:
    """Bytes of all outputs, None where inference does not tell."""
    total = 0
    for value in node.outputs:
        if value is None:
            continue
        size = value.type.nbytes if isinstance(value.type, TensorType) else None
        if size is None and node.op in _SHRINKING:
            size = _input_bytes(node, value)
        if size is None and isinstance(value.type, TensorType) and value.type.dtype == TensorProto.STRING:
            size = 64 * value.type.numel if value.type.numel is not None else None
        if size is None:
            return None
        total += size
    return total


def _input_bytes(node: Node, output: Value) -> int | None:
    source = node.inputs[0]
    tensor = source.constant_tensor if source is not None else None
    bits = element_bits(output.dtype) if output.dtype is not None else None
    return None if tensor is None or bits is None else tensor.numel * bits // 8


def _keep_what_pays(graph: Graph, chosen: dict[Node, int], policy: Policy, region: Region) -> None:
    """Walk up from the results: one that would make the model grow too much is left to the runtime."""
    allowance = _ALLOWANCE
    for node in reversed(list(chosen)):
        if not _read_outside(node, chosen):
            continue
        size = chosen[node]
        freed = _freed(node, chosen)
        if size > SMALL and size > policy.max_growth * freed:
            region.declined[node] = f"its result has {size} bytes and frees {freed}"
            del chosen[node]
        elif size - freed > allowance:
            region.declined[node] = f"the model would grow by more than {_ALLOWANCE} bytes"
            del chosen[node]
        else:
            allowance -= max(size - freed, 0)
            region.roots.append(node)
    region.roots.reverse()


def _read_outside(node: Node, chosen: dict[Node, int]) -> bool:
    return any(v is not None and (v.output_count or any(u not in chosen for u in v.users)) for v in node.outputs)


def _freed(root: Node, chosen: dict[Node, int]) -> int:
    """Bytes of the constants that only the computation of `root` reads."""
    seen: set[Node] = set()
    constants: dict[Value, None] = {}
    stack = [root]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        for value in node.inputs:
            if value is None:
                continue
            producer = value.producer
            if producer is not None and producer in chosen:
                stack.append(producer)
            else:
                constants[value] = None
    return sum(
        value.constant_tensor.nbytes
        for value in constants
        if value.constant_tensor is not None and not value.output_count and all(u in seen for u in value.users)
    )


def _needed(chosen: dict[Node, int], roots: Iterable[Node]) -> list[Node]:
    needed: set[Node] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in needed:
            needed.add(node)
            producers = (v.producer for v in node.inputs if v is not None)
            stack.extend(p for p in producers if p is not None and p in chosen)
    return [node for node in chosen if node in needed]


def evaluate(region: Region) -> dict[Value, Tensor]:
    """Compute a region.

    Args:
        region: what `plan` gave; nodes that cannot be computed are moved to its `declined`.

    Returns:
        The results of the region's roots, as far as they could be computed.
    """
    known: dict[Value, Tensor] = {}
    left: dict[Node, None] = {}
    for node in region.nodes:
        if any(v is not None and v.producer in left for v in node.inputs) or not _by_numpy(node, known):
            left[node] = None
    if left:
        _by_runtime(list(left), region, known)
    wanted = {v for node in region.roots for v in node.outputs if v is not None}
    return {value: tensor for value, tensor in known.items() if value in wanted}


def _tensor(value: Value | None, known: dict[Value, Tensor]) -> Tensor | None:
    if value is None:
        return None
    return known.get(value) or value.constant_tensor


def _by_numpy(node: Node, known: dict[Value, Tensor]) -> bool:
    try:
        tensors = [_tensor(value, known) for value in node.inputs]
        arrays = [None if tensor is None else tensor.array() for tensor in tensors]
        results = _ieee(node, arrays) or run_kernel(node, arrays)
    except (Unsupported, ModelError):
        return False
    for value, array in zip(node.outputs, results, strict=False):
        if value is not None:
            known[value] = Tensor.from_array(array, _result_type(value, array))
    return True


def _result_type(value: Value, array: Array) -> int | None:
    """The ONNX type of a result where NumPy's type does not tell, as for strings held as objects."""
    if value.dtype is not None:
        return value.dtype
    return TensorProto.STRING if array.dtype == object else None


def _ieee(node: Node, arrays: list[Array | None]) -> list[Array] | None:
    function = _IEEE.get(node.op)
    if function is None or node.graph.opset() < 7:
        return None
    operands = [a for a in arrays if a is not None]
    if len({a.dtype for a in operands}) != 1 or operands[0].dtype not in (np.float32, np.float64):
        return None
    with np.errstate(all="ignore"):
        return [np.asarray(function(*operands), operands[0].dtype)]


def _by_runtime(nodes: list[Node], region: Region, known: dict[Value, Tensor]) -> None:
    """One session for all nodes; where it fails, one for each node."""
    wanted = _results(nodes, region)
    try:
        known.update(_run(nodes, wanted, known))
        return
    except Exception as error:  # the runtime raises many kinds: no kernel, bad input, out of memory
        if len(nodes) == 1:
            _decline(nodes[0], region, error)
            return
    for node in nodes:
        if any(v is not None and v.producer in region.declined for v in node.inputs):
            region.declined[node] = "an input could not be computed"
            continue
        try:
            known.update(_run([node], [v for v in node.outputs if v is not None], known))
        except Exception as error:
            _decline(node, region, error)


def _decline(node: Node, region: Region, error: Exception) -> None:
    region.declined[node] = f"it cannot be computed ({type(error).__name__})"


def _results(nodes: list[Node], region: Region) -> list[Value]:
    roots = set(region.roots)
    return [v for node in nodes if node in roots for v in node.outputs if v is not None]


def _run(nodes: list[Node], wanted: list[Value], known: dict[Value, Tensor]) -> dict[Value, Tensor]:
    import onnxruntime as ort

    graph = onnx.GraphProto(name="region")
    graph.node.extend(emit(node) for node in nodes)
    made = {v for node in nodes for v in node.outputs}
    given = {v for node in nodes for v in node.inputs if v is not None and v not in made}
    for value in given:
        tensor = _tensor(value, known)
        if tensor is None:
            raise ModelError(f"{value.name} is not known")
        tensor.fill(graph.initializer.add(), value.name)
    for value in wanted:
        graph.output.add(name=value.name)
    model = onnx.ModelProto(ir_version=min(nodes[0].graph.model.ir_version, 10), graph=graph)
    model.ir_version = max(model.ir_version, 4)
    for domain, version in nodes[0].graph.opsets.items():
        model.opset_import.add(domain=domain, version=version)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    arrays = session.run([value.name for value in wanted], {})
    return {v: Tensor.from_array(np.asarray(a), v.dtype) for v, a in zip(wanted, arrays, strict=True)}
