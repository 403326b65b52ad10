"""Where a quantized network rounds differently from the original: each operator alone, on the integers that it reads.

The original model is run with the runtime's optimizer off. Each part between quantized values is then optimized, by
graphopt or by the runtime, run alone on the original's values, and its results are compared with the original's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper, numpy_helper
from onnx.utils import Extractor

from graphopt import optimize
from graphopt.system.sessions import open_session

_MOST_OPERATORS = 12
"""Larger parts are float regions between integers, whose rounding is not that of one operator."""


def ties(model: ModelProto, feed: dict[str, Any], *, runtime: bool = False) -> dict[str, Any]:
    """The number of differing elements, of all, the largest difference in steps, and the largest distance from a tie.

    Args:
        model: a quantized network.
        feed: its inputs.
        runtime: whether the runtime optimizes the parts, with all its optimizations, instead of level `all`.
    """
    model = onnx.shape_inference.infer_shapes(model)
    makers = {name: node for node in model.graph.node for name in node.output}
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    quantizers = [n for n in model.graph.node if n.op_type == "QuantizeLinear" and n.input[0] not in constants]
    values = _run(model, feed, [node.output[0] for node in quantizers]) | feed
    found = {"differ": 0, "elements": 0, "steps": 0, "farthest": 0.0}
    for node in quantizers:
        sources, size = _sources(node, makers, values)
        if not sources or not sources <= set(values) or size > _MOST_OPERATORS:
            continue
        part = Extractor(model).extract_model(sorted(sources), [node.output[0]])
        fed = {name: values[name] for name in sources}
        made, level = (part, "all") if runtime else (optimize(part, level="all"), "none")
        got = _run(made, fed, [node.output[0]], level)[node.output[0]]
        steps = np.abs(got.astype(np.int64) - values[node.output[0]])
        found["elements"] += steps.size
        if not steps.any():
            continue
        found["differ"] += int((steps > 0).sum())
        found["steps"] = max(found["steps"], int(steps.max()))
        floats = _run(part, fed, [node.input[0]])[node.input[0]].astype(np.float64)
        exact = floats / numpy_helper.to_array(constants[node.input[1]]).astype(np.float64).reshape(-1)[0]
        halfway = np.abs(exact - np.floor(exact) - 0.5)[steps > 0]
        found["farthest"] = max(found["farthest"], float(halfway.max()))
    return found


def _sources(node: NodeProto, makers: dict[str, NodeProto], values: dict[str, Any]) -> tuple[set[str], int]:
    """The quantized values and inputs that an operator's result depends on, and the number of operators between."""
    sources: set[str] = set()
    stack, seen, size = [node.input[0]], set[str](), 0
    while stack:
        name = stack.pop()
        if not name or name in seen:
            continue
        seen.add(name)
        maker = makers.get(name)
        if name in values:
            sources.add(name)
        elif maker is not None:
            size += maker.op_type != "DequantizeLinear"
            stack += maker.input
    return sources, size


def _run(model: ModelProto, feed: dict[str, Any], names: list[str], level: str = "none") -> dict[str, np.ndarray]:
    """Values of a model, with the runtime's optimizer off unless a level is given."""
    shown = ModelProto()
    shown.CopyFrom(model)
    known = {value.name for value in model.graph.output}
    shown.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names if name not in known)
    return dict(zip(names, open_session(shown, level=level).run(names, feed), strict=True))
