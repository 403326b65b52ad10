"""The gain of `Attention` of opset 23 over the result of `all`: `python -m benchmarks attention`; see docs/adr/0023.

In the result of `all` for a network both products, the mask and the softmax become one `Attention`, and both forms
are run alternately.
"""

from __future__ import annotations

import copy
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

import graphopt
from benchmarks.skeleton import load_skeleton, sample_inputs

NETWORKS = ("ts/vit_tiny_patch16_224", "ts/bert", "dynamo/distilbert", "ts/gpt2")
_OPSET, _IR = 23, 11


def attended(model: onnx.ModelProto) -> tuple[onnx.ModelProto, int]:
    """A copy of opset 23 with `Attention` in it, and the number of these."""
    made = copy.deepcopy(model)
    graph = made.graph
    producers = {name: node for node in graph.node for name in node.output}
    readers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
    for node in graph.node:
        for name in node.input:
            readers[name].append(node)
    gone: set[str] = set()
    instead: dict[str, list[onnx.NodeProto]] = {}
    for softmax in (node for node in graph.node if node.op_type == "Softmax"):
        found = _around(softmax, producers, readers)
        if found is not None:
            scores, mask, last, others = found
            instead[last.output[0]] = _attention(scores, mask, last)
            gone.update(node.output[0] for node in (scores, softmax, *others))
    kept = [new for node in graph.node for new in instead.get(node.output[0], [node]) if new.output[0] not in gone]
    kept = [copy.deepcopy(node) for node in kept]
    del graph.node[:]
    graph.node.extend(kept)
    next(entry for entry in made.opset_import if not entry.domain).version = _OPSET
    made.ir_version = max(made.ir_version, _IR)
    return made, len(instead)


def _around(
    softmax: onnx.NodeProto, producers: dict[str, onnx.NodeProto], readers: dict[str, list[onnx.NodeProto]]
) -> tuple[onnx.NodeProto, str, onnx.NodeProto, list[onnx.NodeProto]] | None:
    """The product that gives the scores, the mask, the product with the values, and the other nodes in between."""
    scores, mask, others = producers[softmax.input[0]], "", []
    if scores.op_type == "Add":
        others.append(scores)
        product, mask = sorted(scores.input, key=lambda name: "MatMul" not in _op(producers, name))
        scores = producers[product]
    behind = readers[softmax.output[0]]
    if len(behind) == 2 and {node.op_type for node in behind} == {"IsNaN", "Where"}:
        others += behind
        chosen = next(node for node in behind if node.op_type == "Where")
        behind = readers[chosen.output[0]]
    if "MatMul" not in scores.op_type or len(behind) != 1 or behind[0].op_type != "MatMul":
        return None
    return scores, mask, behind[0], others


def _op(producers: dict[str, onnx.NodeProto], name: str) -> str:
    return producers[name].op_type if name in producers else ""


def _attention(scores: onnx.NodeProto, mask: str, last: onnx.NodeProto) -> list[onnx.NodeProto]:
    attributes = {a.name: helper.get_attribute_value(a) for a in scores.attribute}
    keys, before = scores.input[1], []
    if not attributes.get("transB"):
        before = [helper.make_node("Transpose", [keys], [f"{keys} of heads"], perm=[0, 1, 3, 2])]
        keys = before[0].output[0]
    operands = [scores.input[0], keys, last.input[1], *([mask] if mask else [])]
    return [*before, helper.make_node("Attention", operands, list(last.output), scale=attributes.get("alpha", 1.0))]


def run(keys: Iterable[str] | None, seconds: float) -> Iterator[dict[str, Any]]:
    """The least CPU times of both, in milliseconds, and the difference of their outputs."""
    for key in keys or NETWORKS:
        source = load_skeleton(key)
        feed = sample_inputs(key, source)
        today = graphopt.optimize(source, level="all")
        newest, count = attended(today)
        sessions = [_session(model) for model in (today, newest)]
        one, other = (session.run(None, feed) for session in sessions)
        apart = max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True))
        best, end = [float("inf")] * 2, time.monotonic() + seconds
        while time.monotonic() < end:
            for index, session in enumerate(sessions):
                start = time.process_time()
                session.run(None, feed)
                best[index] = min(best[index], time.process_time() - start)
        milliseconds = [round(each * 1e3, 3) for each in best]
        yield {
            "model": key,
            "attentions": count,
            "ms": milliseconds,
            "ratio": round(best[1] / best[0], 3),
            "apart": apart,
        }


def _session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
